#!/usr/bin/env python3
"""Compares optimizers: gpt2_tiny on a text, with equal steps and with equal processor time.

    scripts/bench/optimizers_text.py TEXT [--steps 200] [--seeds 1,2,3] [--optimizers adamw,lion]
                                     [--brim build/release/bin/brim]

Each optimizer first trains with three learning rates and a separate seed; the rate with the lowest test loss is used
for the seeds. An optimizer whose step takes longer than adamw's trains again with proportionally fewer steps. Prints a
table: test loss in nats a byte (mean and standard deviation over seeds), and the time of a step relative to adamw's.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

OPTIMIZERS = {
    "adamw": ("optimizer.weight_decay=0.1", (3e-4, 1e-3, 3e-3)),
    "lion": ("optimizer.weight_decay=1", (1e-4, 3e-4, 1e-3)),
    "adan": ("optimizer.weight_decay=0.02", (1e-3, 3e-3, 1e-2)),
    "muon": ("optimizer.weight_decay=0.1 optimizer.adamw_lr=1e-3", (5e-3, 2e-2, 5e-2)),
    "schedulefree": ("optimizer.weight_decay=0.1 optimizer.warmup_steps={warmup} schedule=constant "
                     "schedule.warmup_fraction=0", (3e-4, 1e-3, 3e-3)),
}
TUNING_SEED = 100


class Bench:
    def __init__(self, arguments, folder):
        self.brim, self.text, self.folder, self.count = arguments.brim, arguments.text, pathlib.Path(folder), 0

    def train(self, name, lr, steps, seed):
        """Returns the test loss, and processor seconds a step."""
        self.count += 1
        run = self.folder / str(self.count)
        words = [self.brim, "--quiet", "train", "model=gpt2_tiny", "model.context=128", "dataset=text",
                 f"dataset.path={self.text}", "dataset.context=128", "training.batch_size=8", f"training.steps={steps}",
                 "schedule.warmup_fraction=0.1", "training.clip_norm=1", "backend.threads=1", f"seed={seed}",
                 f"optimizer={name}", f"optimizer.lr={lr}", *OPTIMIZERS[name][0].format(warmup=steps // 10).split(),
                 f"run.dir={run}"]
        before = os.times().children_user
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        seconds = os.times().children_user - before
        return json.loads((run / "summary.json").read_text())["test_loss"], seconds / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS), help="adamw first: times are relative to it")
    parser.add_argument("--brim", default="build/release/bin/brim")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    print("| optimizer | learning rate | test loss, equal steps | time of a step | test loss, equal time |\n"
          "|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench, reference = Bench(arguments, folder), None
        for name in arguments.optimizers.split(","):
            rates = OPTIMIZERS[name][1]
            lr = min(rates, key=lambda rate: bench.train(name, rate, arguments.steps, TUNING_SEED)[0])
            runs = [bench.train(name, lr, arguments.steps, seed) for seed in seeds]
            losses, seconds = [r[0] for r in runs], statistics.median(r[1] for r in runs)
            reference = reference or seconds
            steps = round(arguments.steps * reference / seconds)
            fair = losses
            if steps < 0.98 * arguments.steps:
                fair = [bench.train(name, lr, steps, seed)[0] for seed in seeds]
            cells = [f"{statistics.mean(x):.4f} ± {statistics.stdev(x):.4f}" for x in (losses, fair)]
            print(f"| {name} | {lr:g} | {cells[0]} | {seconds / reference:.2f} | {cells[1]} "
                  f"({min(steps, arguments.steps)} steps) |", flush=True)


if __name__ == "__main__":
    main()
