"""Writes x_train.npy, y_train.npy, x_test.npy and y_test.npy into a folder: sines, squares and saws of random phase, 64
numbers each, with noise. It writes the format by hand, so that NumPy need not be installed."""

import math
import pathlib
import random
import struct
import sys

LENGTH = 64
SHAPES = [math.sin, lambda a: math.copysign(1, math.sin(a)), lambda a: a / math.pi % 2 - 1]


def save(path, kind, shape, values):
    header = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    data = struct.pack("<%d%s" % (len(values), {"f4": "f", "i8": "q"}[kind]), *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    for split, count in (("train", 1500), ("test", 300)):
        x = []
        for i in range(count):
            phase, speed = draw.uniform(0, 2 * math.pi), draw.uniform(0.15, 0.4)
            x += [SHAPES[i % 3](phase + speed * t) + draw.gauss(0, 0.2) for t in range(LENGTH)]
        save(folder / f"x_{split}.npy", "f4", (count, LENGTH, 1), x)
        save(folder / f"y_{split}.npy", "i8", (count,), [i % 3 for i in range(count)])


main(pathlib.Path(sys.argv[1]))
