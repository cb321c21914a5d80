#!/usr/bin/env python3
"""Images a second of brim's loader and of PyTorch's DataLoader, from the same JPEG files with as many workers.

    scripts/bench/loader.py --brim build/bin/brim --python PYTHON [--workers 1 2] [FOLDER]

PYTHON needs torch and torchvision. FOLDER holds a folder of JPEG files for each class; without it one is made, with
500x375 pixels (needs Pillow in PYTHON). Two chains: parts (RandomResizedCrop, flip) and whole (Resize, CenterCrop),
both with ToTensor and Normalize. brim also trains a network with one linear layer, the smallest possible; PyTorch only
loads. The two take turns, the first turn is discarded, and medians are compared.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MAKE = """
import pathlib, sys, numpy
from PIL import Image, ImageFilter
draw = numpy.random.default_rng(1)
for i in range(int(sys.argv[2])):
    folder = pathlib.Path(sys.argv[1]) / f"class{i % 2}"
    folder.mkdir(parents=True, exist_ok=True)
    coarse = Image.fromarray(draw.integers(0, 256, (24, 32, 3)).astype("uint8")).resize((500, 375), Image.BICUBIC)
    fine = draw.normal(0, 6, (375, 500, 3))
    pixels = (numpy.asarray(coarse) + fine).clip(0, 255).astype("uint8")
    Image.fromarray(pixels).save(folder / f"{i:05}.jpg", quality=90)
"""


def torch_rate(options, folder, workers, chain):
    argv = [options.python, HERE / "torch_loader.py", folder, f"--workers={workers}", f"--epochs={options.epochs}",
            f"--chain={chain}"]
    result = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    return result["images_per_second"]


def brim_rate(options, folder, workers, chain):
    with tempfile.TemporaryDirectory(prefix="brim-bench-") as run:
        argv = [options.brim, "--quiet", "train", f"run.dir={run}/run", "dataset=image_folder",
                f"dataset.path={folder}", "model=mlp", "model.hidden=[]", "backend=cpu", "backend.threads=1",
                "optimizer=sgd", "optimizer.lr=1e-6",
                "training.batch_size=64", f"training.epochs={options.epochs + 1}", f"training.num_workers={workers}",
                "training.checkpoint_every_steps=1000000000", "memory.timing=false", "augment.flip=true",
                f"augment.random_resized_crop={str(chain == 'parts').lower()}", *options.overrides]
        subprocess.run(argv, check=True)
        return json.loads(pathlib.Path(run, "run/summary.json").read_text())["samples_per_second"]


def measure(options, folder):
    print(f"{'chain':8}{'workers':>8}{'brim':>10}{'PyTorch':>10}{'ratio':>8}   images/s, medians of {options.rounds}")
    for chain in "parts", "whole":
        for workers in options.workers:
            rates = {torch_rate: [], brim_rate: []}
            for turn in range(options.rounds + 1):
                for contender, found in rates.items():
                    rate = contender(options, folder, workers, chain)
                    if turn > 0:
                        found.append(rate)
            ours, theirs = statistics.median(rates[brim_rate]), statistics.median(rates[torch_rate])
            print(f"{chain:8}{workers:8}{ours:10.0f}{theirs:10.0f}{ours / theirs:8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brim", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=640, help="number of images to make")
    parser.add_argument("--overrides", nargs="*", default=[], help="overrides of brim's configuration")
    parser.add_argument("folder", nargs="?")
    options = parser.parse_args()
    if options.folder:
        measure(options, pathlib.Path(options.folder).resolve())
        return
    with tempfile.TemporaryDirectory(prefix="brim-bench-") as folder:
        subprocess.run([options.python, "-c", MAKE, folder, str(options.images)], check=True)
        measure(options, folder)


main()
