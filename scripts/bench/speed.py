#!/usr/bin/env python3
"""Compares brim with PyTorch on this machine's processor: the same networks, batches, optimizers and threads, in turn,
so that other load on the machine affects both.

    python3 scripts/bench/speed.py [CASE]... [--rounds 5] [--threads 2] [--modes eager,channels_last,compile] [--grain]

Prints for each case samples/s, peak resident memory and the time from the start of the process to the end of the first
step, whole and less the time of a later step: minimum, median and maximum of the rounds, and the ratio of brim to each
mode of PyTorch by round. Then shows where brim's step spends its time (`brim plan --times`): the operations furthest
above the least time for their work. The cases llmc-* are networks that llm.c's CPU program trains, with 4 sequences a
step; their times are compared with that of their arithmetic at the speed of a large matrix product on this machine.
--grain: also runs brim with the whole batch as one grain, which shows the cost of results that do not depend on the
micro-batch.

Python with PyTorch: BRIM_TORCH_PYTHON, else one is made in ~/.cache/brim/torch (network). A built brim: BRIM_BINARY,
else build/release is built.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = [("samples_per_second", "samples/s", 1, "{:10.1f}"), ("rss_peak_bytes", "peak RSS, MiB", 2**-20, "{:10.1f}"),
           ("first_step_seconds", "first step, s", 1, "{:10.3f}"),
           ("start_seconds", "first step less a step, s", 1, "{:10.3f}")]

ADAMW = ["optimizer=adamw", "optimizer.lr=1e-3"]
SGD = ["optimizer=sgd", "optimizer.lr=0.01", "optimizer.momentum=0.9", "optimizer.weight_decay=5e-4"]
FASHION = ["dataset=fashion_mnist"]


def gpt2(layers, width, heads, context, vocabulary):
    return (["model=gpt2", f"model.layers={layers}", f"model.width={width}", f"model.heads={heads}", "model.dropout=0",
             f"model.context={context}", *ADAMW], "tokens", (context, vocabulary))


# brim's overrides, the data to generate (or None), and its size
CASES = {"cnn": (128, 120, ["model=cnn", *FASHION, *ADAMW], None, None),
         "mlp": (128, 2000, ["model=mlp", *FASHION, *ADAMW], None, None),
         "resnet18": (64, 12, ["model=resnet18", *SGD], "cifar", None),
         "vit": (64, 20, ["model=vit_tiny", "model.patch=4", *ADAMW], "cifar", None),
         "gpt2": (4, 10, *gpt2(6, 384, 6, 256, 50257)),
         "llmc-256-128": (4, 10, *gpt2(6, 384, 6, 128, 256)),
         "llmc-256-256": (4, 10, *gpt2(6, 384, 6, 256, 256)),
         "llmc-50257-128": (4, 10, *gpt2(6, 384, 6, 128, 50257)),
         "llmc-50257-256": (4, 10, *gpt2(6, 384, 6, 256, 50257)),
         "llmc-124m-64": (4, 6, *gpt2(12, 768, 12, 64, 50257))}


# ---- data ----

def make_cifar(folder, _):
    """Writes CIFAR-10's binary format: a label and 3072 bytes a picture."""
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        picture = random.Random(name)
        (folder / name).write_bytes(b"".join(bytes([i % 10]) + picture.randbytes(3072) for i in range(10000)))
    return ["dataset=cifar10", f"dataset.path={folder}"]


def make_tokens(folder, size):
    """Writes nanoGPT's format: 16 bits a token."""
    context, vocabulary = size
    draw = random.Random(1)
    for name, rows in (("train.bin", 2048), ("val.bin", 8)):
        (folder / name).write_bytes(b"".join(draw.randrange(vocabulary).to_bytes(2, "little")
                                             for _ in range(rows * (context + 1))))
    return ["dataset=tokens", f"dataset.path={folder}", f"dataset.context={context}",
            f"dataset.vocabulary={vocabulary}"]


def words_of(case, folder):
    batch, steps, words, data, size = CASES[case]
    make = {"cifar": make_cifar, "tokens": make_tokens, None: lambda *_: []}[data]
    # only training steps: no augmentation, and no evaluation or checkpoint except the last
    return [*words, *make(folder, size), "augment=none", "backend=cpu", f"training.batch_size={batch}",
            "training.gradient_accumulation_steps=1", "training.eval_every_steps=1000000000",
            "training.checkpoint_every_steps=1000000000", f"training.steps={steps}"]


# ---- contenders ----

def run_brim(options, words):
    with tempfile.TemporaryDirectory(prefix="brim-bench-") as folder:
        run = pathlib.Path(folder) / "run"
        subprocess.run([options.brim, "--quiet", "train", *words, f"backend.threads={options.threads}",
                        f"run.dir={run}", *options.overrides], check=True, stdout=subprocess.DEVNULL)
        return json.loads((run / "summary.json").read_text())


