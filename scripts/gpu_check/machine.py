"""Runs brim and other programs within time limits, several at once, and measures their time and memory."""

import concurrent.futures
import contextlib
import ctypes
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import site
import subprocess
import threading
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent


class OutOfTime(Exception):
    """A check has run out of time. Holds the program's output until then."""


class Skipped(Exception):
    """A check cannot run on this machine, with the reason."""


class Limit:
    """A deadline."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def within(self, seconds):
        return Limit(min(self.left(), seconds))


class Job:
    """Checks that run one after another. `function(limit)` yields (good, figures) for each of `names`, in order."""

    def __init__(self, names, seconds, function):
        self.names, self.seconds, self.function = [names] if isinstance(names, str) else names, seconds, function

    def among(self, regex):
        return any(re.search(regex, name) for name in self.names)

    def perform(self, results, limit):
        """Runs the checks. Every name gets a line, even if a check fails or is not reached."""
        left = [name for name in self.names if name not in results.done]
        if not left:
            return
        start = time.monotonic()

        def add(name, verdict, **figures):
            nonlocal start
            left.remove(name)
            if "details" in figures:
                results.details(name, figures.pop("details"))
            results.add(name, verdict, time.monotonic() - start, **figures)
            start = time.monotonic()

        def add_rest(verdict, why):
            for name in list(left):
                add(name, verdict, why=why)

        own = limit.within(self.seconds)
        if own.left() <= 0:
            add_rest("unfinished", "not begun: the command's time was up")
            return
        try:
            for name, (good, figures) in zip(self.names, self.function(own)):
                if name in left:
                    add(name, "ok" if good else "failed", **figures)
            add_rest("failed", "the check ended without a verdict")
        except OutOfTime as error:
            said = str(error).strip().splitlines()
            if said:
                results.details(left[0], str(error))
            add_rest("unfinished", f"its time was up{'; it said last: ' + said[-1][:200] if said else ''}")
        except Skipped as why:
            add_rest("skipped", str(why))
        except Exception as error:  # a bug in one check must not prevent the others
            results.details(self.names[0], traceback.format_exc())
            add_rest("failed", f"{type(error).__name__}: {error}"[:400])


def perform(jobs, results, limit, workers):
    """Runs up to `workers` jobs at a time, in order."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(job.perform, results, limit) for job in jobs]:
            future.result()


class Machine:
    """A build or pack, a folder for runs, and the device."""

    def __init__(self, build, scratch):
        self.build, self.scratch = pathlib.Path(build).resolve(), pathlib.Path(scratch)
        self.groups, self.lock = set(), threading.Lock()
        self.env = {**os.environ, "LD_LIBRARY_PATH": ":".join(self.library_folders()),
                    "BRIM_BUILD_DIR": str(self.build), "BRIM_CLAIMS_DIR": str(self.scratch / "claims"),
                    "XDG_CACHE_HOME": str(self.scratch / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        found = self.brim(Limit(120), "devices", "--json", errors=subprocess.DEVNULL)
        gpus = [d for d in json.loads(found.stdout)["devices"] if d["backend"] == "cuda"] if found.stdout else []
        self.gpu = gpus[0] if gpus else None

    def library_folders(self):
        """Returns the build's folders, then the toolkit's, then those of Python's packages."""
        folders = [self.build / "lib", *map(pathlib.Path, os.environ.get("LD_LIBRARY_PATH", "").split(":")),
                   pathlib.Path("/usr/local/cuda/lib64")]
        for packages in site.getsitepackages() + [site.getusersitepackages()]:
            folders += sorted(pathlib.Path(packages).glob("nvidia/*/lib"))
        torch = importlib.util.find_spec("torch")
        folders += [pathlib.Path(p) / "lib" for p in (torch.submodule_search_locations if torch else [])]
        return [str(f) for f in folders if f.is_absolute() and f.is_dir()]

    def why_no_gpu(self):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            return f"there is no NVIDIA driver on this machine ({error}): run this where there is a GPU"
        return "\n".join(["the driver is there, but brim cannot use the GPU:", self.brim(Limit(120), "devices").stdout,
                          f"libraries were looked for in {' '.join(self.library_folders())}"])

    def start(self, argv, env=None, errors=subprocess.STDOUT):
        process = subprocess.Popen([str(a) for a in argv], env={**self.env, **(env or {})}, text=True, errors="replace",
                                   cwd=self.scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                   start_new_session=True)
        with self.lock:
            self.groups.add(process.pid)
        return process

    def end(self, process):
        """Ends a process and all its descendants."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        with self.lock:
            self.groups.discard(process.pid)
        return out

    def end_all(self):
        with self.lock:
            for group in self.groups:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)

    def run(self, limit, argv, env=None, errors=subprocess.STDOUT):
        process = self.start(argv, env, errors)
        try:
            out, _ = process.communicate(timeout=max(limit.left(), 0.1))
        except subprocess.TimeoutExpired:
            raise OutOfTime(self.end(process)) from None
        self.end(process)
        return subprocess.CompletedProcess(argv, process.returncode, out)

    def brim(self, limit, *words, errors=subprocess.STDOUT):
        return self.run(limit, [self.build / "bin/brim", *words], errors=errors)

    def train(self, limit, name, *words, command="train"):
        """Trains in a folder of this name. A failure raises an error with brim's message."""
        folder = self.scratch / name
        result = self.brim(limit, "--quiet", command, f"run.dir={folder}", *words)
        if result.returncode != 0:
            raise RuntimeError(f"brim {command} {' '.join(words)}: exit status {result.returncode}\n"
                               f"{result.stdout[-2000:]}")
        return folder

    def hash(self, *more, without=()):
        """Returns the hash of the programs, except those in the given folders or files, and of more files."""
        digest = hashlib.sha256()
        for file in sorted([self.build / "bin/brim", self.build / "tests/test_conformance",
                            *self.build.glob("lib/**/*.so*"), *more]):
            if file.is_file() and not set(without) & set(file.parts):
                digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    def used_bytes(self):
        """Returns the device memory in use by all processes, as reported by NVML."""
        class Memory(ctypes.Structure):
            _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise Skipped(f"NVML cannot be loaded: {error}") from None
        handle, memory = ctypes.c_void_p(), Memory()
        for status in (nvml.nvmlInit_v2(),
                       nvml.nvmlDeviceGetHandleByUUID(self.gpu["uuid"].encode(), ctypes.byref(handle)),
                       nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))):
            if status != 0:
                raise Skipped(f"NVML does not answer: status {status}")
        return memory.used


def json_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def summary(run):
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def losses(run):
    return [record["loss"] for record in json_lines(run / "metrics.jsonl") if record["split"] == "train"]


def largest(fits, start):
    """Returns the largest number that fits, to 5 %; 0 if not even 1 fits. A good guess in `start` saves attempts."""
    low, high, at, step = 0, None, max(1, start), max(1, start // 16)
    while at and (high is None or high - low > max(1, low // 20)):
        if fits(at):
            low = at
        else:
            high = at
        if low and high:
            at = (low + high) // 2
        else:
            at = low + step if low else max(high - step, high // 2)
            step *= 2
    return low
