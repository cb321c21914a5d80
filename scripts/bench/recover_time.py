#!/usr/bin/env python3
"""The time from a failure for lack of memory to the start of the repeated step, for each rung of the ladder: the
convolutional network on the CPU, with injected failures of its steps (docs/faults.md). Prints a line for each rung,
with the ratio to the allowed time.

    scripts/bench/recover_time.py build/release/bin/brim [steps]
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MAY_TAKE_MS = 50
STEPS = 40
CNN = ["model=cnn", "dataset=synthetic", "dataset.shape=[1,28,28]", "dataset.train_count=4096", "dataset.test_count=0",
       "training.batch_size=128", "training.checkpoint_every_steps=1000", "memory.timing=false"]


def run(binary, folder, name, steps, faults):
    """Makes a run and returns its events."""
    subprocess.run([binary, "train", "--quiet", f"run.dir={folder}/{name}", f"training.steps={steps}", *CNN],
                   env={**os.environ, "BRIM_FAULT": faults, "BRIM_CLAIMS_DIR": f"{folder}/claims"}, check=False,
                   stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in pathlib.Path(folder, name, "events.jsonl").read_text().splitlines()]


def times(events):
    """Returns [(the ladder's measure, milliseconds)]."""
    out, choice = [], None
    for event in events:
        if event["event"] == "decision" and event["by"] == "recovery":
            choice = event["choice"]
        if event["event"] == "recovered":
            out.append((choice.split(",")[0].split(":")[0], 1e3 * event["recovered_seconds"]))
    return out


def main():
    binary, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    every_step = ",".join(f"step:{step}" for step in range(2, 34))  # at most 32 faults are allowed
    a_ladder = ",".join(f"step:5:begin:{n}" for n in range(1, 8))
    with tempfile.TemporaryDirectory(prefix="brim-recover-") as folder:
        all_times = times(run(binary, folder, "steps", steps, every_step))
        for attempt in range(5):
            all_times += times(run(binary, folder, f"ladder{attempt}", 6, a_ladder))
    print(f"{'from failure to the repeated step':40} {'times':>6} {'median ms':>10} {'max ms':>10} {'of 50 ms':>9}")
    rungs = list(dict.fromkeys(name for name, _ in all_times))
    for name in [None, *rungs]:
        ms = [t for n, t in all_times if name in (None, n)]
        median = statistics.median(ms)
        print(f"{name or 'all':40} {len(ms):6} {median:10.3f} {max(ms):10.3f} {median / MAY_TAKE_MS:9.4f}")


if __name__ == "__main__":
    main()
