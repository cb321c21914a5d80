"""Tests that scripts/run_docs.py finds pages whose output is wrong, and corrects them on request."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/run_docs.py"


class RunDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="brim-run-docs-")
        self.addCleanup(folder.cleanup)
        self.page = pathlib.Path(folder.name) / "page.md"

    def run_page(self, *blocks, status, options=()):
        """Runs a page made of blocks (kind, text); returns the script's output."""
        self.page.write_text("\n\n".join(f"```{kind}\n{text}\n```" for kind, text in blocks) + "\n")
        done = subprocess.run([sys.executable, SCRIPT, *options, self.page], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def test_blocks_share_a_shell_and_a_folder(self):
        self.run_page(("sh", "name=x\nmkdir a\ncd a\ntouch b"), ("sh", "ls\necho $name >&2"), ("text", "b\nx"),
                      ("c", "int i;"), ("sh", 'false || echo "exit status $?"'), ("text", "exit status 1"), status=0)

    def test_other_output_is_shown(self):
        said = self.run_page(("sh", "echo one\necho two"), ("text", "one\n2"), status=1)
        self.assertIn("page.md:2: prints something else:", said)
        self.assertIn("-2\n  +two", said)
        self.run_page(("sh", "echo one\necho two"), ("text", "one"), status=1)

    def test_a_command_that_fails_is_named(self):
        said = self.run_page(("sh", "true"), ("sh", "echo before\n(exit 5)\necho after"), status=1)
        self.assertIn("page.md:6: a command failed:\n  before\n", said)
        self.assertIn("exit status 5 of: ", said)
        self.assertNotIn("after", said)

    def test_a_page_that_ends_early_or_has_no_commands_fails(self):
        self.assertIn("the shell has ended here",
                      self.run_page(("sh", "exit 0"), ("sh", "echo"), ("text", "x"), status=1))
        self.assertIn("no block of commands", self.run_page(("text", "x"), status=1))

    def test_commands_that_hang_are_ended(self):
        said = self.run_page(("sh", "echo begun\nsleep 1000"), status=1, options=["--seconds=1"])
        self.assertIn("not done after 1.0 seconds:\n  begun", said)

    def test_times_speeds_and_places_may_differ(self):
        self.run_page(("sh",
                       "echo 'done in 0:11: 4372 samples/s, first step after 0.67 s'\necho \"     1.5 s  $PWD/a\""),
                      ("text", "done in 1:02: 9 samples/s, first step after 12 s\n     12.25 s  /home/me/a"), status=0)
        for printed in ("0:00:11 step 3", "micro-batch 32 x 2", "peak 44.6 MiB", "1 time"):
            self.run_page(("sh", f"echo '{printed}'"),
                          ("text", printed.replace("1", "2").replace("3", "4").replace("6", "7")), status=1)

    def test_brim_must_accept_the_configurations_of_examples(self):
        """A sweep has a configuration for each job. The brim of this test refuses words that contain "wrong"."""
        brim = self.page.parent / "bin/brim"
        brim.parent.mkdir()
        brim.write_text('#!/bin/sh\ncase "$*" in *wrong*) echo "refused: $*" >&2; exit 2;; esac\n')
        brim.chmod(0o755)
        page = ("```sh\ntrue\n```\n\n"
                "    brim federate -m a=1,%s 'b=[x,y]' \\\n        c=2,3   # wrong\n    brim ops wrong\n")
        for value, status in ("2", 0), ("wrong", 1):
            self.page.write_text(page % value)
            done = subprocess.run([sys.executable, SCRIPT, "--prefix", brim.parent.parent, self.page],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for job in "a=wrong b=[x,y] c=2", "a=wrong b=[x,y] c=3":
            self.assertIn(f"page.md:5: brim --quiet --config-name federate config {job}\n  refused: ", done.stdout)
        self.assertNotIn("a=1 ", done.stdout)

    def test_write_pastes_only_changed_output(self):
        blocks = [("sh", "echo 'done in 0:11'"), ("text", "done in 0:12"), ("sh", "echo new\necho lines"), ("text", ""),
                  ("sh", "echo kept")]
        self.run_page(*blocks, status=0, options=["--write"])
        text = self.page.read_text()
        self.assertIn("```text\ndone in 0:12\n```", text)
        self.assertIn("```text\nnew\nlines\n```", text)
        self.assertNotIn("```text\nkept", text)


if __name__ == "__main__":
    unittest.main()
