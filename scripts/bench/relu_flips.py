#!/usr/bin/env python3
"""Explains why gradients of resnet18 in fp32 sometimes differ from those in double precision: some relus flip at 0.

    BRIM_BINARY=build/release/bin/brim scripts/bench/relu_flips.py [--side 16] [--width 64] SEED ...    # needs torch

For each seed, runs one step of 16 synthetic images on the cpu backend and in PyTorch in fp32, and in PyTorch in double
precision with the same weights, and prints the greatest relative error of a parameter's gradient. If it is large, the
relus whose inputs are nearest to 0 are flipped in double precision, one after another; those that bring the gradients
to the run's are printed, with the remaining error. If rounding is the cause, a few are enough.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import make_tasks  # noqa: E402  pylint: disable=wrong-import-position

SAMPLES, CLASSES, CELL = 16, 10, 4  # one norm group; classes and uniform squares of the synthetic dataset
LARGE, SMALL, NEAR, TRIED = 5e-5, 2e-5, 3e-6, 25  # errors; inputs of relus in the layer's deviations; attempts


def read(path):
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    kinds = {"F64": torch.float64, "F32": torch.float32}
    return {name: torch.frombuffer(bytearray(raw[start + t["data_offsets"][0]:start + t["data_offsets"][1]]),
                                   dtype=kinds[t["dtype"]]).reshape(t["shape"]).double()
            for name, t in json.loads(raw[8:start]).items() if name != "__metadata__"}


def run(width, side, seed):
    """Returns weights and their gradients; after a step with learning rate 0 SGD's momentum is the gradient."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.environ["BRIM_BINARY"], "train", f"run.dir={folder}/run", "backend=cpu", "model=resnet18",
                        f"model.width={width}", f"seed={seed}", "dataset=synthetic", f"dataset.shape=[3,{side},{side}]",
                        f"dataset.classes={CLASSES}", f"dataset.train_count={SAMPLES}", "dataset.test_count=2",
                        "augment=none", "augment.flip=false", "optimizer=sgd", "optimizer.momentum=0.9",
                        "optimizer.weight_decay=0", "optimizer.lr=0", f"training.batch_size={SAMPLES}",
                        f"training.effective_batch_size={SAMPLES}", "training.steps=1", "memory.timing=false"],
                       check=True, capture_output=True)
        checkpoint = pathlib.Path(folder, "run/checkpoints/last")
        weights, momentum = read(checkpoint / "model.safetensors"), read(checkpoint / "optimizer.safetensors")
    return weights, {name.removesuffix(".momentum_buffer"): value for name, value in momentum.items()}


def images(side):
    """Returns the images of the synthetic dataset with seed 1."""
    cells, all_images = (side + CELL - 1) // CELL, []
    for i in range(SAMPLES):
        pattern, noise = make_tasks.numbers(make_tasks.PATTERN, i % CLASSES), make_tasks.numbers(make_tasks.TRAIN, i)
        values = torch.tensor([2 * make_tasks.uniform(next(pattern)) - 1 for _ in range(3 * cells * cells)]).float()
        values = values.reshape(3, cells, cells).repeat_interleave(CELL, 1).repeat_interleave(CELL, 2)[:, :side, :side]
        more = torch.stack([make_tasks.noise(next(noise)).float() for _ in range(3 * side * side)])
        all_images.append((values + more.reshape(3, side, side)).double())
    return torch.stack(all_images), torch.arange(SAMPLES) % CLASSES


class Network:
    """torchvision's resnet18 with a stem for small images. `masks`: the inputs that pass a relu; None: those above
    0."""

    def __init__(self, weights, dtype, masks=None):
        self.weights = {name: value.to(dtype).clone() for name, value in weights.items()}
        self.masks, self.inputs = masks, []

    def conv(self, x, name, stride=1):
        weight = self.weights[f"{name}.weight"]
        return F.conv2d(x, weight, None, stride, weight.shape[-1] // 2)

    def norm(self, x, name):
        return F.batch_norm(x, None, None, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], True)

    def relu(self, x):
        self.inputs.append(x.detach())
        return x * self.masks[len(self.inputs) - 1] if self.masks else x.relu()

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x, "conv1"), "bn1"))
        for layer in range(1, 5):
            for block in range(2):
                name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
                y = self.relu(self.norm(self.conv(x, f"{name}.conv1", stride), f"{name}.bn1"))
                y = self.norm(self.conv(y, f"{name}.conv2"), f"{name}.bn2")
                if f"{name}.downsample.0.weight" in self.weights:
                    x = self.norm(self.conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
                x = self.relu(y + x)
        return F.linear(x.mean((2, 3)), self.weights["fc.weight"], self.weights["fc.bias"])


def gradients(weights, x, label, dtype, masks=None):
    network = Network(weights, dtype, masks)
    trained = {name: value.requires_grad_() for name, value in network.weights.items() if "running_" not in name}
    F.cross_entropy(network.forward(x.to(dtype)), label).backward()
    return {name: value.grad.double() for name, value in trained.items()}, network.inputs


def error(found, exact):
    return max(((found[name] - value).norm() / value.norm()).item() for name, value in exact.items())


def find_flips(found, weights, x, label, inputs):
    """Prints relus that explain the difference."""
    candidates = []
    for layer, t in enumerate(inputs):
        near, place = (t.flatten().abs() / t.std()).topk(12, largest=False)
        candidates += zip(near.tolist(), [layer] * len(near), place.tolist())
    masks = [(t > 0).double() for t in inputs]
    best = error(found, gradients(weights, x, label, torch.float64, masks)[0])
    for near, layer, place in sorted(candidates)[:TRIED]:
        if best < SMALL or near > NEAR:
            return
        mask = masks[layer].view(-1)
        mask[place] = 1 - mask[place]
        left = error(found, gradients(weights, x, label, torch.float64, masks)[0])
        if left < 0.9 * best:
            best = left
            print(f"  relu {layer}, value {place}, {near:.1e} deviations from 0: the remaining error is {left:.1e}")
        else:
            mask[place] = 1 - mask[place]


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--side", type=int, default=16, help="pixels, below 64")
    words.add_argument("--width", type=int, default=64)
    words.add_argument("seed", type=int, nargs="+")
    words = words.parse_args()
    x, label = images(words.side)
    for seed in words.seed:
        weights, brim = run(words.width, words.side, seed)
        exact, inputs = gradients(weights, x, label, torch.float64)
        single, others = gradients(weights, x, label, torch.float32)
        flips = sum(((a > 0) != (b > 0)).sum().item() for a, b in zip(inputs, others))
        print(f"seed {seed}: PyTorch {error(single, exact):.1e} with {flips} of {sum(a.numel() for a in inputs)} relus "
              f"on the other side, brim {error(brim, exact):.1e}", flush=True)
        if error(brim, exact) > LARGE:
            find_flips(brim, weights, x, label, inputs)


if __name__ == "__main__":
    main()
