"""A model trained in PyTorch until it is stopped: the peer in scripts/bench/limits.py.

The models are brim's `cnn` and `vit`, value for value, trained by AdamW; with --checkpoint each block is recomputed in
the backward pass (torch.utils.checkpoint), with --bf16 under autocast. Images stay bytes in memory and are converted
batch by batch, without a DataLoader. Writes a line of JSON with its base, {"base": bytes}, and one a step.

The base is its resident memory with PyTorch imported, the data read, and a linear layer trained for a step, so that
threads and libraries are loaded; then it resets the kernel's peak counter.
"""

import argparse
import json
import pathlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from torch_cnn import Net, as_input, read_split

STD, EPS = 0.02, 1e-6
SYNTHETIC_IMAGES = 512


class Cnn(Net):
    """Blocks of a convolution and the layers after it."""

    def first(self, x):
        return functional.relu(self.conv1(x))

    def second(self, x):
        return self.dropout1(functional.max_pool2d(functional.relu(self.conv2(x)), 2))

    def forward(self, x, through=lambda block, x: block(x)):
        x = through(self.second, through(self.first, x))
        x = self.dropout2(functional.relu(self.fc1(torch.flatten(x, 1))))
        return self.fc2(x)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = functional.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(n, tokens, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    """timm's VisionTransformer, like models/vit.c."""

    def __init__(self, shape, classes, patch, depth, width, heads):
        super().__init__()
        channels, rows, columns = shape
        self.patch_embed = nn.Conv2d(channels, width, patch, patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 1e-6)
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + rows // patch * (columns // patch), width) * STD)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width, EPS), nn.Linear(width, classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=STD)
                nn.init.zeros_(module.bias)

    def forward(self, x, through=lambda block, x: block(x)):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = through(block, x)
        return self.head(self.norm(x)[:, 0])


def make_again(block, x):
    return checkpoint(block, x, use_reentrant=False)


def take_step(model, optimizer, x, label, through=None, bf16=False):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = model(x, through) if through else model(x)
        loss = functional.cross_entropy(logits, label)
    loss.backward()
    optimizer.step()
    return loss.item()


def resident_bytes():
    """Returns the current resident bytes, and resets the kernel's peak."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmRSS")


def settle(images, labels, bf16):
    """Loads the libraries that every training needs, independent of the model."""
    x, label = as_input(images[:1], torch.contiguous_format).flatten(1), labels[:1]
    model = nn.Linear(x.shape[1], 10)
    take_step(model, torch.optim.AdamW(model.parameters()), x, label, bf16=bf16)


def read_images(options):
    if options.shape is None:
        return read_split(options.data, "train")
    images = torch.randint(256, (SYNTHETIC_IMAGES, *options.shape), dtype=torch.uint8)
    return images, torch.arange(SYNTHETIC_IMAGES) % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=pathlib.Path, required=True, help="the file to write the lines to")
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--shape", type=int, nargs=3, help="synthetic images of this shape, instead of Fashion-MNIST")
    parser.add_argument("--model", choices=["cnn", "vit"], required=True)
    parser.add_argument("--patch", type=int, default=4)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    images, labels = read_images(options)
    settle(images, labels, options.bf16)
    with options.records.open("w", buffering=1) as records:
        print(json.dumps({"base": resident_bytes(), "torch": torch.__version__}), file=records)
        model = Cnn() if options.model == "cnn" else Vit(images.shape[1:], 10, options.patch, options.depth,
                                                         options.width, options.heads)
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        while True:
            index = torch.randint(len(images), (options.batch,))
            x = as_input(images[index], torch.contiguous_format)
            loss = take_step(model, optimizer, x, labels[index],
                             make_again if options.checkpoint else None, options.bf16)
            print(json.dumps({"loss": loss}), file=records)


if __name__ == "__main__":
    main()
