#!/usr/bin/env python3
"""Makes lstm.txt: the results of torch.nn.LSTM(batch_first=True) from state 0, in double precision.

    python3 tests/golden/make_lstm.py        # needs torch; writes into this folder

For each case: x, the parameters, the result y, the incoming gradient dy, and the gradients of x and the parameters; the
file is as make_models.py describes it. The cases are repeated in tests/conformance/test_golden_lstm.c.
"""
import pathlib

import torch
from torch import nn

from make_models import write


def case(out, name, features, hidden, batch, steps, **options):
    model = nn.LSTM(features, hidden, batch_first=True, **options)
    x = torch.randn(batch, steps, features, requires_grad=True)
    y, _ = model(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    write(out, f"{name}.x", x)
    write(out, f"{name}.dy", dy)
    write(out, f"{name}.y", y)
    write(out, f"{name}.dx", x.grad)
    for key, value in model.named_parameters():
        write(out, f"{name}.{key}", value)
        write(out, f"{name}.d{key}", value.grad)


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(22)
    with open(pathlib.Path(__file__).resolve().parent / "lstm.txt", "w") as out:
        case(out, "one", 3, 4, 2, 5)
        case(out, "both", 3, 2, 2, 4, num_layers=2, bidirectional=True)


if __name__ == "__main__":
    main()
