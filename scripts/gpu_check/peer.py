"""PyTorch with the same networks on the same GPU, for fast.py. Prints a line of JSON for each result at once.

    peer.py --case gpt2-124M --batch 16 --prepare        compiles, to fill the compiler's cache on disk
    peer.py --case gpt2-124M --batch 16 --steps 50       samples per second and peak bytes, eager and compiled
    peer.py --case gpt2-124M --batch 16 --caps 10 24     the largest batch whose steps fit into each number of GB, eager

Idiomatic PyTorch: autocast to bf16, fused AdamW, channels last for convolutions, scaled_dot_product_attention. The data
lie on the device, which costs least. A cap includes the CUDA context's memory, like brim's limit."""

import argparse
import gc
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

from machine import largest
from torch_cnn import Net
from torch_speed import Gpt2, VitTiny

WARM_UP = 8


class Bottleneck(nn.Module):
    """torchvision.models.resnet"""

    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.downsample = nn.Identity()
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, before = [], 64
        for width, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for i in range(depth):
                blocks.append(Bottleneck(before, width, 2 if i == 0 and width > 64 else 1))
                before = 4 * width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(before, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


IMAGE, TOKENS = (3, 224, 224), (1024,)
# network, shape of a sample, and whether it has convolutions
CASES = {"gpt2-124M": (lambda: Gpt2(12, 768, 12, 1024), TOKENS, False),
         "gpt2-350M": (lambda: Gpt2(24, 1024, 16, 1024), TOKENS, False),
         "resnet50": (ResNet50, IMAGE, True),
         "vit-b16": (lambda: VitTiny(768, 12, 12, 16, 224), IMAGE, False),
         "cnn": (Net, (1, 28, 28), True),
         "reduced": (lambda: Gpt2(1, 32, 2, 32), (32,), False)}  # for trying this program on a CPU


class Training:
    def __init__(self, options):
        make, self.shape, last = CASES[options.case]
        torch.manual_seed(1)
        self.device = options.device
        self.layout = torch.channels_last if last else torch.contiguous_format
        self.model = make().to(self.device, memory_format=self.layout)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def batch(self, size):
        if len(self.shape) == 1:
            rows = torch.randint(0, 50257, (size, self.shape[0] + 1), device=self.device)
            return rows[:, :-1].contiguous(), rows[:, 1:].flatten()
        x = torch.randn(size, *self.shape, device=self.device).contiguous(memory_format=self.layout)
        return x, torch.randint(0, 10, (size,), device=self.device)

    def step(self, forward, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16):
            loss = F.cross_entropy(forward(x).flatten(0, -2), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def measure(self, mode, size, steps):
        forward = torch.compile(self.model) if mode == "compiled" else self.model
        x, y = self.batch(size)
        for _ in range(WARM_UP):
            self.step(forward, x, y)
        gpu = self.device == "cuda"
        if gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        for _ in range(steps):
            loss = self.step(forward, x, y)
        loss.item()  # makes the host wait for the device
        return {"mode": mode, "samples_per_second": steps * size / (time.perf_counter() - start),
                "peak_bytes": torch.cuda.max_memory_allocated() if gpu else 0,
                "reserved_bytes": torch.cuda.max_memory_reserved() if gpu else 0}

    def fits(self, size):
        try:
            x, y = self.batch(size)
            for _ in range(2):
                self.step(self.model, x, y).item()
            return True
        except torch.OutOfMemoryError:
            return False
        finally:
            x = y = None
            self.optimizer.zero_grad(set_to_none=True)
            gc.collect()
            torch.cuda.empty_cache()

    def most(self, gigabytes, start):
        free, total = torch.cuda.mem_get_info()
        context = total - free - torch.cuda.memory_reserved()
        torch.cuda.set_per_process_memory_fraction(max(0.0, min(1.0, (gigabytes * 10**9 - context) / total)))
        return {"cap": gigabytes, "batch": largest(self.fits, start)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--caps", type=int, nargs="*", default=[])
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("peer: PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = not options.caps  # the search takes seconds for each batch that is tried
    training = Training(options)
    if options.prepare:
        print(json.dumps(training.measure("compiled", options.batch, 1)), flush=True)
    for mode in ("eager", "compiled") if options.steps else ():
        print(json.dumps(training.measure(mode, options.batch, options.steps)), flush=True)
    start, before = options.batch, None
    for cap in options.caps:
        found = training.most(cap, start if before is None else start * cap // before)
        start, before = found["batch"], cap
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
