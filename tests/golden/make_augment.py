#!/usr/bin/env python3
"""Writes augment.txt for tests/unit/test_augment.c: the results of Pillow and NumPy for random images.

RandAugment: torchvision's operations (transforms/autoaugment.py, with nearest pixels) by Pillow, as torchvision calls
it for pictures. Gaussian blur: torchvision's formula in float64. CutMix: torchvision.transforms.v2's box. The random
numbers are brim's: Philox4x32-10, implemented again here.

    make_augment.py > augment.txt        needs Pillow and NumPy
"""

import math

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

CASES = 400
BLOCKS = 1 << 24
MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def drawn(case, block):
    """Returns the random numbers of sample `case` in epoch 2 with seed 5, for the first augmentation of the list."""
    return philox([BLOCKS + block, case, 0, 4 << 24 | 2], [5, 0])


def below(x, n):
    return x * n >> 32


def uniform(x):
    return x / 4294967296


def made(case, count, low, width):
    """Returns bytes in a range that starts at `low`."""
    return [low + philox([i, case, 0, 0], [1, 2])[0] % width for i in range(count)]


def digest(data):
    out = 0xCBF29CE484222325
    for byte in data:
        out = (out ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return out


def line(start, end, i, bins):
    a, b = np.float32(start), np.float32(end)
    step = np.float32((b - a) / np.float32(bins - 1))
    exact = float(a) + float(step) * i if i < bins // 2 else float(b) - float(step) * (bins - 1 - i)
    return float(np.float32(exact))  # rounded once, like torch.linspace on processors with fused multiply-add


def affine(image, matrix):
    return image.transform(image.size, Image.AFFINE, matrix, Image.NEAREST)


def operate(image, what, i, bins, sign):
    width, height = image.size
    factor = 1.0 + sign * line(0, 0.9, i, bins)
    if what in (1, 2):
        x = math.tan(math.radians(math.degrees(math.atan(sign * line(0, 0.3, i, bins)))))
        return affine(image, [1, x, 0, 0, 1, 0] if what == 1 else [1, 0, 0, x, 1, 0])
    if what in (3, 4):
        x = int(sign * line(0, 150.0 / 331.0 * (width if what == 3 else height), i, bins))
        return affine(image, [1, 0, -x, 0, 1, 0] if what == 3 else [1, 0, 0, 0, 1, -x])
    if what == 5:
        return image.rotate(sign * line(0, 30, i, bins), Image.NEAREST)
    if what in (6, 7, 8, 9):
        kind = (ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Sharpness)[what - 6]
        return kind(image).enhance(factor)
    if what == 10:
        return ImageOps.posterize(image, 8 - int(np.rint(np.float32(i) / np.float32((bins - 1) / 4))))
    if what == 11:
        return ImageOps.solarize(image, line(255, 0, i, bins))
    return (image, ImageOps.autocontrast(image), ImageOps.equalize(image))[max(what - 11, 0)]


def shape_of(case):
    x = philox([0, case, 1, 0], [1, 2])
    return (1 if x[0] & 1 else 3), 3 + below(x[1], 38), 3 + below(x[2], 38)


def image_of(case):
    channels, rows, columns = shape_of(case)
    x = philox([1, case, 1, 0], [1, 2])
    low = below(x[0], 200)
    pixels = np.array(made(case, channels * rows * columns, low, 1 + below(x[1], 256 - low)), np.uint8)
    return pixels.reshape(rows, columns, channels)


def randaugment(case):
    pixels = image_of(case)
    x = philox([2, case, 1, 0], [1, 2])
    operations, bins = 1 + below(x[0], 4), (31, 11, 2)[below(x[1], 3)]
    i = below(x[2], bins)
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    for k in range(operations):
        r = drawn(case, k)
        image = operate(image, below(r[0], 14), i, bins, -1 if r[1] >> 31 else 1)
    return f"randaugment {operations} {i} {bins} {digest(image.tobytes()):016x}"


def blur(case):
    pixels = image_of(case)
    x = philox([2, case, 1, 0], [1, 2])
    size = 2 * min(below(x[0], 6), min(pixels.shape[:2]) - 1) + 1
    least, most = 0.1 + uniform(x[1]), 1.2 + 3 * uniform(x[2])
    half, r = size // 2, drawn(case, 0)
    sigma = least + (most - least) * uniform(r[1])
    kernel = np.exp(-0.5 * (np.linspace(-half, half, size) / sigma) ** 2)
    kernel /= kernel.sum()
    padded = np.pad(pixels.astype(np.float64), ((half, half), (half, half), (0, 0)), "reflect")
    rows, columns, _ = pixels.shape
    out = sum(kernel[a] * kernel[b] * padded[a:a + rows, b:b + columns] for a in range(size) for b in range(size))
    return f"gaussian_blur {size} {least!r} {most!r} {digest(np.rint(out).astype(np.uint8).tobytes()):016x}"


def cutmix(case):
    channels, rows, columns = shape_of(case)
    x = philox([2, case, 1, 0], [1, 2])
    alpha = (0.2, 1.0, 3.0)[below(x[0], 3)]
    r, place = drawn(case, 0), drawn(case, 1)
    q, c = uniform(r[0]) ** (1 / alpha), math.cos(2 * math.pi * uniform(r[1]))
    lam = float(np.float32(0.5 + 0.5 * c / math.sqrt(q / (1 - q) + c * c)))
    own = np.arange(channels * rows * columns, dtype=np.float32).reshape(channels, rows, columns)
    partner = -own - 1
    r_x, r_y, half = below(place[0], columns), below(place[1], rows), 0.5 * math.sqrt(1.0 - lam)
    w, h = int(half * columns), int(half * rows)
    x1, y1, x2, y2 = max(r_x - w, 0), max(r_y - h, 0), min(r_x + w, columns), min(r_y + h, rows)
    own[:, y1:y2, x1:x2] = partner[:, y1:y2, x1:x2]
    share = np.float32(1.0 - float((x2 - x1) * (y2 - y1) / (columns * rows)))
    return f"cutmix {alpha} {float(share)!r} {digest(own.tobytes()):016x}"


def main():
    for case in range(CASES):
        print(randaugment(case))
        print(blur(case))
        print(cutmix(case))


main()
