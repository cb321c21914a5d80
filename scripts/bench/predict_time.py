#!/usr/bin/env python3
"""Compares predicted with measured step times: the quality of the cost model of `brim plan`.

    scripts/bench/predict_time.py [--binary build/release/bin/brim] [--rounds 3] [--seconds 3] [--least]
                                  [--only WORD] [OVERRIDE...]

For each of 20 configurations (models, micro-batches, recompute, precision) it takes the predicted seconds of a step
from `brim plan --json`, and the measured ones from the metrics.jsonl of a short training: prediction and measurement
in turn, for the given number of rounds. Each round predicts with an empty profile. The result is the median over the
rounds of the median over a round's steps; with --least, for machines with other load, the least of each. Prints a table
and the worst ratio; it asserts nothing."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

IMAGES = ["dataset=synthetic", "dataset.shape=[1,28,28]", "dataset.train_count=4096", "dataset.test_count=16"]
FACES = ["dataset=synthetic", "dataset.shape=[1,48,48]", "dataset.classes=7", "dataset.train_count=2048",
         "dataset.test_count=16"]
SERIES = ["dataset=synthetic", "dataset.shape=[1,64,1]", "dataset.classes=5", "dataset.train_count=2048",
          "dataset.test_count=16"]
MIND = ["dataset=synthetic", "dataset.shape=[1,6,64]", "dataset.classes=5", "dataset.train_count=2048",
        "dataset.test_count=16"]


def cut(micro, effective):
    return [f"training.batch_size={micro}", f"training.gradient_accumulation_steps={effective // micro}"]


# name, words
CONFIGURATIONS = [
    ("cnn 64", ["model=cnn", *IMAGES, *cut(64, 64)]),
    ("cnn 16x4", ["model=cnn", *IMAGES, *cut(16, 64)]),
    ("cnn 128 bf16", ["model=cnn", *IMAGES, *cut(128, 128), "precision=bf16"]),
    ("cnn 64 blocks", ["model=cnn", *IMAGES, *cut(64, 64), "memory.recompute=blocks"]),
    ("cnn 64 auto 40 MiB", ["model=cnn", *IMAGES, *cut(64, 64), "memory.recompute=auto", "memory.limit_mb=40"]),
    ("mlp 128", ["model=mlp", *IMAGES, *cut(128, 128)]),
    ("mlp 32x8", ["model=mlp", *IMAGES, *cut(32, 256)]),
    ("mlp 64 bf16", ["model=mlp", *IMAGES, *cut(64, 64), "precision=bf16"]),
    ("fedavg_cnn 32", ["model=fedavg_cnn", *IMAGES, *cut(32, 32)]),
    ("fedavg_cnn 64 bf16", ["model=fedavg_cnn", *IMAGES, *cut(64, 64), "precision=bf16"]),
    ("fedavg_cnn 32x2 blocks", ["model=fedavg_cnn", *IMAGES, *cut(32, 64), "memory.recompute=blocks"]),
    ("lightcnn 64", ["model=lightcnn", *IMAGES, *cut(64, 64)]),
    ("lightcnn 32x2 blocks", ["model=lightcnn", *IMAGES, *cut(32, 64), "memory.recompute=blocks"]),
    ("lightcnn 128 bf16", ["model=lightcnn", *IMAGES, *cut(128, 128), "precision=bf16"]),
    ("emotion_cnn 32", ["model=emotion_cnn", *FACES, *cut(32, 32)]),
    ("emotion_cnn 16x2 full", ["model=emotion_cnn", *FACES, *cut(16, 32), "memory.recompute=full"]),
    ("temperature_lstm 64", ["model=temperature_lstm", *SERIES, *cut(64, 64)]),
    ("temperature_lstm 16x4", ["model=temperature_lstm", *SERIES, *cut(16, 64)]),
    ("mental_state 32", ["model=mental_state", *MIND, *cut(32, 32)]),
    ("mental_state 64 bf16", ["model=mental_state", *MIND, *cut(64, 64), "precision=bf16"]),
]


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"),
                            "BRIM_CLAIMS_DIR": str(folder / "claims")}

    def brim(self, *words):
        result = subprocess.run([self.arguments.binary, *words], env=self.environment, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"brim {' '.join(words)}\n{result.stderr}")
        return result.stdout

    def predict(self, words):
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        return json.loads(self.brim("plan", *words, "--json"))["step_seconds"]

    def measure(self, words, predicted):
        steps = max(12, min(400, int(self.arguments.seconds / predicted)))
        effective = 1
        for word in words:
            if word.startswith(("training.batch_size=", "training.gradient_accumulation_steps=")):
                effective *= int(word.split("=")[1])
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        self.brim("train", *words, f"training.steps={steps}", "observe.log_every_steps=1", f"run.dir={run}")
        rates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        seconds = [effective / r["samples_per_second"] for r in rates if r["split"] == "train"][5:]
        return min(seconds) if self.arguments.least else statistics.median(seconds)

    def compare(self, words):
        predicted, measured = [], []
        for _ in range(self.arguments.rounds):
            predicted.append(self.predict(words))
            measured.append(self.measure(words, predicted[-1]))
        of = min if self.arguments.least else statistics.median
        return of(predicted), of(measured)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/bin/brim")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="seconds of training in a round")
    parser.add_argument("--least", action="store_true")
    parser.add_argument("--only", default="", help="configurations with this word in their name")
    parser.add_argument("words", nargs="*", help="overrides for every configuration")
    arguments = parser.parse_args()
    arguments.binary = str(pathlib.Path(arguments.binary).resolve())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="brim-predict-"))
    worst = (1, "none")
    print(f"{'configuration':<24} {'predicted ms':>12} {'measured ms':>12} {'ratio':>6}", flush=True)
    try:
        for name, words in CONFIGURATIONS:
            if arguments.only not in name:
                continue
            predicted, measured = Bench(arguments, folder).compare([*words, *arguments.words])
            ratio = predicted / measured
            print(f"{name:<24} {1e3 * predicted:12.3f} {1e3 * measured:12.3f} {ratio:6.2f}", flush=True)
            worst = max(worst, (max(ratio, 1 / ratio), name))
    finally:
        shutil.rmtree(folder)
    print(f"worst: {100 * (worst[0] - 1):.0f} % apart ({worst[1]})")


if __name__ == "__main__":
    main()
