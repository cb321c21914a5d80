#!/usr/bin/env python3
"""Makes reference.safetensors with the format's own library (pip install safetensors numpy).

Made once, with safetensors 0.8.0 and numpy 2.4.6; the file is checked in, so the tests need neither. It holds what brim
reads: each dtype, a scalar, a tensor without elements, metadata, and a name that JSON escapes.
"""
import pathlib

import numpy
from safetensors.numpy import save_file

tensors = {
    "conv1.weight": numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 2, 2) / 8 - 1,
    "conv1.bias": numpy.array([0.5, -0.25], dtype=numpy.float32),
    "running.mean": numpy.array([1e300, -1e-300, 0.1], dtype=numpy.float64),
    "labels": numpy.array([[1, -2, 3], [2147483647, -2147483648, 0]], dtype=numpy.int32),
    "mask": numpy.array([0, 1, 255, 7, 9], dtype=numpy.uint8),
    "scale": numpy.array(3.25, dtype=numpy.float32),
    "empty": numpy.zeros((0, 4), dtype=numpy.float32),
    'a "quoted" näme\n': numpy.array([42], dtype=numpy.int32),
}
save_file(tensors, pathlib.Path(__file__).with_name("reference.safetensors"), metadata={"format": "np", "note": "ä\t"})
