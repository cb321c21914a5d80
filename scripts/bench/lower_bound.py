#!/usr/bin/env python3
"""The distance of plans from their lower bounds, the most bytes live at one operation: the loss from placing buffers.

    scripts/bench/lower_bound.py [--binary build/release/bin/brim] [OVERRIDE...]

Plans every built-in model for micro-batches of 16, 64 and 256 samples, fp32 and bf16, and recompute none, blocks, and
auto with the least memory that it finds. Nothing is trained. Prints the plans that are furthest above."""

import argparse
import itertools
import json
import subprocess
import sys

IMAGES = ["dataset=synthetic", "dataset.shape=[1,28,28]"]
MODELS = {
    "cnn": IMAGES,
    "mlp": IMAGES,
    "fedavg_cnn": IMAGES,
    "lightcnn": ["dataset=synthetic", "dataset.shape=[3,32,32]"],
    "emotion_cnn": ["dataset=synthetic", "dataset.shape=[1,48,48]", "dataset.classes=7"],
    "temperature_lstm": ["dataset=synthetic", "dataset.shape=[1,64,1]", "dataset.classes=5"],
    "mental_state": ["dataset=synthetic", "dataset.shape=[1,6,64]", "dataset.classes=5"],
    "vit": [*IMAGES, "model.depth=12"],
}
RECOMPUTE = {"none": [], "blocks": [], "auto": ["memory.recompute_budget_mb=1"]}


def plan(binary, words):
    result = subprocess.run([binary, "plan", "--json", "--no-timing", *words], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"brim plan {' '.join(words)}\n{result.stderr}")
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/bin/brim")
    parser.add_argument("words", nargs="*", help="overrides for every plan")
    arguments = parser.parse_args()
    rows = []
    for model, batch, precision, kind in itertools.product(MODELS, (16, 64, 256), ("fp32", "bf16"), RECOMPUTE):
        made = plan(arguments.binary, [f"model={model}", *MODELS[model], "backend=cpu", f"training.batch_size={batch}",
                                       f"precision={precision}", f"memory.recompute={kind}", *RECOMPUTE[kind],
                                       *arguments.words])
        rows.append((made["peak_bytes"] / made["lower_bound_bytes"] - 1, f"{model} {batch} {precision} {kind}"))
    rows.sort(reverse=True)
    for above, name in rows[:10]:
        print(f"{100 * above:6.2f} %  {name}")
    print(f"{len(rows)} plans, {sum(above < 0.005 for above, _ in rows)} of them less than 0.5 % above")


if __name__ == "__main__":
    main()
