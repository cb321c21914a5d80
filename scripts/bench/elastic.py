#!/usr/bin/env python3
"""A run of 2,000 steps with policy=elastic on a device that it fills, while other jobs that need half of it queue,
train and end. Measures how often memory is returned and taken back, and for each plan the resident memory of the
process with its arena and without it. The exit status is 1 unless the resident memory stays within 1 % for each plan
and the results equal those of the run alone.

    scripts/bench/elastic.py build/release/bin/brim [steps]
"""

import json
import mmap
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
SETTLES = 0.3  # seconds ignored after each change of plan and before the next
SMALL = ["dataset=synthetic", "dataset.shape=[1,20,20]", "backend.threads=1", "memory.timing=false", "model=cnn",
         "model.width=16", "dataset.test_count=0", "training.checkpoint_every_steps=1000000"]
RUN = [*SMALL, "dataset.train_count=4096", "training.batch_size=128", "training.num_workers=1"]
OTHER = [*SMALL, "dataset.train_count=1024", "training.batch_size=64", "training.steps=60", "wait_for_gpu=true",
         "gpu_check_interval_seconds=0.1"]
ELASTIC = ["policy=elastic", "policy.elastic.shrink_after_seconds=0", "policy.elastic.grow_after_seconds=1"]


def start(binary, folder, run, words):
    return subprocess.Popen([binary, "--quiet", "train", f"run.dir={folder / run}", *words], stderr=subprocess.DEVNULL,
                            env={**os.environ, "BRIM_CLAIMS_DIR": str(folder / "claims")})


def resident(pid):
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError):
        return 0


def watch(binary, folder, run, device):
    """Returns [(time, resident bytes)], while other jobs come and go."""
    seen, other, came, away = [], None, 0, time.time() + 2
    while run.poll() is None:
        seen.append((time.time(), resident(run.pid)))
        if other and other.poll() is not None:
            other, away = None, time.time() + 3
        if not other and time.time() > away:
            other, came = start(binary, folder, f"other{came}", [*OTHER, *device]), came + 1
        time.sleep(0.02)
    if other:
        other.kill()
        other.wait()
    return [(t, b) for t, b in seen if b > 0], came


def phases(folder, peaks):
    """Returns [(from, to, arena)] between the changes of plan. `peaks`: the plans' peaks by micro-batch."""
    events = [json.loads(line) for line in (folder / "run/events.jsonl").read_text().splitlines()]
    at, arena, out = events[0]["time"], max(peaks.values()), []
    for event in events:
        if event["event"] == "decision" and event.get("by") == "policy.elastic" and "plan" not in event["choice"]:
            out.append((at, event["time"], arena))
            at, arena = event["time"], peaks[int(re.search(r"-> (\d+)", event["reason"])[1])]
    return [*out, (at, events[-1]["time"], arena)]


def peak(binary, words):
    plan = subprocess.run([binary, "plan", "--json", *words], capture_output=True, text=True, check=True).stdout
    return json.loads(plan)["peak_bytes"]


def main():
    binary, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    words = [*RUN, f"training.steps={steps}"]
    peaks = {batch: peak(binary, [*words, f"training.batch_size={batch}",
                                  f"training.gradient_accumulation_steps={128 // batch}"])
             for batch in (128, 64, 32, 16)}
    device = ["backend.devices=1", f"backend.memory_mb={peaks[128] // MIB + 1}"]
    with tempfile.TemporaryDirectory(prefix="brim-elastic-") as name:
        folder = pathlib.Path(name)
        if start(binary, folder, "alone", words).wait() != 0:
            sys.exit("the run alone failed")
        seen, came = watch(binary, folder, start(binary, folder, "run", [*words, *device, *ELASTIC]), device)
        found = phases(folder, peaks)
        flat = True
        for arena in sorted({arena for _, _, arena in found}):
            levels = []
            for begin, end, its in found:
                inside = [b - arena for t, b in seen if its == arena and begin + SETTLES < t < end - SETTLES]
                if len(inside) >= 5:
                    levels.append((statistics.median(inside), max(inside)))
            if len(levels) < 2:
                sys.exit(f"an arena of {arena / MIB:.1f} MiB occurred only {len(levels)} times: run more steps")
            first, last, most = levels[0][0], levels[-1][0], max(top for _, top in levels)
            change = (most - first) / (first + arena)
            flat = flat and change <= 0.01
            print(f"arena {arena / MIB:5.1f} MiB, {len(levels):2d} times: resident besides it {first / MIB:.2f} MiB at "
                  f"first, {last / MIB:.2f} at last ({100 * (last / first - 1):+.2f} %), {most / MIB:.2f} at most; "
                  f"with it {100 * change:+.2f} % at most")
        same = all((folder / "alone/checkpoints/last" / f).read_bytes() ==
                   (folder / "run/checkpoints/last" / f).read_bytes()
                   for f in ("model.safetensors", "optimizer.safetensors", "state.json"))
        print(f"{steps} steps in {seen[-1][0] - seen[0][0]:.1f} s, others came {came} times, {len(found) - 1} changes "
              f"of plan; results are {'the same' if same else 'OTHERS'}")
        sys.exit(0 if flat and same and len(found) > 2 else 1)


if __name__ == "__main__":
    main()
