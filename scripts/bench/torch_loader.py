#!/usr/bin/env python3
"""PyTorch's DataLoader on a folder of JPEG files, without a network; see loader.py. Needs torchvision."""

import argparse
import json
import time

import torch
from torchvision import datasets, transforms

PARTS = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
WHOLE = [transforms.Resize(256), transforms.CenterCrop(224)]
COMMON = [transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--chain", choices=["parts", "whole"], required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chain = transforms.Compose((PARTS if options.chain == "parts" else WHOLE) + COMMON)
    data = datasets.ImageFolder(options.folder, chain)
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers=options.workers,
                                         persistent_workers=True, drop_last=True)
    for _ in loader:  # starts the processes and fills the file cache
        pass
    start, count = time.monotonic(), 0
    for _ in range(options.epochs):
        for values, _ in loader:
            count += len(values)
    print(json.dumps({"images_per_second": count / (time.monotonic() - start), "torch": torch.__version__}))


main()
