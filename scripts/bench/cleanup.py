#!/usr/bin/env python3
"""The cost and effect of cleaning up, and the memory that remains between the runs of a sweep: `cleanup.py [BRIM]`.

Times are from brim's own clock, printed with --verbose; bytes are measured from outside: the resident set from /proc,
and the page cache by mincore of the run's files. The system that brim replaces took 10-50 ms for a light cleanup,
100-300 ms for a heavy one, and 500-1000 ms between two methods."""

import ctypes
import mmap
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

BRIM = sys.argv[1] if len(sys.argv) > 1 else "brim"
MODEL = ["model=cnn", "dataset=synthetic", "dataset.shape=[1,28,28]", "dataset.train_count=8192",
         "dataset.test_count=256", "training.batch_size=128", "training.num_workers=2", "memory.timing=false"]
LIMITS = {"light": 1, "heavy": 20, "between runs": 50}
BEFORE = {"light": "10-50", "heavy": "100-300", "between runs": "500-1000"}
libc = ctypes.CDLL(None, use_errno=True)
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def cached(folder):
    """Returns the bytes of the folder's files in the page cache."""
    total = 0
    for path in folder.rglob("*.safetensors"):
        if path.is_symlink() or any(parent.is_symlink() for parent in path.parents):
            continue
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE,
                                                 prot=mmap.PROT_READ | mmap.PROT_WRITE) as area:
            pages = ctypes.create_string_buffer(-(-len(area) // mmap.PAGESIZE))
            at = ctypes.addressof(ctypes.c_char.from_buffer(area))
            if libc.mincore(at, len(area), pages) == 0:
                total += sum(page & 1 for page in pages.raw) * mmap.PAGESIZE
    return total


def show(what, milliseconds, freed):
    if not milliseconds:
        sys.exit(f"{what}: nothing was measured")
    median = statistics.median(milliseconds)
    print(f"{what:13} median {median:7.3f} ms, at most {max(milliseconds):7.3f} ms of {len(milliseconds):3}; "
          f"limit {LIMITS[what]} ms, replaced system {BEFORE[what]} ms{freed}", flush=True)
    return median <= LIMITS[what]


def clean_up(folder, kind):
    """Makes a run that cleans up in every round."""
    rounds = "policy.periodic.light_every_n_rounds=1 policy.periodic.heavy_every_n_rounds=0" if kind == "light" else \
             "policy.periodic.light_every_n_rounds=0 policy.periodic.heavy_every_n_rounds=1"
    run = folder / kind
    process = subprocess.Popen([BRIM, "--verbose", "train", f"run.dir={run}", *MODEL, "policy=[auto_plan,periodic]",
                                *rounds.split(), "training.steps=60", "training.eval_every_steps=2",
                                "training.checkpoint_every_steps=4"],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    times, before, after, held, kept = [], [], [], [], []
    for line in process.stderr:
        took = re.search(rf"{kind} cleanup took ([\d.]+) ms: (\d+) bytes allocated before, (\d+) after", line)
        if took:
            times.append(float(took[1]))
            before.append(int(took[2]))
            after.append(int(took[3]))
            held.append(resident(process.pid))
            kept.append(cached(run))
    if process.wait() != 0:
        sys.exit(f"brim ended with exit status {process.returncode}")
    freed = [a - b for a, b in zip(before, after)]
    text = f"; freed {statistics.median(freed) / 2**20:.2f} MiB of {statistics.median(before) / 2**20:.1f} MiB in " \
           f"the median, {max(freed) / 2**20:.2f} at most; seen from outside right after: " \
           f"{statistics.median(held) / 2**20:.1f} MiB"
    text += f", and {statistics.median(kept) / 2**20:.2f} MiB of its checkpoints in the page cache"
    return show(kind, times, text)


def sweep(folder):
    """Measures the time from a job's last line, before it frees anything, to the start of the next job's process."""
    jobs = 12
    process = subprocess.Popen([BRIM, "train", "-m", f"run.dir={folder / 'sweep'}", *MODEL, "training.steps=4",
                                f"seed={','.join(map(str, range(jobs)))}", "backend.memory_mb=1024"],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                               env={**os.environ, "BRIM_CLAIMS_DIR": str(folder / "claims")})
    ended, gaps, sizes = None, [], []
    for line in process.stderr:
        now = time.monotonic()
        if line.startswith("results in") and "jobs" not in line:
            ended = now
        elif re.match(r"\[\d+/\d+\] job", line):
            sizes.append(resident(process.pid))
            if ended:
                gaps.append(1e3 * (now - ended))
    if process.wait() != 0:
        sys.exit(f"the sweep ended with exit status {process.returncode}")
    grown = (sizes[-1] - sizes[1]) / sizes[1]
    device = subprocess.run([BRIM, "devices", "--json", "backend=cpu", "backend.memory_mb=1024"], text=True, check=True,
                            stdout=subprocess.PIPE,
                            env={**os.environ, "BRIM_CLAIMS_DIR": str(folder / "claims")}).stdout
    left = re.search(r'"users":\s*\[\s*\]', device) is not None
    text = f"; the sweep's process grew by {100 * grown:.2f} % over {jobs} jobs; the device is " + \
           ("empty afterwards" if left else "NOT EMPTY afterwards")
    return show("between runs", gaps, text) and left and grown < 0.01


def main():
    with tempfile.TemporaryDirectory(prefix="brim-cleanup-") as name:
        folder = pathlib.Path(name)
        good = [clean_up(folder, "light"), clean_up(folder, "heavy"), sweep(folder)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
