"""A byte-level GPT-2 trained in PyTorch: the peer in scripts/bench/compare_text.sh.

The model is Hugging Face's GPT2LMHeadModel, written out, with its initialisation; the text is split as by dataset=text:
the last tenth is the test, the rest are windows of --context bytes. PyTorch draws the order of the windows, so two runs
differ as two seeds do. AdamW, a linear warm-up and half a cosine, and clipped gradients, as in brim. Prints one JSON
object: test_loss (nats a byte) over all of the test's windows, and tokens_per_second.
"""
import argparse
import json
import math
import pathlib
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def drop(self, x):
        return functional.dropout(x, self.dropout, self.training)

    def attention(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(width, 2))
        scores = q @ k.transpose(2, 3) / math.sqrt(width / self.heads)
        scores = scores.masked_fill(torch.ones(t, t).tril() == 0, -math.inf)
        return self.attn_proj((self.drop(scores.softmax(3)) @ v).transpose(1, 2).reshape(n, t, width))

    def forward(self, x):
        x = x + self.drop(self.attention(self.ln_1(x)))
        return x + self.drop(self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")))


class Gpt2(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, o.width), nn.Embedding(o.context, o.width)
        self.h = nn.ModuleList(Block(o.width, o.heads, o.dropout) for _ in range(o.layers))
        self.ln_f, self.dropout = nn.LayerNorm(o.width), o.dropout
        for name, value in self.named_parameters():
            if "ln_" not in name:
                std = 0.02 / math.sqrt(2 * o.layers) if "_proj" in name else 0.02
                nn.init.zeros_(value) if name.endswith("bias") else nn.init.normal_(value, 0, std)

    def forward(self, x):
        x = self.wte(x) + self.wpe.weight[: x.shape[1]]
        x = functional.dropout(x, self.dropout, self.training)
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def windows(text, context):
    count = (len(text) - 1) // context
    rows = torch.arange(count).unsqueeze(1) * context
    return text[rows + torch.arange(context)].long(), text[rows + torch.arange(1, context + 1)].long()


def loss_of(model, x, y):
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def factor(step, o):
    warmup = math.floor(o.warmup_fraction * o.steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (o.steps - warmup)))


def train(model, x, y, o):
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr, betas=(0.9, 0.999), weight_decay=o.weight_decay)
    order, start = torch.randperm(len(x)), 0
    for step in range(o.steps):
        if start + o.batch > len(x):
            order, start = torch.randperm(len(x)), 0
        rows = order[start : start + o.batch]
        start += o.batch
        for group in optimizer.param_groups:
            group["lr"] = o.lr * factor(step, o)
        optimizer.zero_grad()
        loss_of(model, x[rows], y[rows]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), o.clip_norm)
        optimizer.step()


@torch.no_grad()
def evaluate(model, x, y, batch=64):
    model.eval()
    total = sum(float(loss_of(model, a, b)) * len(a) for a, b in zip(x.split(batch), y.split(batch)))
    return total / len(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    for name, kind, value in [("steps", int, 400), ("batch", int, 8), ("context", int, 128), ("layers", int, 4),
                              ("heads", int, 4), ("width", int, 256), ("dropout", float, 0.1), ("lr", float, 1e-3),
                              ("warmup_fraction", float, 0.1), ("weight_decay", float, 0.1), ("clip_norm", float, 1),
                              ("seed", int, 0), ("threads", int, 2)]:
        parser.add_argument("--" + name.replace("_", "-"), type=kind, default=value)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    text = torch.frombuffer(bytearray(o.text.read_bytes()), dtype=torch.uint8)
    cut = len(text) - round(len(text) * 0.1)
    model = Gpt2(o)
    began = time.monotonic()
    train(model, *windows(text[:cut], o.context), o)
    speed = o.steps * o.batch * o.context / (time.monotonic() - began)
    print(json.dumps({"test_loss": evaluate(model, *windows(text[cut:], o.context)), "tokens_per_second": speed,
                      "parameters": sum(p.numel() for p in model.parameters()), "seed": o.seed}))


if __name__ == "__main__":
    main()
