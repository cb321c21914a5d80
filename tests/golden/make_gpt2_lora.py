#!/usr/bin/env python3
"""Makes gpt2_lora.txt: PyTorch's results, in double precision, for low-rank adapters of a small frozen gpt2.

    python3 tests/golden/make_gpt2_lora.py        # needs torch; writes into this folder

The model and the batch are those of make_gpt2.py, the adapters those of make_lora.py: on the whole attn.c_attn, which
is PEFT's default for GPT-2, and on mlp.c_fc. The head is the embedding, as before, and frozen like everything else;
only adapters have gradients and values after the last step. lora_B is not 0 here, as otherwise the first gradients of
lora_A would be 0. Settings are repeated in tests/text/test_golden_gpt2_lora.c.
"""
import pathlib

import torch
from torch import nn

from make_gpt2 import IGNORED, Gpt2, loss_of
from make_lora import Changed
from make_models import STEPS, write


def train(out, model, trained, x, label):
    optimizer = torch.optim.AdamW(trained.values(), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, x, label)
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
    write(out, "adamw.loss", torch.stack(losses))
    for key, value in trained.items():
        write(out, f"adamw.{key}", value)


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(26)
    model = Gpt2(vocabulary=11, context=9, width=8, layers=2, heads=2)
    model.requires_grad_(False)
    for block in model.transformer.h:
        block.attn.c_attn = Changed(block.attn.c_attn, block.attn.c_attn.out_features)
        block.mlp.c_fc = Changed(block.mlp.c_fc, block.mlp.c_fc.out_features)
    for value in model.parameters():  # includes layer norms, so that they are not all 1 and 0
        nn.init.normal_(value, 0.05, 0.4)
    trained = {key: value for key, value in model.named_parameters() if value.requires_grad}
    text = torch.randint(11, (6, 8))
    x, label = text[:, :-1], text[:, 1:].clone()
    label[0, 2] = label[5, 3:] = IGNORED
    with open(pathlib.Path(__file__).resolve().parent / "gpt2_lora.txt", "w") as out:
        write(out, "input", x)
        write(out, "label", label)
        for key, value in model.state_dict().items():
            write(out, f"parameter.{key}", value)
        write(out, "logits", model(x))
        write(out, "loss", loss_of(model, x, label, "none").view_as(label))
        loss_of(model, x, label).backward()
        for key, value in trained.items():
            write(out, f"gradient.{key}", value.grad)
        train(out, model, trained, x, label)


if __name__ == "__main__":
    main()
