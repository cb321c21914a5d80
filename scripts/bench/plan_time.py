#!/usr/bin/env python3
"""Times `brim plan`, from the process's start to its end: for the random configurations of tests/cli/test_exact.py, and
for the command lines of the systems that brim replaces. Prints a line for each, with the ratio to the allowed time.

    scripts/bench/plan_time.py build/release/bin/brim [runs]
"""

import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "cli"))
from configurations import configurations  # pylint: disable=wrong-import-position

MAY_TAKE_MS = 50
RUNS = 7
FASHION = os.environ.get("BRIM_FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
DONE, NO_FIT = 0, 4  # a plan that does not fit is a valid answer

ROBUST = ["--config-name", "robust"]
FACES = ["dataset=synthetic", "dataset.shape=[1,48,48]", "dataset.classes=7"]
SIGNALS = ["dataset=synthetic", "dataset.shape=[1,8,128]", "augment.flip=false"]
SEQUENCES = ["dataset=synthetic", "dataset.shape=[1,64,8]", "augment.flip=false"]
COMMANDS = [
    [],
    [*ROBUST, "min_gpu_memory_mb=0"],
    [*ROBUST, "training.batch_size=16", "training.gradient_accumulation_steps=8", "training.num_workers=0"],
    [*ROBUST, "wait_for_gpu=true", "max_retries=5", "min_batch_size=8", "min_gpu_memory_mb=2000"],
    [*ROBUST, "device=cpu"],
    [*ROBUST, "model=lora", "dataset=flowers102", "model.lora_r=4"],
    [*ROBUST, "model=linear_probe", "dataset=cub200"],
    ["training.gradient_checkpointing=true", "training.gradient_accumulation_steps=4"],
    ["training.auto_batch_size=true"],
    ["policy=swarm", "training.gradient_accumulation_steps=4"],
    ["policy=swarm", "training.clear_cache_every_n_rounds=10", "training.num_train_samples=1000"],
    ["model=emotion_cnn", *FACES, "optimizer=adam", "optimizer.lr=1e-4", "training.batch_size=16",
     "training.epochs=20"],
    ["model=mental_state", *SIGNALS, "optimizer=adamw", "training.batch_size=16"],
    ["model=temperature_lstm", *SEQUENCES, "loss=mse"],
    ["model=temperature_lstm", *SEQUENCES, "loss=mae"],
    ["model=cnn"],
    ["model=fedavg_cnn"],
    ["model=lightcnn"],
    ["model=resnet18", "dataset=cifar10"],
    ["memory.limit_mb=16"],  # this plan includes the search for a size that fits
    [*ROBUST, "memory.limit_mb=16"],
]


def time_plan(brim, words, runs):
    """Returns the shortest time in ms, or None and the reason if this build cannot make the plan."""
    least = None
    for _ in range(runs):
        start = time.perf_counter()
        result = subprocess.run([brim, "--quiet", "plan", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True, check=False)
        took = 1e3 * (time.perf_counter() - start)
        if result.returncode not in (DONE, NO_FIT):
            return None, result.stderr.splitlines()[0]
        least = took if least is None else min(least, took)
    return least, ""


def measure(brim, title, lists, runs):
    slowest = 0
    print(f"{title}\n{'ms':>8} {'ratio':>6}")
    for words in lists:
        took, reason = time_plan(brim, words, runs)
        what = " ".join(words) or "(default configuration)"
        if took is None:
            print(f"{'-':>8} {'-':>6}  {what}\n{'':16} {reason}")
            continue
        slowest = max(slowest, took)
        print(f"{took:8.1f} {took / MAY_TAKE_MS:6.2f}  {what}")
    print(f"{slowest:8.1f} {slowest / MAY_TAKE_MS:6.2f}  is the slowest\n")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    brim, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else RUNS
    print(f"brim plan, process start to end, the shortest of {runs} runs; ratio to {MAY_TAKE_MS} ms\n")
    measure(brim, "random configurations", configurations(FASHION), runs)
    measure(brim, "command lines", COMMANDS, runs)


if __name__ == "__main__":
    main()
