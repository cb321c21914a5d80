#!/usr/bin/env python3
"""Makes conv.txt: PyTorch's results, in double precision, for convolutions with groups, dilation and without bias, for
transposed ones, for pooling and for upsampling, each with its gradients.

    python3 tests/golden/make_conv.py        # needs torch; writes into this folder

For each case: its inputs, the result y, the incoming gradient dy, and the gradients of the inputs. The cases are
repeated in tests/conformance/test_golden_conv.c. Pooled numbers repeat, so that windows have several maxima.

The cases relu_max0 to relu_max5 are max_pool2d(relu(x)) of drawn shapes, with the kernel, stride and padding.
"""
import pathlib

import torch
import torch.nn.functional as F

from make_move import case, write


def conv(out, name, function, x, filters, kernel, bias=True, groups=1, **options):
    inputs = {"x": torch.randn(x), "weight": torch.randn(filters, x[1] // groups, *kernel)}
    if bias:
        inputs["bias"] = torch.randn(filters)
    case(out, name, lambda **tensors: function(tensors.pop("x"), groups=groups, **tensors, **options), **inputs)


def transposed(out, name, function, x, filters, kernel, bias=True, groups=1, **options):
    inputs = {"x": torch.randn(x), "weight": torch.randn(x[1], filters // groups, *kernel)}
    if bias:
        inputs["bias"] = torch.randn(filters)
    case(out, name, lambda **tensors: function(tensors.pop("x"), groups=groups, **tensors, **options), **inputs)


def resized(out, name, shape, **options):
    case(out, name, lambda x: F.interpolate(x, **options), x=torch.randn(shape))


def pool(out, name, function, *shape):
    case(out, name, function, x=torch.randint(-3, 4, shape).double() / 2)


def relu_max(out, name):
    def draw(low, high):
        return int(torch.randint(low, high + 1, ()))

    kernel = draw(1, 3), draw(1, 3)
    stride = draw(1, 3), draw(1, 3)
    padding = draw(0, kernel[0] // 2), draw(0, kernel[1] // 2)
    shape = draw(1, 3), draw(1, 4), kernel[0] + draw(0, 5), kernel[1] + draw(0, 5)
    pool(out, name, lambda x: F.max_pool2d(F.relu(x), kernel, stride, padding), *shape)
    write(out, f"{name}.options", torch.tensor([*kernel, *stride, *padding]).double())


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(17)
    with open(pathlib.Path(__file__).resolve().parent / "conv.txt", "w") as out:
        conv(out, "dilated", F.conv2d, (3, 2, 9, 7), 4, (3, 2), bias=False, padding=(2, 1), dilation=(2, 3))
        conv(out, "grouped", F.conv2d, (2, 6, 6, 5), 9, (2, 3), groups=3, stride=(1, 2), padding=(0, 1))
        conv(out, "depthwise", F.conv2d, (3, 5, 6, 6), 5, (3, 3), groups=5, stride=2, padding=1)
        conv(out, "multiplied", F.conv2d, (2, 3, 5, 4), 6, (3, 1), bias=False, groups=3, dilation=2)
        conv(out, "conv1d", F.conv1d, (3, 4, 11), 6, (3,), stride=2, padding=2, dilation=2)
        conv(out, "conv1d_grouped", F.conv1d, (2, 4, 7), 4, (4,), bias=False, groups=2)
        pool(out, "max", lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 1)), 2, 3, 7, 6)
        pool(out, "max1d", lambda x: F.max_pool1d(x, 3, 2, 1), 3, 2, 9)
        pool(out, "avg", lambda x: F.avg_pool2d(x, (3, 4), (2, 3), (1, 2)), 2, 2, 7, 9)
        pool(out, "avg_inside", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), 2, 2, 6, 5)
        pool(out, "adaptive", lambda x: F.adaptive_avg_pool2d(x, (3, 4)), 2, 3, 7, 6)
        pool(out, "adaptive_up", lambda x: F.adaptive_avg_pool2d(x, (5, 2)), 2, 2, 3, 4)
        pool(out, "global", lambda x: x.mean((2, 3)), 2, 4, 5, 3)
        pool(out, "global1d", lambda x: x.mean(2), 2, 4, 7)
        up2d, up1d = F.conv_transpose2d, F.conv_transpose1d
        options = {"stride": (2, 3), "padding": (1, 2), "output_padding": (1, 2), "dilation": (2, 1)}
        transposed(out, "up", up2d, (2, 3, 3, 2), 2, (3, 4), **options)
        transposed(out, "up_grouped", up2d, (3, 4, 3, 4), 6, (2, 3), bias=False, groups=2, stride=(1, 2))
        transposed(out, "up_dilated", up2d, (2, 2, 3, 3), 2, (2, 3), stride=(1, 2), padding=1,
                   output_padding=2, dilation=3)
        transposed(out, "up1d", up1d, (2, 4, 5), 6, (3,), groups=2, stride=3, padding=1, output_padding=1, dilation=2)
        resized(out, "nearest", (2, 2, 3, 4), size=(7, 6), mode="nearest")
        resized(out, "bilinear", (2, 2, 3, 4), scale_factor=(3, 2), mode="bilinear")
        resized(out, "bilinear_down", (2, 2, 7, 4), size=(3, 7), mode="bilinear")
        resized(out, "bilinear_aligned", (2, 2, 3, 1), size=(7, 3), mode="bilinear", align_corners=True)
        resized(out, "nearest1d", (2, 3, 5), scale_factor=2, mode="nearest")
        resized(out, "linear1d", (2, 3, 5), size=8, mode="linear")
        for i in range(6):
            relu_max(out, f"relu_max{i}")


if __name__ == "__main__":
    main()
