"""Monitors processes for limits.py: their resident memory, and the speed of their steps from the lines of JSON that
they write, one a step. Also caches results, so that an interrupted measurement continues."""

import hashlib
import json
import pathlib
import subprocess
import tempfile
import time

MIB = 1 << 20
POLL_SECONDS = 0.005
PATIENCE_SECONDS = 1800


class Watch:
    """A folder for one process."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="brim-limits-")
        return pathlib.Path(self.folder.name)

    def __exit__(self, *_):
        self.folder.cleanup()


class Cache:
    """A map in a JSON file. Each new value is written to the file at once."""

    def __init__(self, path, fresh):
        self.path = path
        self.known = json.loads(path.read_text()) if path.exists() and not fresh else {}

    def get(self, key, make, enough=lambda known: True):
        """Returns the cached value if it is sufficient, else computes it."""
        key = json.dumps(key)
        if key not in self.known or not enough(self.known[key]):
            self.known[key] = make()
            aside = self.path.with_suffix(".new")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(self.known, indent=1))
            aside.rename(self.path)
        return self.known[key]


def files_hash(paths):
    total = hashlib.sha256()
    for path in sorted(map(str, paths)):
        total.update(pathlib.Path(path).read_bytes())
    return total.hexdigest()[:12]


def run_json(argv, nothing=None):
    """Runs a program and parses its output as JSON; returns None if it exits with status `nothing`."""
    result = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode == nothing:
        return None
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}\n{result.stderr}")
    return json.loads(result.stdout)


def peak_bytes(process):
    """Returns the peak of resident memory, or 0 if the process has ended."""
    try:
        text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class Lines:
    """Reads the lines that a growing file has gained since the last call."""

    def __init__(self, path):
        self.path, self.file = path, None

    def new(self):
        if self.file is None and self.path.exists():
            self.file = self.path.open()
        lines = []
        while self.file:
            at = self.file.tell()
            line = self.file.readline()
            if not line.endswith("\n"):
                self.file.seek(at)
                break
            lines.append(line)
        return lines


def watch(argv, environment, records, batch, *, steps, seconds, limit=None, base=None, first_is_base=False):
    """Runs a program until it has done `steps` steps and has been timed for `seconds`, then ends it; or ends it at once
    when it exceeds its base by more than `limit` MiB, if a limit is given. The base is given, or in its first line."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(list(map(str, argv)), env=environment, stdout=errors, stderr=errors)
        try:
            return follow(process, Lines(records), batch, steps, seconds, limit, base, first_is_base)
        except EOFError:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(map(str, argv))}\n{errors.read().decode()}") from None
        finally:
            process.kill()
            process.wait()


def follow(process, lines, batch, steps, seconds, limit, base, first_is_base):
    peak, ends, began = 0, [], time.monotonic()
    while True:
        ended = process.poll() is not None
        if not first_is_base or base is not None:
            peak = max(peak, peak_bytes(process))
        for line in lines.new():
            if first_is_base and base is None:
                base = json.loads(line)["base"]
            else:
                ends.append(time.monotonic())
        growth = peak - base if peak and base is not None else 0
        timed = ends[-1] - ends[0] if len(ends) > 1 else 0
        over = limit is not None and growth > limit * MIB
        if over or (len(ends) >= steps and timed >= seconds):
            rate = batch * (len(ends) - 1) / timed if timed and not over else None
            return {"fits": not over, "growth": growth, "peak": peak, "samples_per_second": rate, "steps": len(ends)}
        if ended or time.monotonic() - began > PATIENCE_SECONDS:
            raise EOFError
        time.sleep(POLL_SECONDS)
