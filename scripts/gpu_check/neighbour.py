"""Takes the rest of the first GPU's memory, writes the number of bytes to a file, and keeps them until it is ended. It
does not use brim. For correct.py.

    neighbour.py FILE"""

import contextlib
import ctypes
import pathlib
import sys
import time


def runtime():
    with contextlib.suppress(OSError):
        ctypes.CDLL("libbrim.so.0", ctypes.RTLD_GLOBAL)  # the emulated library calls functions of libbrim
    for name in ("libcuda_emulated_runtime.so", "libcudart.so.13", "libcudart.so.12"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    sys.exit("neighbour: no CUDA runtime can be loaded")


def main():
    cuda, taken, piece = runtime(), 0, 256 << 20
    while piece >= 1 << 20:
        if cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(piece)) == 0:
            taken += piece
        else:
            piece //= 2
    report = pathlib.Path(sys.argv[1])
    report.with_suffix(".part").write_text(str(taken))
    report.with_suffix(".part").replace(report)
    time.sleep(3600)


if __name__ == "__main__":
    main()
