#!/usr/bin/env python3
"""Tests scripts/check_links.py and scripts/words.py on pages that are right and wrong."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="brim-pages-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_on(self, script, text, *words):
        (self.folder / "page.md").write_text(text, encoding="utf-8")
        (self.folder / "other.md").write_text("# The `plan`: how, why?\n\n## Twice\n\n## Twice\n", encoding="utf-8")
        result = subprocess.run([sys.executable, SCRIPTS / script, *words, "page.md"], cwd=self.folder,
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.stderr, "")
        return result.returncode, result.stdout.splitlines()

    def test_links_to_files_and_headings_pass(self):
        text = ("# Here\n[a](other.md) [b](other.md#the-plan-how-why) [c](#here) [`d`](other.md#twice-1 \"title\")\n"
                "[e](https://example.com/x#y) `[f](none.md)`\n```\n[g](none.md)\n```\n")
        self.assertEqual(self.run_on("check_links.py", text), (0, []))

    def test_a_link_that_leads_nowhere_is_reported_with_its_line(self):
        status, lines = self.run_on("check_links.py", "\n[a](none.md) ![b](x.png)\n\n[c](other.md#twice-2) [d](#no)\n"
                                    '<img src="y.svg">\n')
        self.assertEqual(status, 1)
        self.assertEqual([line.split(": link ")[0] for line in lines],
                         ["page.md:2", "page.md:2", "page.md:4", "page.md:4", "page.md:5"])
        self.assertIn("other.md has no heading 'twice-2'", lines[2])

    def test_phrases_that_lint_refuses(self):
        status, lines = self.run_on("words.py", "The rest is none of it.\nNobody is told.\nA run goes on with it.\n"
                                    "The plan is told_of.\n", "--check")
        self.assertEqual(status, 1)
        self.assertEqual([line.split(": ")[:2] for line in lines],
                         [["page.md:1", "is none"], ["page.md:2", "nobody, whoever"], ["page.md:2", "told"],
                          ["page.md:3", "goes on with"]])
        self.assertEqual(self.run_on("words.py", "No process has been reported.\n", "--check"), (0, []))


if __name__ == "__main__":
    unittest.main()
