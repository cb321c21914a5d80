#!/usr/bin/env python3
"""Runs brim and PyTorch in turn and compares what they say. See compare_torch.sh."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = [("samples_per_second", "samples/s", 1, "{:10.0f}"), ("rss_peak_bytes", "peak RSS, MiB", 1 / 2**20, "{:10.1f}"),
           ("first_step_seconds", "first step, s", 1, "{:10.3f}")]


def run_brim(options):
    with tempfile.TemporaryDirectory(prefix="brim-bench-") as folder:
        run = pathlib.Path(folder) / "run"
        # Nothing but steps: no evaluation, no checkpoint but the last, no augmentation, as in torch_cnn.py.
        argv = [options.brim, "--quiet", "train", f"run.dir={run}", "model=cnn", "dataset=fashion_mnist",
                "optimizer=adamw", "backend=cpu", f"backend.threads={options.threads}", "training.batch_size=128",
                "training.gradient_accumulation_steps=1", f"training.steps={options.steps}", "augment.flip=false",
                "training.eval_every_steps=1000000000", "training.checkpoint_every_steps=1000000000",
                *options.overrides]
        subprocess.run(argv, check=True)
        return json.loads((run / "summary.json").read_text())


def run_torch(options, mode):
    # compiling goes on for some steps; they are left out of samples/s and the time of the first one shows it
    argv = [options.python, HERE / "torch_cnn.py", "--steps", str(options.steps), "--threads", str(options.threads),
            "--mode", mode, "--warm-up", "10" if mode == "compile" else "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "PYTHONWARNINGS": "ignore"}
    out = subprocess.run(argv, check=True, stdout=subprocess.PIPE, env=environment, text=True).stdout
    return json.loads(out.splitlines()[-1])


def spread(values, scale, form):
    values = [value * scale for value in values]
    return " ".join(form.format(v) for v in (min(values), statistics.median(values), max(values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brim", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--modes", default="eager")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    contenders = {"brim": lambda: run_brim(options)}
    for mode in options.modes.split():
        contenders[f"torch {mode}"] = lambda mode=mode: run_torch(options, mode)

    results = {name: [] for name in contenders}
    for turn in range(options.rounds):
        # every second round backwards: neither is always the one after the other
        for name in list(contenders)[::1 if turn % 2 == 0 else -1]:
            results[name].append(contenders[name]())
            rate = results[name][-1]["samples_per_second"]
            print(f"round {turn + 1}/{options.rounds}  {name:20} {rate:8.0f} samples/s", file=sys.stderr)

    version = next(r["torch"] for name, rows in results.items() if name != "brim" for r in rows)
    print(f"cnn, Fashion-MNIST, micro-batch 128, AdamW, {options.threads} threads, {options.steps} steps,"
          f" {options.rounds} rounds; PyTorch {version}")
    for key, title, scale, form in FIGURES:
        print(f"\n{title:15} {'min':>17} {'median':>10} {'max':>10}      brim against it (per round: min, median, max)")
        for name, rows in results.items():
            line = f"  {name:20} {spread([r[key] for r in rows], scale, form)}"
            if name != "brim":
                ratios = [b[key] / r[key] for b, r in zip(results["brim"], rows)]
                line += "      " + spread(ratios, 1, "{:.3f}x")
            print(line)
    imported = statistics.median(r["rss_import_bytes"] for name, rows in results.items() if name != "brim" for r in rows)
    print(f"\nImporting PyTorch alone takes {imported / 2**20:.1f} MiB of its resident memory.")


if __name__ == "__main__":
    main()