def run_torch(options, case, mode):
    # The first steps include compilation, so samples/s leaves them out; first_step_seconds has it.
    batch, steps = CASES[case][:2]
    warm_up = 4 if mode == "compile" else 1
    argv = [options.python, HERE / "torch_speed.py", "--case", case, "--steps", str(steps + warm_up), "--batch",
            str(batch), "--threads", str(options.threads), "--mode", mode, "--warm-up", str(warm_up)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "PYTHONWARNINGS": "ignore"}
    out = subprocess.run(argv, check=True, stdout=subprocess.PIPE, env=environment, text=True).stdout
    return json.loads(out.splitlines()[-1])


def modes_of(options, case):
    if case.startswith("llmc"):
        return []
    convolves = case in ("cnn", "resnet18")
    return [mode for mode in options.modes.split(",") if mode != "channels_last" or convolves]


# ---- output ----

def spread(values, scale, form):
    values = [value * scale for value in values]
    return " ".join(form.format(v) for v in (min(values), statistics.median(values), max(values)))


def print_figures(case, results):
    for key, title, scale, form in FIGURES:
        print(f"  {title:26} {'min':>8} {'median':>10} {'max':>10}      brim relative to it (min, median, max)")
        for name, rows in results.items():
            line = f"    {name:20} {spread([r[key] for r in rows], scale, form)}"
            if name != "brim":
                line += "      " + spread([b[key] / r[key] for b, r in zip(results["brim"], rows)], 1, "{:.3f}x")
            print(line)
    imported = [r["rss_import_bytes"] for rows in results.values() for r in rows if "rss_import_bytes" in r]
    if imported:
        print(f"  importing PyTorch alone takes {statistics.median(imported) * 2**-20:.1f} MiB of its memory")


def print_times(options, case, words, results):
    with tempfile.TemporaryDirectory(prefix="brim-bench-") as folder:  # an empty profile: times must be measured now
        argv = [options.brim, "plan", *words, f"backend.threads={options.threads}", f"memory.profile={folder}/profile",
                "--times", "--json", *options.overrides]
        times = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout)["times"]
    step = CASES[case][0] / statistics.median(r["samples_per_second"] for r in results["brim"])
    operations = times["operations"]
    flops, work = sum(o["flops"] for o in operations), sum(o["seconds"] for o in operations)
    arithmetic = flops / times["flops_per_second"]
    print(f"  a step {1e3 * step:.1f} ms; its operations, each timed alone, {1e3 * work:.1f} ms; arithmetic at"
          f" {1e-9 * times['flops_per_second']:.0f} GFLOP/s {1e3 * arithmetic:.1f} ms, the step {step / arithmetic:.2f}"
          f" times that")
    for o in operations[:options.show]:
        more = f" and {o['nodes'] - 1} more" if o["nodes"] > 1 else ""
        print(f"    {o['op'] + ' ' + repr(o['name']) + more:60} {1e3 * o['seconds']:9.2f} ms"
              f" {1e3 * (o['seconds'] - o['floor_seconds']):9.2f} above its floor")
    print()


def measure(options, case):
    with tempfile.TemporaryDirectory(prefix="brim-bench-data-") as folder:
        words = words_of(case, pathlib.Path(folder))
        contenders = {"brim": lambda: run_brim(options, words)}
        for mode in modes_of(options, case):
            contenders[f"torch {mode}"] = lambda mode=mode: run_torch(options, case, mode)
        if options.grain:
            contenders["brim, one grain"] = lambda: run_brim(options, [*words, f"training.grain={CASES[case][0]}"])
        results = {name: [] for name in contenders}
        for turn in range(options.rounds):
            # every second round goes in reverse order, so that no program always comes second
            for name in list(contenders)[::1 if turn % 2 == 0 else -1]:
                result = contenders[name]()
                result["start_seconds"] = result["first_step_seconds"] - CASES[case][0] / result["samples_per_second"]
                results[name].append(result)
                print(f"{case}: round {turn + 1}/{options.rounds}  {name:20}"
                      f" {results[name][-1]['samples_per_second']:8.1f} samples/s", file=sys.stderr)
        print(f"{case}, batch {CASES[case][0]}, {options.threads} threads, {options.rounds} rounds")
        print_figures(case, results)
        print_times(options, case, words, results)
        sys.stdout.flush()


def program(name):
    return subprocess.run([HERE / name], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=" ".join(CASES) + "; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--modes", default="eager,channels_last,compile")
    parser.add_argument("--grain", action="store_true", help="also run brim with the whole batch as one grain")
    parser.add_argument("--show", type=int, default=8, help="number of operations of brim's step to show")
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="an override for brim")
    options = parser.parse_args()
    unknown = [case for case in options.cases if case not in CASES]
    if unknown:
        parser.error(f"no such case: {unknown[0]}; there are {', '.join(CASES)}")
    options.brim, options.python = program("brim_binary.sh"), program("torch_python.sh")
    for case in options.cases or CASES:
        measure(options, case)


if __name__ == "__main__":
    main()
