#!/usr/bin/env python3
"""Makes pointwise.txt: PyTorch's results, in double precision, for elementwise functions, softmax, operations on
tensors that broadcast to each other, and sums over axes, each with its gradients.

    python3 tests/golden/make_pointwise.py        # needs torch and numpy; writes into this folder

For each case: its inputs (those that begin with p_ have no samples), the result y, the incoming gradient dy, and the
gradients of the inputs. The cases are repeated in tests/conformance/test_golden_pointwise.c.

The cases relu_dropout1 to relu_dropout9 are dropout(relu(x)) of drawn shapes, with brim's masks for p = 0.1 to 0.9.
"""
import pathlib

import torch
import torch.nn.functional as F

from make_engine import dropout_mask

SEED, STEP = 42, 7  # as in tests/conformance/bench.c


def write(out, name, tensor):
    tensor = tensor.detach()
    out.write(f"{name} {tensor.dim()} {' '.join(str(d) for d in tensor.shape)}\n")
    values = [repr(v) for v in tensor.flatten().tolist()]
    for i in range(0, len(values), 6):
        out.write(" ".join(values[i : i + 6]) + "\n")


def case(out, name, function, **inputs):
    for key, value in inputs.items():
        write(out, f"{name}.{key}", value)
        value.requires_grad_()
    y = function(*inputs.values())
    dy = torch.randn(y.shape)
    y.backward(dy)
    write(out, f"{name}.y", y)
    write(out, f"{name}.dy", dy)
    for key, value in inputs.items():
        write(out, f"{name}.d{key}", value.grad)


def relu_dropout(out, name, p):
    def draw(low, high):
        return int(torch.randint(low, high + 1, ()))

    shape = (draw(1, 4), draw(1, 6), *(draw(1, 5) for _ in range(draw(0, 1) * 2)))
    mask = dropout_mask(SEED, STEP, 0, p, 0, shape).double() / (1 - p)
    case(out, name, lambda x: torch.relu(x) * mask, x=torch.randn(shape))


def main():
    folder = pathlib.Path(__file__).resolve().parent
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(5)
    functions = {
        "gelu0": F.gelu,
        "gelu1": lambda x: F.gelu(x, approximate="tanh"),
        "gelu2": lambda x: x * torch.sigmoid(1.702 * x),
        "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "exp": torch.exp,
        "scale": lambda x: -1.5 * x,
    }
    with open(folder / "pointwise.txt", "w") as out:
        for name, function in functions.items():
            wide = torch.cat([torch.linspace(-7, 7, 15), torch.randn(3)]).reshape(2, 9)  # with 0
            case(out, name, function, x=wide)
        case(out, "softmax", lambda x: torch.softmax(x, -1), x=3 * torch.randn(2, 3, 5))
        case(out, "log_softmax", lambda x: torch.log_softmax(x, -1), x=3 * torch.randn(2, 3, 5))
        case(out, "affine", lambda x, p_scale, p_shift: x * p_scale + p_shift,
             x=torch.randn(2, 3, 2, 4), p_scale=torch.randn(3, 1, 1), p_shift=torch.randn(2, 4))
        case(out, "turned", lambda x, p_a, p_b: (p_a - x) / p_b,
             x=torch.randn(3, 2, 4), p_a=torch.randn(1, 1, 4), p_b=1 + torch.rand(1))
        case(out, "outer", lambda x, z: x / z, x=torch.randn(2, 3, 1), z=1 + torch.rand(2, 1, 4))
        case(out, "table", lambda x, p_row, p_column: x + p_row * p_column,
             x=torch.randn(2, 3, 4), p_row=torch.randn(3, 1), p_column=torch.randn(4))
        case(out, "square", lambda x: x * x - x, x=torch.randn(2, 5))
        case(out, "sum", lambda x: x.sum((2,)), x=torch.randn(2, 3, 4))
        case(out, "mean", lambda x: x.mean((1, 3), keepdim=True), x=torch.randn(2, 3, 2, 4))
        for name, function in {"softplus": F.softplus, "mish": F.mish, "hardswish": F.hardswish}.items():
            case(out, name, function, x=torch.linspace(-25, 25, 51).reshape(3, 17))
        case(out, "maximum",  # some operands are equal
             lambda x, z: torch.maximum(torch.minimum(x, z), torch.zeros(())),
             x=torch.linspace(-3, 3, 13).reshape(1, 13), z=torch.linspace(3, -3, 13).reshape(1, 13))
        for tenths in range(1, 10):
            relu_dropout(out, f"relu_dropout{tenths}", tenths / 10)


if __name__ == "__main__":
    main()
