#!/usr/bin/env python3
"""Makes norm.txt: PyTorch's results, in double precision, for the normalisations.

    python3 tests/golden/make_norm.py        # needs torch; writes into this folder

The format is make_models.py's. Each case "<name>." has x, weight, bias (except for rms_norm), the gradient dy of the
result; y, dx, dweight, dbias. Batch norm also has running_mean and running_var before the step and, as mean_after and
var_after, after it; `inference` is the result of evaluation for x then. If its samples are split into groups, each
group is normalised separately, and the running averages are updated once with the mean of the groups' statistics. Sizes
of groups, eps and momentum are repeated in tests/conformance/test_golden_norm.c.

The cases end0 to end7 are relu(norm(x)) and relu(norm(x) + a), with a, its gradient da, and the size of a group.
"""
import pathlib

import torch
from make_models import write
from torch import nn

EPS, MOMENTUM = 1e-5, 0.1


def start(layer):
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -1.5, 1.5)
    return layer


def differentiate(out, name, layer, x, function):
    """Writes the case except for buffers; returns y."""
    x.requires_grad_()
    y = function(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    write(out, f"{name}.x", x)
    write(out, f"{name}.dy", dy)
    write(out, f"{name}.y", y)
    write(out, f"{name}.dx", x.grad)
    for key, parameter in layer.named_parameters():
        write(out, f"{name}.{key}", parameter)
        write(out, f"{name}.d{key}", parameter.grad)


def batch_norm(out, name, shape, groups):
    """Writes a case of batch norm. `groups`: the number of samples in each group."""
    layer = start(nn.BatchNorm1d(shape[1]) if len(shape) < 4 else nn.BatchNorm2d(shape[1]))
    layer.eps, layer.momentum = EPS, 1  # with momentum 1 the buffers are the statistics of the last group
    x = 0.7 * torch.randn(shape) + 3 * torch.randn(shape[1]).view(1, -1, *[1] * (len(shape) - 2))
    means, variances = [], []

    def by_group(x):
        y = []
        for part in x.split(groups):
            y.append(layer(part))
            means.append(layer.running_mean.clone())
            variances.append(layer.running_var.clone())
        return torch.cat(y)

    differentiate(out, name, layer, x, by_group)
    before = torch.randn(shape[1]), torch.rand(shape[1]) + 0.5
    after = [b + MOMENTUM * (torch.stack(s).mean(0) - b) for b, s in zip(before, (means, variances))]
    if len(groups) == 1:  # with one group, PyTorch itself makes the same step
        layer.momentum = MOMENTUM
        layer.running_mean, layer.running_var = before[0].clone(), before[1].clone()
        layer(x)
        assert torch.allclose(after[0], layer.running_mean) and torch.allclose(after[1], layer.running_var)
        after = [layer.running_mean, layer.running_var]
    for key, b, a in zip(("mean", "var"), before, after):
        write(out, f"{name}.running_{key}", b)
        write(out, f"{name}.{key}_after", a)
    layer.running_mean, layer.running_var = after
    write(out, f"{name}.inference", layer.eval()(x))


def relu_after_norm(out, name, adds):
    """Writes a case of a drawn shape. Every group except the last has `group` samples."""
    def draw(low, high):
        return int(torch.randint(low, high + 1, ()))

    shape = (draw(2, 8), draw(1, 5), *(draw(1, 4) for _ in range(draw(0, 1) * 2)))
    group = draw(2, shape[0])
    sizes = [group] * (shape[0] // group - 1) + [group + shape[0] % group]
    layer = start(nn.BatchNorm1d(shape[1], eps=EPS) if len(shape) < 4 else nn.BatchNorm2d(shape[1], eps=EPS))
    a = torch.randn(shape).requires_grad_()

    def function(x):
        y = torch.cat([layer(part) for part in x.split(sizes)])
        return torch.relu(y + a if adds else y)

    differentiate(out, name, layer, torch.randn(shape), function)
    write(out, f"{name}.group", torch.tensor([group], dtype=torch.float64))
    if adds:
        write(out, f"{name}.a", a)
        write(out, f"{name}.da", a.grad)


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(21)
    with open(pathlib.Path(__file__).resolve().parent / "norm.txt", "w") as out:
        layer = start(nn.LayerNorm(5, eps=EPS))
        differentiate(out, "layer_norm", layer, 2 + torch.randn(3, 4, 5), layer)
        layer = start(nn.RMSNorm(6, eps=EPS))
        differentiate(out, "rms_norm", layer, torch.randn(4, 3, 6), layer)
        layer = start(nn.GroupNorm(3, 6, eps=EPS))
        differentiate(out, "group_norm", layer, 1 + torch.randn(3, 6, 2, 3), layer)
        batch_norm(out, "batch_norm", (5, 3, 2, 3), [5])
        batch_norm(out, "batch_norm_groups", (7, 3, 2, 2), [3, 4])
        batch_norm(out, "batch_norm_flat", (9, 4), [3, 3, 3])
        batch_norm(out, "batch_norm_sequence", (4, 2, 5), [4])
        for i in range(8):
            relu_after_norm(out, f"end{i}", adds=i % 2 == 1)


if __name__ == "__main__":
    main()
