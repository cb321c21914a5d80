"""Tests manual pages: one for each command, with all of its options, and without complaints from man-page checkers."""

import pathlib
import shutil
import subprocess
import unittest

from support import BINARY, USAGE, Case, main

PAGES = pathlib.Path(BINARY).parent.parent / "share" / "man"


def plain(path):
    """Returns a page's text without roff's escapes."""
    text = path.read_text(encoding="utf-8")
    for escape, character in (("\\-", "-"), ("\\(aq", "'"), ("\\(ga", "`"), ("\\(ha", "^"), ("\\(ti", "~"),
                              ("\\e", "\\")):
        text = text.replace(escape, character)
    return text


class Man(Case):
    def commands(self):
        return self.brim("complete", "--", "brim ").out.split()

    def test_each_command_has_a_page_with_all_of_its_options(self):
        shared = set(self.brim("complete", "--", "brim -").out.split()) - {"--help"}
        self.assertIn("train", self.commands())
        for command in self.commands():
            options = set(self.brim("complete", "--", f"brim {command} -").out.split()) - shared
            text = plain(PAGES / "man1" / f"brim-{command}.1")
            tags = [line[3:] for line in text.splitlines() if line.startswith(".B -")]
            for option in options:
                with self.subTest(f"{command} {option}"):
                    self.assertTrue(any(option in tag.replace(",", "").split() for tag in tags), "not in the page")
            with self.subTest(command):
                self.assertIn(self.brim(command, "--help").out.splitlines()[0].split(": ", 1)[1], text)

    def test_each_option_is_described(self):
        for command in self.commands():
            options = self.brim(command, "--help").out.split("\noptions:\n")[1:]
            for line in options[0].split("\n\n")[0].splitlines() if options else []:
                with self.subTest(f"{command}: {line.strip()}"):
                    self.assertRegex(line, r"^  -\S.*   \S", "the option has no help")

    def test_brim_itself(self):
        text = plain(PAGES / "man1" / "brim.1")
        for command in self.commands():
            self.assertIn(f".BR brim-{command} (1)\n", text)
        for option in self.brim("complete", "--", "brim -").out.split():
            self.assertRegex(text, rf"(?m)^\.B (-h, )?{option}( |$)")

    def test_the_configuration_has_every_key(self):
        text = plain(PAGES / "man5" / "brim.yaml.5")
        for line in self.brim("config", "--schema", "model=cnn", "dataset=idx").out.splitlines():
            key = line.split()[0]
            self.assertIn(f"\n.B {key}\n", text)

    def test_help_of_a_command(self):
        self.assertEqual(self.brim("help", "train").out, self.brim("train", "--help").out)
        self.assertEqual(self.brim("help").out, self.brim("--help").out)
        self.assertIn("did you mean 'brim train'", self.brim("help", "trian", status=USAGE).err)

    def check(self, *words, ignored=()):
        pages = sorted(PAGES.glob("man*/*"))
        self.assertGreater(len(pages), len(self.commands()) + 2)
        for page in pages:
            with self.subTest(page.name):
                process = subprocess.run([*words, page], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                lines = process.stdout.splitlines() if "lint" in " ".join(words) else []
                lines += process.stderr.splitlines()
                self.assertEqual([line for line in lines if not any(text in line for text in ignored)], [])

    @unittest.skipUnless(shutil.which("groff"), "groff is not here")
    def test_groff_has_nothing_to_warn_of(self):
        if subprocess.run(["groff", "-man", "-z"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("groff has no macros for manual pages")
        self.check("groff", "-k", "-ww", "-man", "-z")

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not here")
    def test_mandoc_has_nothing_to_warn_of(self):
        self.check("mandoc", "-Tlint", "-Wwarning", ignored=["missing date"])  # pages have a version, not a date


if __name__ == "__main__":
    main()
