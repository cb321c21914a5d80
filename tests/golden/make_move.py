#!/usr/bin/env python3
"""Makes move.txt: PyTorch's results, in double precision, for linear over rows, matmul, gather, embedding, pad, and
permute, concat and slice together, each with its gradients.

    python3 tests/golden/make_move.py        # needs torch; writes into this folder

For each case: its inputs, the result y, the incoming gradient dy, and the gradients of the inputs. The cases are
repeated in tests/conformance/test_golden_move.c.
"""
import pathlib

import torch
import torch.nn.functional as F


def write(out, name, tensor):
    tensor = tensor.detach()
    out.write(f"{name} {tensor.dim()} {' '.join(str(d) for d in tensor.shape)}\n")
    values = [repr(v) for v in tensor.double().flatten().tolist()]
    for i in range(0, len(values), 6):
        out.write(" ".join(values[i : i + 6]) + "\n")


def case(out, name, function, **inputs):
    for key, value in inputs.items():
        write(out, f"{name}.{key}", value)
        if value.is_floating_point():
            value.requires_grad_()
    y = function(**inputs)
    dy = torch.randn(y.shape)
    y.backward(dy)
    write(out, f"{name}.y", y)
    write(out, f"{name}.dy", dy)
    for key, value in inputs.items():
        if value.is_floating_point():
            write(out, f"{name}.d{key}", value.grad)


def product(transpose_a, transpose_b):
    def function(a, b):
        return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)

    return function


def mixed(a, b):
    """Returns a part of the concatenation of b and a permuted a."""
    return torch.cat([b, a.permute(0, 3, 1, 2)], dim=2)[:, :, 1:5]


def main():
    folder = pathlib.Path(__file__).resolve().parent
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(4)
    with open(folder / "move.txt", "w") as out:
        case(out, "linear", F.linear, input=torch.randn(2, 3, 4), weight=torch.randn(5, 4), bias=torch.randn(5))
        for ta in (0, 1):
            for tb in (0, 1):
                a = torch.randn(2, 3, 5, 4) if ta else torch.randn(2, 3, 4, 5)
                b = torch.randn(2, 3, 2, 5) if tb else torch.randn(2, 3, 5, 2)
                case(out, f"matmul{ta}{tb}", product(ta, tb), a=a, b=b)
        index = torch.randint(4, (2, 6, 3))
        case(out, "gather", lambda x, index: torch.gather(x, 1, index), x=torch.randn(2, 4, 3), index=index)
        index = torch.randint(7, (3, 5))
        case(out, "embedding", lambda index, weight: F.embedding(index, weight), index=index, weight=torch.randn(7, 4))
        case(out, "pad", lambda x: F.pad(x, (2, 0, 0, 1, 1, 1), value=-0.5), x=torch.randn(2, 3, 2, 4))
        case(out, "mixed", mixed, a=torch.randn(2, 4, 3, 5), b=torch.randn(2, 5, 2, 3))


if __name__ == "__main__":
    main()
