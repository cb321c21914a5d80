"""Checks that need a GPU, in two commands of at most ten minutes each, on a machine with only a driver, Python, PyTorch
and PyTorch's libraries.

    python3 scripts/gpu_check pack [--build build/release] [--out build/gpu]
    python3 build/gpu/gpu_check correct
    python3 build/gpu/gpu_check fast [--carried results.jsonl]
    python3 build/gpu/gpu_check page results.jsonl

pack     makes a folder with everything that the machine needs of a build, and trains reference loss curves on the CPU;
         needs a compiler and the build's libraries
correct  operations against the reference backend, sanitizers, loss curves, identical bits, resuming, ranks that share
         the GPU, memory as planned, a neighbour that takes the rest
fast     training compared with PyTorch, eager and compiled, on the same GPU; the largest micro-batch under a cap;
         kernels and the least time for their work
page     prints the results as Markdown

Each check writes a line when it ends, to results.jsonl and to standard output: ok, failed, unfinished (it ran out of
time, which is not ok) or skipped (this machine cannot do it). $OUT, or build/gpu_check, gets results.jsonl, results.md
and details.txt with the output of failed checks. A command continues where an earlier one on the same device and build
ended; on a machine that has lost its files, --carried names a saved results.jsonl.

Exit status: 0 all ok or skipped, 1 something failed, 2 nothing could be run, 3 something is unfinished."""

import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile

import correct
import fast
import pack
import results
from machine import HERE, Limit, Machine, perform

SECONDS = 570  # a command may take 600; the rest is for its start and end


def stop(text):
    print(f"gpu_check: {text}", file=sys.stderr)
    sys.exit(2)


def check(options, limit, scratch):
    on = Machine(options.build, scratch)
    if not on.gpu:
        stop(on.why_no_gpu())
    found = results.Results(options.out, {"command": options.command, "device": on.gpu["name"],
                                          "build": on.hash(*HERE.glob("*.py"))},
                            options.carried)
    if options.command == "correct":
        if not options.golden.exists():
            stop(f"no loss curves in {options.golden}: make a pack, and run gpu_check from it")
        curves = json.loads(options.golden.read_text(encoding="utf-8"))
        stages = correct.Correct(on, curves, options.reduced)
    else:
        stages = fast.Fast(on, options.reduced)

    def end(*_):
        """Ends started processes; results are already in the file."""
        on.end_all()
        os._exit(3)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for jobs, at_a_time in ((stages.alone(), 1), (stages.together(), min(options.jobs, stages.jobs_max)),
                            (stages.last(), 1)):
        perform([job for job in jobs if job.among(options.only)], found, limit, at_a_time)
    (options.out / "results.md").write_text(results.page(results.read(found.path)), encoding="utf-8")
    verdicts = [line["verdict"] for line in found.found]
    print(f"{', '.join(f'{verdicts.count(v)} {v}' for v in results.VERDICTS)}, {len(found.done)} ok before; see "
          f"{options.out / 'results.md'}")
    return 1 if "failed" in verdicts else 3 if "unfinished" in verdicts else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["pack", "correct", "fast", "page"])
    parser.add_argument("file", type=pathlib.Path, nargs="?", help="for page: a results.jsonl")
    root = HERE.parent  # this file is inside a pack
    if not (root / "bin/brim").exists():
        root = HERE.parents[1] / "build/release"
    parser.add_argument("--build", type=pathlib.Path, default=root, help="a build, or a pack")
    parser.add_argument("--golden", type=pathlib.Path, help="reference curves; default: the pack's")
    parser.add_argument("--out", type=pathlib.Path, help="output folder; default of pack: build/gpu")
    parser.add_argument("--carried", type=pathlib.Path, help="results.jsonl of an earlier command")
    parser.add_argument("--only", metavar="REGEX", default="", help="only checks whose names match")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 2), help="checks at a time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit; later checks are unfinished")
    parser.add_argument("--reduced", action="store_true", help="reduced sizes for a dry run on the emulated device")
    options = parser.parse_args()
    limit = Limit(options.seconds)
    if not (options.build / "bin/brim").exists():
        stop(f"no brim in {options.build}: build it (scripts/build.sh release), or name a build with --build")
    if options.command == "page":
        print(results.page(results.read(options.file)), end="")
        return 0
    with tempfile.TemporaryDirectory(prefix="brim-gpu-", ignore_cleanup_errors=True) as scratch:
        if options.command == "pack":
            return pack.pack(options.build, options.out or pathlib.Path("build/gpu"), scratch, options.reduced)
        options.golden = options.golden or HERE / "golden.json"
        options.out = options.out or pathlib.Path(os.environ.get("OUT", "build/gpu_check"))
        return check(options, limit, scratch)


if __name__ == "__main__":
    sys.exit(main())
