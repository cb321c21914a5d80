#!/usr/bin/env python3
"""Makes unet.txt: PyTorch's results, in double precision, for a small form of the example docs/examples/unet.

    python3 tests/golden/make_unet.py        # needs torch; writes into this folder

make_models.py describes the file.
"""
import pathlib

import torch
import torch.nn.functional as F
from make_models import batch_of, make
from torch import nn


class Unet(nn.Module):
    def __init__(self, channels, width, levels, classes):
        super().__init__()
        self.down, self.narrow, self.up, self.join = (nn.ModuleList() for _ in range(4))
        for i in range(levels):
            w = width << i
            self.down.append(nn.Conv2d(channels, w, 3, padding=1))
            self.narrow.append(nn.Conv2d(w, 2 * w, 3, 2, padding=1))
            self.up.append(nn.ConvTranspose2d(2 * w, w, 3, 2, padding=1))
            self.join.append(nn.Conv2d(2 * w, w, 3, padding=1))
            channels = 2 * w
        self.context, self.head = nn.Conv2d(width, width, 1), nn.Linear(width, classes)

    def forward(self, x):
        kept = []
        for down, narrow in zip(self.down, self.narrow):
            kept.append(F.relu(down(x)))
            x = F.relu(narrow(kept[-1]))
        for up, join, before in reversed(list(zip(self.up, self.join, kept))):
            x = F.relu(join(torch.cat([before, up(x, output_size=before.shape[2:])], 1)))
        context = self.context(F.adaptive_avg_pool2d(x, 3))
        x = x + F.interpolate(context, x.shape[2:], mode="bilinear", align_corners=True)
        return self.head(x.mean((2, 3)))


def main():
    folder = pathlib.Path(__file__).resolve().parent
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(8)
    make(folder / "unet.txt", Unet(2, 2, 2, 4), *batch_of((2, 7, 6), 4, 6), digits=13)


if __name__ == "__main__":
    main()
