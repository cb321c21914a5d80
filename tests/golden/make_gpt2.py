#!/usr/bin/env python3
"""Makes gpt2.txt: PyTorch's results, in double precision, for a small form of the model gpt2.

    python3 tests/golden/make_gpt2.py        # needs torch; writes into this folder

The model is Hugging Face's GPT2LMHeadModel (transformers, models/gpt2/modeling_gpt2.py) written out, with its names;
weights of Conv1D are stored in brim's layout, [out, in]. The file's format is described in make_models.py, for one
batch of tokens; labels are the tokens shifted by one, and some are ignored (-100). Samples are shorter than the
context. The loss is the mean over all labels that are not ignored.
"""
import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

from make_models import STEPS, write

IGNORED = -100


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=1e-5), nn.LayerNorm(width, eps=1e-5)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        n, t, width = x.shape
        q, k, v = (s.view(n, t, self.heads, width // self.heads).transpose(1, 2)
                   for s in self.attn.c_attn(x).split(width, dim=2))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        seen = torch.tril(torch.ones(t, t, dtype=torch.bool))
        scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
        return self.attn.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, width))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        h = self.mlp.c_fc(self.ln_2(x))
        gelu_new = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        return x + self.mlp.c_proj(gelu_new)


class Gpt2(nn.Module):
    def __init__(self, vocabulary, context, width, layers, heads):
        super().__init__()
        self.transformer = nn.Module()
        self.transformer.wte, self.transformer.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.transformer.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.transformer.ln_f = nn.LayerNorm(width, eps=1e-5)

    def forward(self, tokens):
        t = self.transformer
        x = t.wte(tokens) + t.wpe(torch.arange(tokens.shape[1]))
        for block in t.h:
            x = block(x)
        return t.ln_f(x) @ t.wte.weight.T


def loss_of(model, x, label, reduction="mean"):
    return F.cross_entropy(model(x).flatten(0, 1), label.flatten(), ignore_index=IGNORED, reduction=reduction)


def train(out, model, x, label):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, x, label)
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
    write(out, "adamw.loss", torch.stack(losses))
    for key, value in model.named_parameters():
        write(out, f"adamw.{key}", value)


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(24)
    model = Gpt2(vocabulary=11, context=9, width=8, layers=2, heads=2)
    for value in model.parameters():  # includes layer norms, so that they are not all 1 and 0
        nn.init.normal_(value, 0.05, 0.4)
    text = torch.randint(11, (6, 8))
    x, label = text[:, :-1], text[:, 1:].clone()
    label[1, 3] = label[4, :2] = IGNORED
    with open(pathlib.Path(__file__).resolve().parent / "gpt2.txt", "w") as out:
        write(out, "input", x)
        write(out, "label", label)
        for key, value in model.state_dict().items():
            write(out, f"parameter.{key}", value)
        write(out, "logits", model(x))
        write(out, "loss", loss_of(model, x, label, "none").view_as(label))
        loss_of(model, x, label).backward()
        for key, value in model.named_parameters():
            write(out, f"gradient.{key}", value.grad)
        train(out, model, x, label)


if __name__ == "__main__":
    main()
