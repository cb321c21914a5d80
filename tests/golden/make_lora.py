#!/usr/bin/env python3
"""Makes lora.txt and lora_norm.txt: PyTorch's results, in double precision, for low-rank adapters of a small frozen
vit, and of a layer before a frozen batch norm.

    python3 tests/golden/make_lora.py        # needs torch; writes into this folder

The formulas are PEFT's (peft/tuners/lora/layer.py), written out: result + lora_B(lora_A(x)) * (alpha / r), without
dropout. Three kinds of layers are adapted: the query third of attn.qkv, attn.proj and mlp.fc1. lora_B is not 0 here, as
otherwise the first gradients of lora_A would be 0. The file is as make_models.py describes it, with AdamW only; only
trained parameters have gradients and values after the last step. Settings are repeated in
tests/conformance/test_golden_lora.c.
"""
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

from make_models import Vit, train, write

R, ALPHA = 3, 5.0


class Changed(nn.Module):
    """A linear layer with a low-rank change of its first `out` results."""

    def __init__(self, base, out, name=None):
        super().__init__()
        self.weight, self.bias, self.out, self.name = base.weight, base.bias, out, name
        self.weight.requires_grad = self.bias.requires_grad = False
        holder = self
        if name:
            setattr(self, name, nn.Module())
            holder = getattr(self, name)
        holder.lora_A = nn.Linear(base.in_features, R, bias=False)
        holder.lora_B = nn.Linear(R, out, bias=False)

    def forward(self, x):
        holder = getattr(self, self.name) if self.name else self
        result = F.linear(x, self.weight, self.bias)
        change = holder.lora_B(holder.lora_A(x)) * (ALPHA / R)
        return result + F.pad(change, (0, result.shape[-1] - self.out))


class Norm(nn.Module):
    """A layer, a batch norm that uses its running statistics, and a head."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.fc, self.bn, self.head = nn.Linear(features, width), nn.BatchNorm1d(width), nn.Linear(width, classes)
        for value in (self.bn.weight, self.bn.bias, self.bn.running_mean):
            nn.init.normal_(value)
        nn.init.uniform_(self.bn.running_var, 0.5, 2)

    def forward(self, x):
        return self.head(F.relu(self.bn.eval()(self.fc(x.flatten(1)))))


def change_vit(model):
    for block in model.blocks:
        block.attn.qkv = Changed(block.attn.qkv, block.attn.qkv.in_features, "q")
        block.attn.proj = Changed(block.attn.proj, block.attn.proj.out_features)
        block.mlp.fc1 = Changed(block.mlp.fc1, block.mlp.fc1.out_features)


def change_norm(model):
    model.fc = Changed(model.fc, model.fc.out_features)


def make(path, model, change, shape, classes, batch):
    for parameter in model.parameters():
        parameter.requires_grad = False
    change(model)
    model.head.requires_grad_(True)
    trained = {key: value for key, value in model.named_parameters() if value.requires_grad}
    x, label = torch.randn(batch, *shape), torch.randint(classes, (batch,))
    start = {key: value.clone() for key, value in model.state_dict().items()}
    with open(path, "w") as out:
        write(out, "input", x)
        write(out, "label", label)
        for key, value in start.items():
            if value.is_floating_point():  # leaves out batch norm's count of batches
                write(out, f"parameter.{key}", value)
        logits = model(x)
        write(out, "logits", logits)
        write(out, "loss", F.cross_entropy(logits, label, reduction="none"))
        F.cross_entropy(logits, label).backward()
        for key, value in trained.items():
            write(out, f"gradient.{key}", value.grad)
        adamw = torch.optim.AdamW(trained.values(), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
        train(out, "adamw", model, start, adamw, x, label)


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(22)
    folder = pathlib.Path(__file__).resolve().parent
    make(folder / "lora.txt", Vit((2, 4, 6), 2, 2, 6, 2, 2, 4), change_vit, (2, 4, 6), 4, 6)
    make(folder / "lora_norm.txt", Norm(48, 5, 4), change_norm, (2, 4, 6), 4, 6)


if __name__ == "__main__":
    main()
