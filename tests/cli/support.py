"""Helpers of the command-line tests: run brim, read its output files, write small IDX files.

The program under test is $BRIM_BINARY. Each test gets a temporary folder, which is the working directory of the
programs it runs."""

import fcntl
import gzip
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = os.path.abspath(os.environ["BRIM_BINARY"])
SANITIZED = bool(os.environ.get("BRIM_SANITIZE"))
FULL = os.environ.get("BRIM_TEST_TIER", "full") == "full"  # runs all cases, however long they take
FAULT_SHIM = os.environ.get("BRIM_FAULT_SHIM", "")
FASHION = pathlib.Path(os.environ.get("BRIM_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))

# Exit statuses, as listed by `brim --help`.
DONE, USAGE, LOAD, NO_FIT, FAILED, INTERRUPTED = 0, 2, 3, 4, 5, 6

# A network and data so small that starting the program takes most of a run's time. Plans contain no times of this
# machine.
SMALL = ["model=mlp", "model.hidden=[16]", "dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=256",
         "dataset.test_count=64", "training.batch_size=128", "backend.threads=1", "memory.timing=false"]
# The same data with the convolutional network.
SMALL_CNN = ["model=cnn", "model.width=4", "dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=256",
             "dataset.test_count=64", "training.batch_size=128", "backend.threads=1", "memory.timing=false"]

# A small language model as Hugging Face stores it.
NETWORK = pathlib.Path(__file__).resolve().parents[1] / "golden" / "decoder" / "llama_yarn"

CHECKPOINT_FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]
SUMMARY_KEYS = ["status", "steps", "train_loss", "test_loss", "test_accuracy", "samples_per_second",
                "planned_peak_bytes", "device_bytes", "device_reserved_bytes", "device_peak_bytes",
                "predicted_rss_bytes",
                "rss_bytes", "rss_peak_bytes", "first_step_seconds", "wall_seconds", "queue_seconds",
                "retries"]

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup(1) ignores SIGHUP, and brim keeps that setting

# A run that trains until a signal ends it, and writes nothing meanwhile.
ENDLESS = ["training.steps=0", "training.epochs=1000000", "training.eval_every_steps=1000000",
           "training.checkpoint_every_steps=1000000"]
HANG_SECONDS = 800  # limit for a process that hangs; no test may come near it, even on a slow or busy machine

# Fields of metrics.jsonl that depend on a clock, or on the number of clients that train at a time.
TIMED = ["samples_per_second", "tokens_per_second", "seconds", "loader_seconds", "selection_seconds", "device_bytes",
         "device_peak_bytes", "rss_bytes"]


def has_locked_table(path):
    """True if a process has locked the table of this board (core/memory/board.c)."""
    query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 40, 1, 0)
    try:
        with open(path, "rb") as file:
            return struct.unpack_from("h", fcntl.fcntl(file, 36, query))[0] != fcntl.F_UNLCK  # F_OFD_GETLK
    except FileNotFoundError:  # the process has removed it meanwhile
        return False


class Result:
    """The exit status and output of a brim process."""

    def __init__(self, argv, status, out, err):
        self.argv, self.status, self.out, self.err = argv, status, out, err

    def __str__(self):
        return f"$ brim {' '.join(self.argv)}\nexit status {self.status}\n{self.out}{self.err}"

    @property
    def json(self):
        """Parses the output of a command with --json."""
        return json.loads(self.out)


