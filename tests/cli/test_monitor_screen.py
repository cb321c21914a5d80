"""Tests the interactive view of brim monitor, in a pseudo-terminal: keys, sizes, terminals that cannot show it, and the
interrupt of a run. The unit tests draw and view test the picture itself."""

import codecs
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from support import BINARY, DONE, ENDLESS, HANG_SECONDS, INTERRUPTED, SANITIZED, SMALL, USAGE, Case, main

STATES = pathlib.Path(__file__).resolve().parents[1] / "monitor" / "states"
OBJECT = pathlib.Path(BINARY).parent.parent / "lib" / "brim" / "terminal" / "ncurses.so.1"


class Terminal:
    """A brim monitor on a separate terminal."""

    def __init__(self, case, *argv, columns=80, rows=24, env=None):
        self.case, self.seen = case, ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end within a character
        self.control, side = pty.openpty()
        self.resize(columns, rows, quiet=True)
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "TZ": "UTC",
                       "BRIM_CLAIMS_DIR": str(case.folder / "claims"), "XDG_CACHE_HOME": str(case.folder / "cache"),
                       **(env or {})}
        environment.pop("LINES", None)
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen([BINARY, "monitor", *argv], cwd=case.folder, env=environment, stdin=side,
                                        stdout=side, stderr=side, start_new_session=True)
        os.close(side)
        case.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.control)

    def resize(self, columns, rows, quiet=False):
        fcntl.ioctl(self.control, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if not quiet:
            os.kill(self.process.pid, signal.SIGWINCH)

    def read(self, seconds=0.05):
        """Reads some of the output; returns False if none comes within this time."""
        if not select.select([self.control], [], [], seconds)[0]:
            return False
        try:
            part = os.read(self.control, 65536)
        except OSError:  # the process has closed its side
            return False
        self.seen += self.decoder.decode(part)
        return len(part) > 0

    def read_rest(self):
        """Reads the rest of the output of a process that has ended. It may have several pictures, because of Ctrl-L."""
        while self.read():
            pass

    def text(self):
        """Returns all output, without the sequences that place and paint it."""
        return re.sub(r"\x1b(\[[0-9;?>=!]*[ -/]*[@-~]|\([A-Z0-9]|[=>78M])|\x0f", "", self.seen)

    def wait(self, pattern):
        """Waits until the terminal has received the text, and drops all output up to it. ncurses sends only changes, so
        Ctrl-L asks for the whole picture now and then."""
        deadline, again = time.monotonic() + HANG_SECONDS, time.monotonic() + 0.3
        while not re.search(pattern, self.text()):
            self.case.assertLess(time.monotonic(), deadline, f"no {pattern!r} in {self.text()!r}")
            if self.process.poll() is not None:
                self.read_rest()
                self.case.assertRegex(self.text(), pattern)
                break
            self.read()
            if time.monotonic() > again:
                again = time.monotonic() + 0.3
                self.press("\x0c")
        found, self.seen = self.seen, ""
        return found

    def press(self, keys):
        os.write(self.control, keys.encode())

    def status(self):
        deadline = time.monotonic() + HANG_SECONDS
        while self.process.poll() is None:
            self.case.assertLess(time.monotonic(), deadline, "brim monitor does not end")
            self.read()
        self.read_rest()
        return self.process.returncode


@unittest.skipUnless(OBJECT.exists(), "built without ncurses")
class Screen(Case):
    def recorded(self, state, *more, **terminal):
        return Terminal(self, "--from", str(STATES / f"{state}.json"), *more, **terminal)

    def test_keys_from_the_first_picture_to_the_end(self):
        screen = self.recorded("lab")
        first = screen.wait(r"q quit")
        self.assertIn("\x1b[?1049h", first)  # at the end the terminal shows the user's screen again
        screen.press("j\n")
        screen.wait(r"train loss")
        screen.press("q")
        screen.wait(r"runs")
        screen.press("/cnn-w")
        screen.wait(r"with \"cnn-w\"")
        screen.press("\x1b")
        screen.wait(r"1-\d+ of 20")
        screen.press("?")
        screen.wait(r"keys and words")
        screen.press("q")
        screen.wait(r"runs")
        screen.press("i")
        screen.wait(r"recorded snapshot: its runs cannot be interrupted")
        screen.press("q")
        self.assertEqual(screen.status(), DONE)
        self.assertIn("\x1b[?1049l", screen.seen)

    def test_a_new_size_is_used_and_one_that_is_too_small_is_named(self):
        screen = self.recorded("lab")
        screen.wait(r"q quit")
        screen.resize(200, 50)
        screen.wait(r"validation accuracy")  # the chosen run's curve, beside the list
        screen.resize(20, 3)
        screen.wait(r"too small")
        screen.resize(40, 10)
        screen.wait(r"8 dev mem")
        screen.press("q")
        self.assertEqual(screen.status(), DONE)

    def test_terminals_that_cannot_show_it(self):
        for words, found in (({"columns": 10, "rows": 3}, r"10 columns and 3 rows.*needs at least 40 and 8"),
                             ({"env": {"TERM": "dumb"}}, r"TERM=dumb"), ({"env": {"TERM": ""}}, r"TERM="),
                             ({"env": {"TERM": "no-such-type"}}, r"TERM=no-such-type is not known")):
            with self.subTest(found):
                if SANITIZED and "no-such-type" in found:
                    continue  # newterm() of ncurses leaks the screen that it does not return
                screen = self.recorded("one", **words)
                self.assertEqual(screen.status(), USAGE)
                text = screen.text().replace("\r\n", " ")
                self.assertRegex(text, found)
                self.assertIn("--once", text)
                self.assertNotIn("\x1b[?1049h", screen.seen)

    def test_without_utf8_and_without_colour(self):
        screen = self.recorded("lab", env={"LC_ALL": "C", "NO_COLOR": "1"})
        first = screen.wait(r"q quit")
        self.assertTrue(first.isascii())
        self.assertNotRegex(first, r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8])[;m]")  # no colours, only bold and reverse
        screen.press("q")
        self.assertEqual(screen.status(), DONE)

    def test_texts_of_strangers_cannot_steer_the_terminal(self):
        screen = self.recorded("broken")
        first = screen.wait(r"q quit")
        self.assertNotIn("\x1b]0;", first)
        self.assertNotIn("\a", first)
        self.assertIn("<script>", re.sub(r"\x1b\[[0-9;]*m", "", first))
        screen.press("j\n")
        screen.wait(r"memory")
        screen.press("Q")
        self.assertEqual(screen.status(), DONE)

    def test_a_signal_gives_the_terminal_back(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            screen = self.recorded("empty")
            screen.wait(r"q quit")
            os.kill(screen.process.pid, number)
            self.assertEqual(screen.status(), DONE)
            self.assertIn("\x1b[?1049l", screen.seen)

    def test_a_run_of_mine_is_interrupted_after_a_question(self):
        run = self.start("train", *SMALL, *ENDLESS, "run.dir=runs/mine")
        self.until(lambda: self.has_begun("runs/mine"), run, what="the run")
        screen = Terminal(self)
        screen.wait(r"training")
        screen.press("i")
        screen.wait(rf"interrupt \S*mine \(pid {run.pid}\)\?")
        screen.press("n")
        screen.wait(r"not interrupted")
        self.assertIsNone(run.poll())
        screen.press("i")
        screen.wait(r"interrupt \S*mine")
        screen.press("y")
        screen.wait(r"interrupted \S*mine: it writes a checkpoint and ends")
        self.finish(run, INTERRUPTED)
        self.assertTrue((self.folder / "runs" / "mine" / "checkpoints" / "last").exists())
        screen.wait(r"interrupted|no runs")
        screen.press("q")
        self.assertEqual(screen.status(), DONE)


if __name__ == "__main__":
    main()
