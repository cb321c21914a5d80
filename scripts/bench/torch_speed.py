"""The peers in scripts/bench/speed.py: the same networks, batches and optimizers in idiomatic PyTorch.

Samples lie in memory as bytes (images, normalised per batch) or tokens; batches are drawn from a random permutation,
without a DataLoader, whose processes would only cost time here. Prints one JSON object: samples_per_second without the
first steps, rss_peak_bytes and the part of it that importing PyTorch takes (much more with a build for GPUs), and
first_step_seconds, counted from the start of the process.
"""

import time

START = time.time()  # before PyTorch is imported

import argparse  # noqa: E402
import json  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torch_cnn import Net, peak_rss_bytes, process_start  # noqa: E402


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                         nn.Linear(256, 10))


class BasicBlock(nn.Module):
    """torchvision.models.resnet"""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.downsample = nn.Identity()
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x), inplace=True)


class ResNet18(nn.Module):
    """ResNet-18 with the stem for small images, as in most CIFAR recipes."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        widths = [64, 64, 128, 128, 256, 256, 512, 512]
        self.blocks = nn.Sequential(*(BasicBlock(widths[max(i - 1, 0)], w, 2 if i in (2, 4, 6) else 1)
                                      for i, w in enumerate(widths)))
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc(self.blocks(F.relu(self.bn1(self.conv1(x)), inplace=True)).mean((2, 3)))


class Block(nn.Module):
    """A pre-norm transformer block, as in timm and nanoGPT."""

    def __init__(self, width, heads, causal, eps, gelu):
        super().__init__()
        self.heads, self.causal, self.gelu = heads, causal, gelu
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        n, t, width = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(x.transpose(1, 2).reshape(n, t, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate=self.gelu))


class VitTiny(nn.Module):
    def __init__(self, width=192, depth=12, heads=3, patch=4, side=32):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, False, 1e-6, "none") for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Gpt2(nn.Module):
    def __init__(self, layers=6, width=384, heads=6, context=256, vocabulary=50257):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, True, 1e-5, "tanh") for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, 0, 0.02)

    def forward(self, x):
        return self.head(self.ln_f(self.blocks(self.wte(x) + self.wpe.weight[:x.shape[1]])))


# network, shape of an image or of a row of tokens, number of samples, size of the vocabulary
CASES = {"cnn": (Net, (1, 28, 28), 60000, None), "mlp": (Mlp, (1, 28, 28), 60000, None),
         "resnet18": (ResNet18, (3, 32, 32), 50000, None), "vit": (VitTiny, (3, 32, 32), 50000, None),
         "gpt2": (Gpt2, (257,), 2048, 50257)}


def make_data(shape, count, vocabulary):
    if vocabulary:
        return torch.randint(0, vocabulary, (count, *shape), dtype=torch.int32), None
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8), torch.randint(0, 10, (count,))


def batch_of(data, labels, index, layout):
    if labels is None:
        rows = data[index].long()
        return rows[:, :-1], rows[:, 1:].flatten()
    return ((data[index].float() * (1 / 255) - 0.5) * 4).contiguous(memory_format=layout), labels[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--warm-up", type=int, default=1, help="steps left out of samples_per_second")
    parser.add_argument("--mode", choices=["eager", "channels_last", "compile"], default="eager")
    options = parser.parse_args()
    began = process_start()
    rss_import = peak_rss_bytes()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)

    make, shape, count, vocabulary = CASES[options.case]
    data, labels = make_data(shape, count, vocabulary)
    is_last = options.mode != "eager" and options.case in ("cnn", "resnet18")  # faster compiled with channels last too
    layout = torch.channels_last if is_last else torch.contiguous_format
    model = make().to(memory_format=layout)
    forward = torch.compile(model) if options.mode == "compile" else model
    if options.case == "resnet18":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    order, at, first = torch.randperm(count), 0, None
    model.train()
    for step in range(options.steps):
        if at + options.batch > count:
            order, at = torch.randperm(count), 0
        x, y = batch_of(data, labels, order[at:at + options.batch], layout)
        at += options.batch
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(forward(x).flatten(0, -2), y).backward()
        optimizer.step()
        now = time.time()
        first = first or now - began
        if step + 1 == options.warm_up:
            timed_from = now
    rate = (options.steps - options.warm_up) * options.batch / (now - timed_from)
    print(json.dumps({"samples_per_second": rate, "rss_peak_bytes": peak_rss_bytes(), "rss_import_bytes": rss_import,
                      "first_step_seconds": first, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