class Case(unittest.TestCase):
    """A test with a temporary folder. `shared`: a folder for runs that several tests of the class only read."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.shared, cls._runs_made = pathlib.Path(tempfile.mkdtemp(prefix="brim-cli-")), {}
        cls.addClassCleanup(shutil.rmtree, cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="brim-cli-"))
        self.addCleanup(self._delete_folder)

    def _delete_folder(self):
        for path, _, _ in os.walk(self.folder):
            os.chmod(path, 0o700)
        for left in range(20, -1, -1):  # the child of a killed run may still be writing its report
            try:
                shutil.rmtree(self.folder)
                return
            except OSError:
                if left == 0:
                    raise
                time.sleep(0.1)

    def start(self, *argv, env=None, ignoring=None, out=subprocess.PIPE, err=subprocess.PIPE):
        """Starts brim without waiting. `ignoring`: a signal that it inherits as ignored; `out`, `err`: the files for
        its standard output and standard error."""
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "BRIM_CLAIMS_DIR": str(self.folder / "claims"),
                       "XDG_CACHE_HOME": str(self.folder / "cache"), **(env or {})}
        process = subprocess.Popen([BINARY, *map(str, argv)], cwd=self.folder, env=environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   preexec_fn=ignoring and (lambda: signal.signal(ignoring, signal.SIG_IGN)))
        self.addCleanup(self._end, process)
        return process

    @staticmethod
    def _end(process):
        """Ends a process without reading the rest of its output, because another process may hold the pipe's other end
        open."""
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr, getattr(process, "log", None)):
            if stream:
                stream.close()

    def finish(self, process, status=None):
        out, err = process.communicate(timeout=HANG_SECONDS)
        result = Result(process.args[1:], process.returncode, out, self.said(process) if err is None else err)
        if status is not None:
            self.assertEqual(result.status, status, result)
        return result

    def until(self, condition, *processes, what="the event"):
        """Waits until condition() holds. Fails if one of the processes ends first."""
        deadline = time.monotonic() + HANG_SECONDS
        while not condition():
            for process in processes:
                if process.poll() is not None and not condition():
                    self.fail(f"{what} did not come before the end: {self.finish(process)}")
            self.assertLess(time.monotonic(), deadline, f"{what} does not come")
            time.sleep(0.01)

    def has_begun(self, run):
        """Returns True if the run has placed its arena."""
        return (self.folder / run / "events.jsonl").exists()

    def holds_lock(self, run):
        """Returns True if a process works in the run's folder."""
        with open(self.folder / run / ".lock", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def hold(self, run, *words, env=None):
        """Starts a run that trains until it is ended, and waits until it has placed its arena. Its standard error is a
        file, because it prints a line every 50 steps: it would stop once a pipe that nothing reads is full."""
        log = tempfile.TemporaryFile()
        process = self.start("train", f"run.dir={run}", *words, *ENDLESS, env=env, err=log)
        process.log = log
        self.until(lambda: self.has_begun(run), process)
        return process

    @staticmethod
    def said(process):
        """Returns the text that a held run has printed to standard error so far."""
        return os.pread(process.log.fileno(), os.fstat(process.log.fileno()).st_size, 0).decode(errors="replace")

    def hold_still(self, run, *words):
        """Like hold(), but also stops the run: it keeps its memory and takes no processor time from the test."""
        process = self.hold(run, *words)
        self.suspend(process.pid)
        return process

    def suspend(self, pid):
        """Stops a process, but not while it has a table of the shared folder locked, for which others would wait."""
        stat = pathlib.Path(f"/proc/{pid}/stat")

        def stop():
            os.kill(pid, signal.SIGSTOP)
            self.until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="the stop")

        stop()
        while any(map(has_locked_table, (self.folder / "claims").iterdir())):
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.005)
            stop()

    def brim(self, *argv, status=DONE, env=None):
        """Runs brim to its end and checks that it exits with `status` (None: any)."""
        return self.finish(self.start(*argv, env=env), status)

    def train(self, run, *overrides, status=DONE, env=None):
        """Runs `brim train` into the folder `run`."""
        return self.brim("train", f"run.dir={run}", *overrides, status=status, env=env)

    def federate(self, run, *overrides, status=DONE, env=None):
        """Runs `brim federate` into the folder `run`."""
        return self.brim("federate", f"run.dir={run}", *overrides, status=status, env=env)

    def brim_as_user(self, *argv, status=DONE):
        """Runs brim without root's permission to read and write everything."""
        if os.geteuid() != 0:
            return self.brim(*argv, status=status)
        for folder in (self.folder, *pathlib.Path(BINARY).parents):
            if not os.stat(folder).st_mode & 0o001 and folder != self.folder:
                self.skipTest(f"another user cannot get to {BINARY}")
        os.chmod(self.folder, 0o777)
        process = subprocess.Popen([BINARY, *map(str, argv)], cwd=self.folder, text=True, user=65534, group=65534,
                                   extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        return self.finish(process, status)

    def once(self, make, *paths):
        """Makes files or folders that several tests of the class need: make() makes them for the first test, and the
        others get copies. A run keeps absolute paths of its data and weights, so these must be in `shared`. Returns
        what make() returned."""
        first = paths not in self._runs_made
        if first:
            self._runs_made[paths] = make()
        for path in paths:
            source, to = (self.folder, self.shared) if first else (self.shared, self.folder)
            if (source / path).is_dir():
                shutil.copytree(source / path, to / path, symlinks=True)
            else:
                shutil.copy2(source / path, to / path)
        return self._runs_made[paths]

    # ---- files of a run ----

    def read(self, *parts):
        return self.folder.joinpath(*parts).read_text(encoding="utf-8")

    def json(self, *parts):
        return json.loads(self.read(*parts))

    def summary(self, run):
        return self.json(run, "summary.json")

    def records(self, run, name="metrics.jsonl"):
        text = self.read(run, name)
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]  # a run may be writing more

    def events(self, run):
        """Returns the events, without those that record the inputs of policies."""
        return [record["event"] for record in self.records(run, "events.jsonl") if record["event"] != "seen"]

    def steps(self, run):
        """Returns the step numbers of the checkpoints in the folder."""
        folder = self.folder / run / "checkpoints"
        if not folder.exists():
            return []
        return sorted(int(path.name[5:]) for path in folder.iterdir() if path.name.startswith("step-"))

    def checkpoint(self, run, step):
        return self.folder / run / "checkpoints" / f"step-{step:08d}"

    def tree(self, *parts):
        """Returns all paths below a folder, with the bytes of files."""
        root = self.folder.joinpath(*parts)
        return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
                for path in root.rglob("*")}

    def assert_same_checkpoint(self, run, other, step, files=None, context=""):
        for name in files or CHECKPOINT_FILES:
            a, b = self.checkpoint(run, step) / name, self.checkpoint(other, step) / name
            if a.read_bytes() != b.read_bytes():
                detail = f"\n{a.read_text()}\n{b.read_text()}" if name == "state.json" else ""
                self.fail(f"{a} and {b} differ {context}{detail}")

    def assert_same_records(self, run, other):
        """Asserts that metrics.jsonl is the same, apart from fields that depend on a clock."""
        def timeless(records):
            return [{key: value for key, value in r.items() if key not in TIMED} for r in records]
        self.assertEqual(timeless(self.records(run)), timeless(self.records(other)))

    # ---- errors ----

    def assert_error(self, result, *parts):
        """Asserts that brim failed with an error message that has all its parts."""
        self.assertIn("error: ", result.err, result)
        for part in parts:
            self.assertIn(str(part), result.err, result)


