"""Trains a linear model with optimizer=ademamix on the reference backend, which computes in double precision, and
computes the paper's formulas for the same steps in plain Python: parameters and states must agree to 1e-9.

    python3 paper.py BRIM FOLDER [--plugin-path DIR]...    # FOLDER receives data and runs
"""

import json
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys

SAMPLES, FEATURES, TARGETS, STEPS = 8, 3, 2, 20
KEYS = ["lr", "beta1", "beta2", "beta3", "alpha", "warmup", "eps", "weight_decay"]
SETTINGS = [dict(zip(KEYS, values)) for values in [  # warm-ups: none; two that end in the run; one that is longer
    (0.01, 0.9, 0.999, 0.9999, 8, 0, 1e-8, 0),
    (0.05, 0.8, 0.95, 0.99, 3, 11, 1e-3, 0.1),
    (0.02, 0.5, 0.9, 0.999, 5, 20, 1e-8, 0.2),
    (0.02, 0.9, 0.5, 0.95, 2, 90, 1e-6, 0.1),
]]


def write_samples(path):
    draw = random.Random(1)
    rows = [[draw.randrange(-64, 65) / 32 for _ in range(FEATURES + TARGETS)] for _ in range(SAMPLES)]
    path.mkdir(parents=True, exist_ok=True)
    text = "\n".join(",".join(map(str, row)) for row in [["a", "b", "c", "s", "t"], *rows])
    (path / "train.csv").write_text(text + "\n", encoding="utf-8")
    return [row[:FEATURES] for row in rows], [row[FEATURES:] for row in rows]


def tensors(path):
    """Returns the tensors of a safetensors file; all must be doubles."""
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F64", f"{name} is {entry['dtype']}"
        out[name] = list(struct.unpack_from(f"<{(end - begin) // 8}d", data, 8 + length + begin))
    return out


def train(brim, folder, name, settings, steps):
    """Returns the parameters and states after the steps."""
    run = folder / name
    shutil.rmtree(run, ignore_errors=True)
    words = [f"optimizer.{key}={value}" for key, value in settings.items()]
    subprocess.run([*brim, "--quiet", "train", "optimizer=ademamix", *words, "optimizer.no_decay=*.bias",
                    "schedule=constant", "loss=mse", "dataset=csv", f"dataset.path={folder / 'data'}", "dataset.test=",
                    "dataset.targets=[s,t]", "dataset.standardise=false", "model=mlp", "model.hidden=[]",
                    "backend=reference", f"training.batch_size={SAMPLES}", f"training.steps={steps}", f"run.dir={run}"],
                   check=True)
    last = run / "checkpoints" / "last"
    return {**tensors(last / "model.safetensors"), **tensors(last / "optimizer.safetensors")}


def gradients(weight, bias, x, t):
    """The gradients of the mean of (x weight + bias - t)^2 over samples and targets; weight is [TARGETS, FEATURES]."""
    dw, db = [0.0] * len(weight), [0.0] * len(bias)
    for sample, target in zip(x, t):
        for k in range(TARGETS):
            row = weight[k * FEATURES:(k + 1) * FEATURES]
            slope = 2 / (SAMPLES * TARGETS) * (sum(a * b for a, b in zip(row, sample)) + bias[k] - target[k])
            db[k] += slope
            for f in range(FEATURES):
                dw[k * FEATURES + f] += slope * sample[f]
    return dw, db


def beta3_at(s, t):
    """Returns beta_3 of step t as the authors' program does: its half-life rises linearly from that of beta_1."""
    def half_life(beta):
        return math.log(0.5) / math.log(beta + 1e-8) - 1

    if t >= s["warmup"]:
        return s["beta3"]
    share = t / s["warmup"]
    return 0.5 ** (1 / ((1 - share) * half_life(s["beta1"]) + share * half_life(s["beta3"]) + 1))


def follow(s, values, x, t):
    names = ["fc1.weight", "fc1.bias"]
    p = {name: list(values[name]) for name in names}
    fast, slow, square = ({name: [0.0] * len(p[name]) for name in names} for _ in range(3))
    for at in range(1, STEPS + 1):
        alpha = s["alpha"] * min(1, at / s["warmup"]) if s["warmup"] else s["alpha"]
        beta3 = beta3_at(s, at)
        for name, gradient in zip(names, gradients(p["fc1.weight"], p["fc1.bias"], x, t)):
            decay = s["weight_decay"] if name == "fc1.weight" else 0
            for i, g in enumerate(gradient):
                fast[name][i] = s["beta1"] * fast[name][i] + (1 - s["beta1"]) * g
                slow[name][i] = beta3 * slow[name][i] + (1 - beta3) * g
                square[name][i] = s["beta2"] * square[name][i] + (1 - s["beta2"]) * g * g
                m = fast[name][i] / (1 - s["beta1"]**at)
                v = square[name][i] / (1 - s["beta2"]**at)
                p[name][i] -= s["lr"] * ((m + alpha * slow[name][i]) / (math.sqrt(v) + s["eps"]) + decay * p[name][i])
    for state, of in (("exp_avg_fast", fast), ("exp_avg_slow", slow), ("exp_avg_sq", square)):
        p.update({f"{name}.{state}": of[name] for name in names})
    return p


def main(brim, folder, *options):
    folder = pathlib.Path(folder)
    x, t = write_samples(folder / "data")
    first = train([brim, *options], folder, "first", {"lr": 0, "weight_decay": 0}, 1)
    for s in SETTINGS:
        got, expected = train([brim, *options], folder, "run", s, STEPS), follow(s, first, x, t)
        assert sorted(got) == sorted(expected), sorted(got)
        worst = max(abs(a - b) for name, values in expected.items() for a, b in zip(values, got[name]))
        print(f"{s}: {worst:.1e}")
        assert worst < 1e-9


main(*sys.argv[1:])
