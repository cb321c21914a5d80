#!/usr/bin/env python3
"""Makes transformer_tokens.txt and transformer_patches.txt: PyTorch's results, in double precision, for the tiny
transformer of tests/conformance/transformer.c.

    python3 tests/golden/make_transformer.py        # needs torch; writes into this folder

Parameters, one batch, logits, the loss of each sample, and the gradients of the mean loss. There is no dropout. The
settings are repeated in tests/conformance/test_golden_transformer.c.
"""
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

from make_attention import attend, rotate
from make_models import write


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, causal, rotary, approximate):
        super().__init__()
        self.heads, self.kv_heads, self.causal, self.rotary = heads, kv_heads, causal, rotary
        self.approximate = approximate
        self.size = width // heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.proj = nn.Linear(width, width), nn.Linear(width, width)
        self.k = nn.Linear(width, self.size * kv_heads, bias=False)
        self.v = nn.Linear(width, self.size * kv_heads)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def turned(self, x, heads):
        return rotate(x, heads, self.size, 10000.0, interleaved=False) if self.rotary else x

    def forward(self, x):
        h = self.ln1(x)
        q, k = self.turned(self.q(h), self.heads), self.turned(self.k(h), self.kv_heads)
        x = x + self.proj(attend(q, k, self.v(h), self.heads, self.kv_heads, causal=self.causal))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate=self.approximate))


class Transformer(nn.Module):
    def __init__(self, embed, length, width, classes, layers, rotary, **settings):
        super().__init__()
        self.embed = embed
        if not rotary:
            self.position = nn.Parameter(torch.empty(length, width))
        self.blocks = nn.ModuleList(Block(width, rotary=rotary, **settings) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x)
        if hasattr(self, "position"):
            x = x + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x).mean(1))


def make(path, model, x, label):
    for value in model.parameters():  # includes layer norms, so that they are not all 1 and 0
        nn.init.normal_(value, 0.1, 0.5)
    logits = model(x)
    F.cross_entropy(logits, label).backward()
    with open(path, "w") as out:
        write(out, "input", x)
        write(out, "label", label)
        write(out, "logits", logits)
        write(out, "loss", F.cross_entropy(logits, label, reduction="none"))
        for key, value in model.named_parameters():
            write(out, f"parameter.{key}", value)
            write(out, f"gradient.{key}", value.grad)


def main():
    folder = pathlib.Path(__file__).resolve().parent
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(22)
    tokens = Transformer(nn.Embedding(7, 8), 5, 8, 3, 2, True, heads=4, kv_heads=2, causal=True, approximate="tanh")
    make(folder / "transformer_tokens.txt", tokens, torch.randint(7, (3, 5)), torch.tensor([2, 0, 1]))
    patches = Transformer(nn.Linear(5, 6), 4, 6, 4, 2, False, heads=2, kv_heads=2, causal=False, approximate="none")
    make(folder / "transformer_patches.txt", patches, torch.randn(3, 4, 5), torch.tensor([3, 1, 1]))


if __name__ == "__main__":
    main()
