#!/usr/bin/env python3
"""Lists the resources that each kernel of the cuda backend uses, as the compiler reported them during the build.

    scripts/kernels.py BUILD       the folder of a build, as build/release

Prints a line per kernel and architecture: registers a thread, static shared memory a block, stack frame and spills a
thread, in bytes. Fails if a kernel spills registers to memory. Reads the files that cmake/keep_ptxas.sh writes next to
each object file."""

import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\w+)'")
OF = re.compile(r"Function properties for (\S+)")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
HEAD = ("arch", "registers", "shared", "stack", "spills", "file", "kernel")


def read(path):
    """Returns the kernels of an object file: {name, arch, registers, shared, stack, spills}. The stack of a function
    that was not inlined counts for the kernel that it was compiled with."""
    kernels, kernel = [], None
    for line in path.read_text(encoding="utf-8").splitlines():
        if entry := ENTRY.search(line):
            kernel = {"name": entry[1], "arch": entry[2], "registers": 0, "shared": 0, "stack": 0, "spills": 0}
            kernels.append(kernel)
        elif kernel and (frame := FRAME.search(line)):
            kernel["stack"] += int(frame[1])
            kernel["spills"] += int(frame[2]) + int(frame[3])
        elif kernel and (used := USED.search(line)):
            kernel["registers"] = int(used[1])
            shared = SHARED.search(line)
            kernel["shared"] = int(shared[1]) if shared else 0
    return kernels


def demangled(names):
    """Returns the names as in the source, without parameters; they stay unchanged if there is no c++filt."""
    try:
        text = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return names
    return [shorten(line) for line in text.splitlines()]


def shorten(name):
    """void f<float, (int)4>(long, char const*) -> f<float, 4>"""
    name = name.replace("(anonymous namespace)::", "")
    depth = 0
    for at, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            name = name[:at]
            break
    return re.sub(r"\((?:int|unsigned int|long|bool|char|\w+)\)(?=-?\w)", "", name.removeprefix("void "))


def main(folder):
    found = [path for path in sorted(pathlib.Path(folder).rglob("*.cu.o.ptxas")) if path.with_suffix("").exists()]
    kernels = [{**kernel, "file": path.name.removesuffix(".o.ptxas")} for path in found for kernel in read(path)]
    if not kernels:
        print(f"kernels: no kernels in {folder}: was backend/cuda built there?", file=sys.stderr)
        return 2
    for kernel, name in zip(kernels, demangled([kernel["name"] for kernel in kernels]), strict=True):
        kernel["kernel"] = name
    kernels.sort(key=lambda kernel: (kernel["file"], kernel["kernel"], kernel["arch"]))
    rows = [HEAD] + [tuple(str(kernel[key]) for key in HEAD) for kernel in kernels]
    width = [max(len(row[i]) for row in rows) for i in range(len(HEAD) - 1)]
    for row in rows:
        cells = [cell.rjust(w) if 0 < i < 5 else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, width))]
        print("  ".join([*cells, row[-1]]))
    spilling = [kernel for kernel in kernels if kernel["spills"]]
    for kernel in spilling:
        print(f"kernels: {kernel['file']}: {kernel['kernel']} spills on {kernel['arch']}", file=sys.stderr)
    print(f"{len(kernels)} kernels, {len(spilling)} of them spill")
    return 1 if spilling else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    sys.exit(main(sys.argv[1]))
