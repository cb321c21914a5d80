"""The network of PyTorch's MNIST example, trained in PyTorch.

Reads the same IDX files. Pixels stay bytes in memory and are normalised per batch, which takes the least memory and is
no slower; batches are drawn from a random permutation, without a DataLoader, whose processes would only cost time here.
Prints one JSON object: samples_per_second without the first steps, rss_peak_bytes and the part of it that importing
PyTorch takes (much more with a build for GPUs), first_step_seconds counted from the start of the process, and with
--epochs the test accuracy.
"""

import time

START = time.time()  # before PyTorch is imported

import argparse  # noqa: E402
import gzip  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

MEAN, STD = 0.2860, 0.3530  # configs/dataset/fashion_mnist.yaml


def process_start():
    """Returns the time at which the kernel started this process, on the clock of time.time(), to 10 ms."""
    ticks = int(pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    up = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return min(START, time.time() - up + ticks / os.sysconf("SC_CLK_TCK"))


def peak_rss_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def read_idx(folder, name):
    path = folder / name
    data = gzip.open(f"{path}.gz").read() if not path.exists() else path.read_bytes()
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(rank)]
    return torch.frombuffer(bytearray(data[4 + 4 * rank:]), dtype=torch.uint8).reshape(shape)


def read_split(folder, stem):
    return (read_idx(folder, f"{stem}-images-idx3-ubyte").unsqueeze(1),
            read_idx(folder, f"{stem}-labels-idx1-ubyte").long())


class Net(nn.Module):
    """pytorch/examples, mnist/main.py"""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        x = self.dropout1(functional.max_pool2d(x, 2))
        x = self.dropout2(functional.relu(self.fc1(torch.flatten(x, 1))))
        return self.fc2(x)


def as_input(pixels, layout):
    return ((pixels.float() * (1 / 255) - MEAN) * (1 / STD)).contiguous(memory_format=layout)


def accuracy(model, images, labels, layout):
    model.eval()
    with torch.no_grad():
        right = sum((model(as_input(images[i:i + 500], layout)).argmax(1) == labels[i:i + 500]).sum().item()
                    for i in range(0, len(labels), 500))
    return right / len(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=0, help="instead of --steps; one-cycle, flips, test accuracy")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=1, help="steps left out of samples_per_second")
    parser.add_argument("--mode", choices=["eager", "channels_last", "compile"], default="eager")
    options = parser.parse_args()
    began = process_start()
    rss_import = peak_rss_bytes()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)

    images, labels = read_split(options.data, "train")
    layout = torch.channels_last if options.mode == "channels_last" else torch.contiguous_format
    model = Net().to(memory_format=layout)
    step_model = torch.compile(model) if options.mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    per_epoch = math.ceil(len(labels) / options.batch)
    steps = options.epochs * per_epoch or options.steps
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps) if options.epochs else None

    first, timed_from, samples = None, None, 0
    model.train()
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(labels))
        index = order[step % per_epoch * options.batch:][:options.batch]
        x = as_input(images[index], layout)
        if options.epochs:
            flip = torch.rand(len(index)) < 0.5
            x[flip] = x[flip].flip(3)
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(step_model(x), labels[index]).backward()
        optimizer.step()
        if schedule:
            schedule.step()
        now = time.time()
        first = first or now - began
        if step + 1 == options.warm_up:
            timed_from = now
        elif step + 1 > options.warm_up:
            samples += len(index)
    out = {"samples_per_second": samples / (now - timed_from), "rss_peak_bytes": peak_rss_bytes(),
           "rss_import_bytes": rss_import, "first_step_seconds": first, "torch": torch.__version__}
    if options.epochs:
        out["test_accuracy"] = accuracy(model, *read_split(options.data, "t10k"), layout)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
