#!/usr/bin/env python3
"""The resident set of a run of 2,000 steps, measured from outside, while another run on the same share of the host
comes and goes: `neighbour.py [BRIM [STEPS]]`. The steps are divided into 20 equal periods; their medians must lie
within 1 % of each other, and the results must equal those of a run alone. Times before the tenth step and after the
last one are ignored: the machine's load decides how long the start takes, and the disk how long evaluation and
checkpoint take; these two have their own samples and a copy of the parameters."""

import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BRIM = sys.argv[1] if len(sys.argv) > 1 else "brim"
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
MIB = 1 << 20
RUN = ["model=cnn", "model.width=16", "dataset=synthetic", "dataset.shape=[1,20,20]", "dataset.train_count=4096",
       "dataset.test_count=256", "training.batch_size=128", "training.grain=32", "training.num_workers=1",
       "memory.timing=false", f"training.steps={STEPS}", "training.checkpoint_every_steps=1000000",
       "training.eval_every_steps=1000000", "observe.log_every_steps=10", "backend.threads=1"]
NEIGHBOUR = ["model=mlp", "model.hidden=[40000]", "dataset=synthetic", "dataset.shape=[1,8,8]",
             "dataset.train_count=64", "dataset.test_count=0", "training.batch_size=1", "training.grain=1",
             "optimizer=sgd", "training.steps=30", "training.checkpoint_every_steps=1000000", "backend.threads=1",
             "memory.timing=false"]


def resident(pid):
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError):
        return 0


def start(folder, run, words, **streams):
    return subprocess.Popen([BRIM, "--quiet", "train", f"run.dir={folder / run}", *words], stderr=subprocess.DEVNULL,
                            env={**os.environ, "BRIM_CLAIMS_DIR": str(folder / "claims")}, **streams)


def watch(folder, share):
    """Returns (seconds, resident bytes) of the run's steps, and how many times the neighbour came."""
    run, neighbour, came, away = start(folder, "run", [*RUN, share]), None, 0, float("inf")
    begin, seen, records = time.monotonic(), [], folder / "run/metrics.jsonl"
    while run.poll() is None:
        bytes_now = resident(run.pid)
        written = records.read_text(encoding="utf-8").replace(" ", "") if records.exists() else ""
        if '"step":10,' not in written:
            begin = time.monotonic()
        elif f'"step":{STEPS},' not in written:
            seen.append((time.monotonic() - begin, bytes_now))
        if neighbour is None or (neighbour.poll() is not None and time.monotonic() > away):
            neighbour, came = start(folder, f"neighbour{came}", [*NEIGHBOUR, share]), came + 1
            away = float("inf")
        elif neighbour.poll() is not None and away == float("inf"):
            away = time.monotonic() + 0.3
        time.sleep(0.01)
    if run.returncode != 0:
        sys.exit(f"the run ended with exit status {run.returncode}")
    if neighbour.poll() is None:
        neighbour.kill()
    neighbour.wait()
    return [(t, b) for t, b in seen if b > 0], came


def main():
    with tempfile.TemporaryDirectory(prefix="brim-neighbour-") as name:
        folder = pathlib.Path(name)
        share = "backend.memory_mb=128"
        if start(folder, "alone", [*RUN, share]).wait() != 0:
            sys.exit("the run alone failed")
        seen, came = watch(folder, share)
        end = seen[-1][0]
        parts = [[b for t, b in seen if k / 20 <= t / end < (k + 1) / 20] for k in range(20)]
        medians = [statistics.median(part) for part in parts if part]
        spread = max(medians) / min(medians) - 1
        same = all((folder / "alone/checkpoints/last" / f).read_bytes() ==
                   (folder / "run/checkpoints/last" / f).read_bytes()
                   for f in ("model.safetensors", "optimizer.safetensors", "state.json"))
        print(f"{STEPS} steps in {end:.1f} s, a neighbour came {came} times; resident, in {len(seen)} samples: medians "
              f"of a 20th each from {min(medians) / MIB:.2f} to {max(medians) / MIB:.2f} MiB, {100 * spread:.3f} % "
              f"apart; at most {max(b for _, b in seen) / MIB:.2f} MiB; results are {'the same' if same else 'OTHERS'}")
        sys.exit(0 if same and came > 1 and spread < 0.01 else 1)


if __name__ == "__main__":
    main()