def idx(array_bytes, *dims, magic=None):
    """Returns the bytes of an IDX file of unsigned bytes."""
    head = magic if magic is not None else bytes([0, 0, 8, len(dims)])
    return head + b"".join(struct.pack(">I", n) for n in dims) + array_bytes


def write_idx_dataset(folder, train=96, test=32, rows=8, classes=10, compress=False):
    """Writes a small folder like MNIST. In each image the position of a bright bar shows the label."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, count in (("train", train), ("t10k", test)):
        labels = bytes(i % classes for i in range(count))
        images = bytearray()
        for label in labels:
            image = bytearray(rows * rows)
            for k in range(rows):
                image[(label * 5 + k) % (rows * rows)] = 255
            images += image
        write(folder / f"{stem}-images-idx3-ubyte", idx(bytes(images), count, rows, rows), compress)
        write(folder / f"{stem}-labels-idx1-ubyte", idx(labels, count), compress)
    return folder


def write(path, data, compress=False):
    if compress:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data, mtime=0))
    else:
        path.write_bytes(data)


def idx_overrides(folder):
    return ["dataset=mnist", f"dataset.path={folder}", "model=mlp", "model.hidden=[16]", "training.batch_size=16",
            "backend.threads=1"]


def some_of(cases, every, first=0):
    """Returns the cases of a table. Under a sanitizer it returns only one of `every` cases, beginning with number
    `first`, because the cases of a table run the same code, and the release build runs all; the full tier runs all
    under sanitizers too."""
    cases = list(cases)
    return cases if FULL or not SANITIZED else cases[first::every]


def fewer_of(cases, every, first=0):
    """Returns the cases of a table. Only the full tier runs all; the middle tier runs one of `every` cases, beginning
    with number `first`, because each of them can show the same defect."""
    cases = list(cases)
    return cases if FULL else cases[first::every]


# For a test of numbers or texts: other tests run the same code of brim, so sanitizers run it only in the full tier.
plain = unittest.skipIf(SANITIZED and not FULL, "a sanitizer checks memory, and other tests run this code")


def killed(result):
    return result.status == -signal.SIGKILL


def main():
    program = unittest.main(exit=False, verbosity=2)
    sys.exit(0 if program.result.wasSuccessful() else 1)
