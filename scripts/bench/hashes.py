#!/usr/bin/env python3
"""Prints hashes of the final checkpoints of twenty configurations, to compare before and after a change that must not
change a bit. Those of backend=reference are the same on every machine; those of cpu on every machine with the same
instruction set.

    scripts/bench/hashes.py build/release/bin/brim > before.txt
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]
IMAGES = ["dataset=synthetic", "dataset.shape=[1,16,16]", "dataset.train_count=300", "dataset.test_count=60",
          "training.batch_size=24", "training.steps=30", "training.eval_every_steps=10"]
COLOUR = [word.replace("[1,16,16]", "[3,32,32]") for word in IMAGES]
TOKENS = ["model=gpt2", "model.context=32", "model.layers=2", "model.heads=2", "model.width=32", "dataset=text",
          "dataset.path=text.txt", "dataset.context=24", "training.batch_size=6", "training.steps=12",
          "training.eval_every_steps=6"]
TABLE = ["model=temperature_lstm", "dataset=csv", "dataset.path=table.csv", "dataset.targets=[y]", "dataset.sequence=6",
         "training.batch_size=16", "training.steps=20", "training.eval_every_steps=10"]
REFERENCE = ["backend=reference"]
RUNS = [
    ["model=mlp", *IMAGES],
    ["model=mlp", *IMAGES, *REFERENCE],
    ["model=cnn", *IMAGES],
    ["model=cnn", *IMAGES, *REFERENCE, "training.steps=6"],
    ["model=cnn", *IMAGES, "policy=fixed", "policy.fixed.micro_batch=6", "memory.recompute=full"],
    ["model=cnn", *IMAGES, "precision=bf16"],
    ["model=cnn", *IMAGES, "augment.flip=true", "augment.mixup=0.2", "training.num_workers=2"],
    ["model=mlp", *IMAGES, "optimizer=lion", "schedule=cosine"],
    ["model=mlp", *IMAGES, "optimizer=adafactor"],
    ["model=mlp", *IMAGES, "optimizer=adamw8bit"],
    ["model=mlp", *IMAGES, "optimizer=sgd", "optimizer.momentum=0.9", "optimizer.lr=0.05"],
    ["model=mlp", *IMAGES, "optimizer.update=fused_backward"],
    ["model=resnet18", *COLOUR, "training.steps=4"],
    ["model=vit_tiny", "model.patch=8", "model.width=32", "model.depth=2", "model.heads=2", *COLOUR,
     "training.steps=10"],
    ["model=lightcnn", *COLOUR, "training.steps=6"],
    [*TOKENS],
    [*TOKENS, *REFERENCE],
    [*TOKENS, "policy=fixed", "policy.fixed.micro_batch=2", "memory.recompute=full", "precision=bf16"],
    [*TABLE],
    ["model=cnn", *IMAGES, "policy+=elastic", "policy+=swarm", "training.checkpoint_every_steps=7"],
]


def make_data(folder):
    """Writes a text and a table, which are the same each time."""
    words = [hashlib.sha256(str(n).encode()).hexdigest()[:n % 7 + 1] for n in range(4000)]
    (folder / "text.txt").write_text(" ".join(words))
    rows = [f"{n % 24},{(n * 37 % 101) / 7:.4f},{(n * n % 89) / 5:.4f}" for n in range(400)]
    (folder / "table.csv").write_text("\n".join(["hour,x,y", *rows]) + "\n")


def checkpoint_hash(binary, folder, name, words):
    """Returns the hash of the files of the last checkpoint, or the run's message if there is no checkpoint."""
    result = subprocess.run([binary, "train", "--quiet", f"run.dir={name}", "memory.timing=false", "seed=3",
                             *words], cwd=folder, capture_output=True, text=True, check=False,
                            env={**os.environ, "BRIM_CLAIMS_DIR": f"{folder}/claims", "XDG_CACHE_HOME": str(folder)})
    last = folder / name / "checkpoints/last"
    if result.returncode != 0 or not last.exists():
        return f"status {result.returncode}: {result.stderr.strip().splitlines()[0]}"
    whole = hashlib.sha256()
    for file in FILES:
        whole.update((last / file).read_bytes())
    return whole.hexdigest()[:16]


def main():
    """Prints a line for each configuration."""
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        make_data(folder)
        for number, words in enumerate(RUNS):
            print(f"{checkpoint_hash(binary, folder, f'run{number}', words)}  {' '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
