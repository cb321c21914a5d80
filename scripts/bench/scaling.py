#!/usr/bin/env python3
"""The benefit of more ranks on this machine's processors: `cnn` trained by one rank and by several, each rank with the
same number of threads, in turn; and by as many independent jobs at the same time, each with one rank's share of the
batch and processors, which shows the machine's limit. Samples per second are of all ranks or jobs together; the
medians of the rounds are compared. Then, for each dist.shard, the planned memory of every rank and its device memory
in the run.

    scripts/bench/scaling.py build/release/bin/brim                   one rank with 1 thread, two with 1 thread each
    scripts/bench/scaling.py build/release/bin/brim --ranks 1 2 4 --threads 2 --rounds 7
    scripts/bench/scaling.py build/release/bin/brim --launcher "mpirun -n {ranks} --bind-to core"
    scripts/bench/scaling.py build/release/bin/brim -- model=vit      overrides, after those below

Samples are decoded by the thread that trains (--workers 0), so that a rank uses only its own processor.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

CNN = ["model=cnn", "dataset=synthetic", "dataset.shape=[1,28,28]", "dataset.train_count=16384", "dataset.test_count=0",
       "training.batch_size=128", "backend=cpu", "memory.timing=false", "training.checkpoint_every_steps=1000000"]
SHARDS = ("none", "optimizer", "gradients")
MIB = 1 << 20


def brim(o, folder, *words, launcher=()):
    """Runs brim and returns its standard output."""
    environment = {**os.environ, "BRIM_CLAIMS_DIR": f"{folder}/claims", "XDG_CACHE_HOME": f"{folder}/cache"}
    if os.geteuid() == 0:  # mpirun requires both variables
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    result = subprocess.run([*launcher, o.brim, *words], env=environment, cwd=folder, capture_output=True,
                            text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"$ brim {' '.join(words)}\nexit status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def train(o, folder, name, ranks, *words, launcher=()):
    """Trains and returns the run's folder."""
    launcher = launcher or (o.launcher.replace("{ranks}", str(ranks)).split() if ranks > 1 else [])
    brim(o, folder, "train", "--quiet", *CNN, f"training.steps={o.steps}", f"backend.threads={o.threads}",
         f"training.num_workers={o.workers}", *o.overrides, f"dist.ranks={ranks}", f"run.dir={name}", *words,
         launcher=launcher)
    run = pathlib.Path(folder, name)
    had = json.loads((run / "plan.json").read_text()).get("ranks", 1)
    if had != ranks:
        sys.exit(f"dist.ranks={ranks}, but the run had {had}")
    return run


def speed(run):
    return json.loads((run / "summary.json").read_text())["samples_per_second"]


def train_apart(o, folder, name, jobs):
    """Trains separate jobs at the same time, and returns the samples per second of all together."""
    processors = sorted(os.sched_getaffinity(0))
    share = len(processors) // jobs
    batch = next(int(word.split("=")[1]) for word in reversed(CNN + o.overrides)
                 if word.startswith("training.batch_size="))
    def one(job):
        own = processors[job * share:(job + 1) * share] or processors
        return speed(train(o, folder, f"{name}-{job}", 1, f"training.batch_size={batch // jobs}",
                           launcher=("taskset", "-c", ",".join(map(str, own)))))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return sum(pool.map(one, range(jobs)))


def measure_speed(o, folder):
    """Measures the speed for each number of ranks, and for the same number of separate jobs."""
    kinds = [(ranks, "ranks") for ranks in o.ranks] + [(ranks, "jobs apart") for ranks in o.ranks if ranks > 1]
    rates = {kind: [] for kind in kinds}
    for turn in range(-1, o.rounds):  # the first one warms up
        for count, kind in kinds if turn % 2 == 0 else reversed(kinds):
            name = f"speed-{turn}-{count}"
            rate = speed(train(o, folder, name, count)) if kind == "ranks" else train_apart(o, folder, name, count)
            if turn >= 0:
                rates[count, kind].append(rate)
    print("| ranks or jobs | threads each | samples/s, median | lowest | highest | speedup over one rank |")
    print("|---:|---:|---:|---:|---:|---:|")
    base = statistics.median(rates[kinds[0]]) / o.ranks[0]
    for (count, kind), all_rates in rates.items():
        median = statistics.median(all_rates)
        print(f"| {count} {kind} | {o.threads} | {median:.0f} | {min(all_rates):.0f} | {max(all_rates):.0f} | "
              f"{median / base:.3f} |")


def placed(run):
    """Returns the device memory of each rank, from its last event."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return {event["rank"]: event["device_bytes"] for event in events if event["event"] == "rank"}


def planned(o, folder, ranks, *words):
    plan = json.loads(brim(o, folder, "plan", "--json", "--no-timing", *CNN, f"backend.threads={o.threads}",
                           *o.overrides, f"dist.ranks={ranks}", *words))
    return {rank: group["peak_bytes"] for group in plan["ranks"] for rank in group["ranks"]}


def measure_memory(o, folder):
    ranks = max(o.ranks)
    print("\n| `dist.shard` | rank | planned, MiB | placed, MiB | placed - planned, bytes |")
    print("|---|---:|---:|---:|---:|")
    for shard in SHARDS:
        plan = planned(o, folder, ranks, f"dist.shard={shard}")
        run = train(o, folder, f"memory-{shard}", ranks, f"dist.shard={shard}", "training.steps=4",
                    "observe.log_every_steps=2")
        for rank, had in sorted(placed(run).items()):
            print(f"| {shard} | {rank} | {plan[rank] / MIB:.2f} | {had / MIB:.2f} | {had - plan[rank]} |")


def main():
    p = argparse.ArgumentParser(description="One rank beside several, on the processors of this machine.")
    p.add_argument("brim")
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    p.add_argument("--threads", type=int, default=1, help="threads of each rank")
    p.add_argument("--workers", type=int, default=0, help="training.num_workers")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--launcher", default="", help="command that starts the ranks instead of brim: 'mpirun -n {ranks}'")
    p.add_argument("--only", choices=("speed", "memory"))
    p.add_argument("overrides", nargs="*")
    o = p.parse_intermixed_args()  # overrides may follow options
    o.brim = str(pathlib.Path(o.brim).resolve())
    with tempfile.TemporaryDirectory(prefix="brim-scaling-") as folder:
        if o.only != "memory":
            measure_speed(o, folder)
        if o.only != "speed":
            measure_memory(o, folder)


if __name__ == "__main__":
    main()
