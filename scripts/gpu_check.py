#!/usr/bin/env python3
"""The stages of gpu_check.sh; see there. Every check has a name, a result and the figures it rests on."""

import argparse
import datetime
import filecmp
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import site
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CURVES = ROOT / "tests/golden/cuda_curves.json"
# Networks that between them have every family of operations that models are made of, small enough for the reference.
NETWORKS = {
    "mlp": ["model=mlp", "dataset=synthetic", "dataset.shape=[1,12,12]"],
    "cnn": ["model=cnn", "model.width=8", "dataset=synthetic", "dataset.shape=[1,16,16]"],
    "lightcnn": ["model=lightcnn", "dataset=synthetic", "dataset.shape=[1,28,28]"],
    "emotion_cnn": ["model=emotion_cnn", "dataset=synthetic", "dataset.shape=[1,48,48]"],
}
COMMON = ["dataset.train_count=512", "dataset.test_count=64", "training.batch_size=32", "training.steps=30",
          "training.gradient_accumulation_steps=2", "optimizer=adamw", "schedule=constant", "observe.log_every_steps=1",
          "augment.flip=false", "augment.crop_padding=0"]
FIRST_LOSS_ERROR_MAX = 1e-5   # fp32, relative, before rounding has been amplified
CURVE_ERROR_MAX = 3e-2        # the mean over the last ten steps, fp32
BF16_CURVE_ERROR_MAX = 1e-1   # likewise


class Checks:
    """What a stage found, kept with that of the others."""

    def __init__(self, options):
        self.options = options
        self.out = pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = self.out / "gpu_check.json"
        self.all = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.rows = []

    def add(self, name, good, **figures):
        self.rows.append({"check": name, "good": good, **figures})
        said = ", ".join(f"{key} {value}" for key, value in figures.items())
        print(f"{'ok    ' if good else 'FAILED' if good is False else 'skip  '} {name}: {said}", flush=True)

    def close(self, stage, seconds):
        self.all[stage] = {"seconds": round(seconds, 1), "device": device_name(self.options), "date":
                           datetime.date.today().isoformat(), "checks": self.rows}
        self.file.write_text(json.dumps(self.all, indent=1) + "\n")
        (self.out / "gpu_check.md").write_text(page(self.all))
        failed = sum(row["good"] is False for row in self.rows)
        self.rows = []
        return failed


def page(stages):
    text = ["# The cuda backend on a GPU", ""]
    for stage, found in stages.items():
        text += [f"## {stage}", "", f"{found['device']}, {found['date']}, {found['seconds']} s", "",
                 "| check | | figures |", "|---|---|---|"]
        for row in found["checks"]:
            figures = ", ".join(f"{k} {v}" for k, v in row.items() if k not in ("check", "good"))
            mark = {True: "ok", False: "**failed**", None: "skipped"}[row["good"]]
            text.append(f"| {row['check']} | {mark} | {figures} |")
        text.append("")
    return "\n".join(text)


# ---- running ----

def environment(options):
    """Libraries beside the build; cuDNN and cuBLAS where Python's packages have them, behind the toolkit's."""
    build = pathlib.Path(options.build).resolve()
    folders = [build / "lib", pathlib.Path("/usr/local/cuda/lib64")]
    for packages in site.getsitepackages() + [site.getusersitepackages()]:
        folders += sorted(pathlib.Path(packages).glob("nvidia/*/lib"))
    path = ":".join([str(f) for f in folders if f.is_dir()] + [os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
    return {**os.environ, "LD_LIBRARY_PATH": path, "BRIM_BUILD_DIR": str(build)}


def run(options, argv, **more):
    return subprocess.run([str(a) for a in argv], env={**environment(options), **more.pop("env", {})}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def brim(options, *words, **more):
    return run(options, [pathlib.Path(options.build) / "bin/brim", *words], **more)


def device_name(options):
    found = brim(options, "devices", "--json").stdout
    try:
        start = found.index("{")
        devices = json.loads(found[start:])["devices"]
        return next(d["name"] for d in devices if d["backend"] == "cuda")
    except (ValueError, KeyError, StopIteration):
        return "no GPU"


def train(options, folder, *words, **more):
    result = brim(options, "--quiet", "train", f"run.dir={folder}", *words, **more)
    if result.returncode != 0:
        raise RuntimeError(f"brim train {' '.join(words)}: exit status {result.returncode}\n{result.stdout[-2000:]}")
    return folder


def losses(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [r["loss"] for r in records if r["split"] == "train"]


def same_checkpoint(a, b):
    names = ["model.safetensors", "optimizer.safetensors"]
    return all(filecmp.cmp(a / "checkpoints/last" / n, b / "checkpoints/last" / n, shallow=False) for n in names)


# ---- conformance ----

def check_operations(options, checks):
    result = run(options, [pathlib.Path(options.build) / "tests/test_conformance", "cuda"])
    worst = [float(x) for x in re.findall(r"worst (\S+)", result.stdout)]
    cases = sum(int(x) for x in re.findall(r"(\d+) cases", result.stdout))
    (checks.out / "conformance.txt").write_text(result.stdout)
    checks.add("every operation against reference", result.returncode == 0, cases=cases,
               worst=max(worst, default=float("nan")))
    if result.returncode != 0:
        print(result.stdout[-4000:])


def check_curves(options, checks, folder):
    expected = json.loads(CURVES.read_text())
    for name, words in NETWORKS.items():
        for precision in ("fp32", "bf16"):
            got = losses(train(options, folder / f"{name}-{precision}", *words, *COMMON, "backend=cuda",
                               f"precision={precision}"))
            curve = expected[name]
            first = abs(got[0] - curve[0]) / curve[0]
            end, end_expected = sum(got[-10:]) / 10, sum(curve[-10:]) / 10
            error = abs(end - end_expected) / curve[0]
            good = error <= (CURVE_ERROR_MAX if precision == "fp32" else BF16_CURVE_ERROR_MAX)
            if precision == "fp32":
                good = good and first <= FIRST_LOSS_ERROR_MAX
            checks.add(f"curve of {name} in {precision}", good, first_loss_error=f"{first:.1e}",
                       last_losses=f"{end:.4f}", reference=f"{end_expected:.4f}")


def check_repeats(options, checks, folder):
    for precision in ("fp32", "bf16"):
        words = [*NETWORKS["cnn"], *COMMON, "backend=cuda", f"precision={precision}",
                 "training.checkpoint_every_steps=10", "training.keep_checkpoints=10", "training.eval_every_steps=10"]
        once, again, slow = (folder / f"{kind}-{precision}" for kind in ("once", "again", "slow"))
        train(options, once, *words)
        train(options, again, *words)
        train(options, slow, *words, "backend.debug_launches=true")
        checks.add(f"the same bits in every run, {precision}", same_checkpoint(once, again))
        checks.add(f"the same bits with one launch at a time, {precision}", same_checkpoint(once, slow))
        cut = folder / f"cut-{precision}"
        shutil.copytree(once, cut, symlinks=True)
        for step in (20, 30):
            shutil.rmtree(cut / f"checkpoints/step-{step:08d}")
        for link in ("last", "best"):
            (cut / "checkpoints" / link).unlink(missing_ok=True)
        (cut / "checkpoints/last").symlink_to("step-00000010")
        result = brim(options, "--quiet", "train", "--resume", cut)
        checks.add(f"resumed after step 10, {precision}", result.returncode == 0 and same_checkpoint(once, cut))
        summary = json.loads((once / "summary.json").read_text())
        checks.add(f"plan = bytes allocated, {precision}",
                   summary["planned_peak_bytes"] == summary["device_peak_bytes"] > 0,
                   planned=summary["planned_peak_bytes"], allocated=summary["device_peak_bytes"])


def check_refusals(options, checks, folder):
    result = brim(options, "--quiet", "train", f"run.dir={folder}/huge", "model=cnn", "dataset=synthetic",
                  "backend=cuda", "training.batch_size=1000000")
    checks.add("what does not fit is refused before the first step", result.returncode == 4,
               exit_status=result.returncode)


def conformance(options, checks):
    with tempfile.TemporaryDirectory(prefix="brim-gpu-") as folder:
        folder = pathlib.Path(folder)
        check_operations(options, checks)
        check_curves(options, checks, folder)
        check_repeats(options, checks, folder)
        check_refusals(options, checks, folder)


def record(options):
    """On the reference backend, in double precision."""
    with tempfile.TemporaryDirectory(prefix="brim-gpu-") as folder:
        found = {name: losses(train(options, pathlib.Path(folder) / name, *words, *COMMON, "backend=reference"))
                 for name, words in NETWORKS.items()}
    lines = [f' "{name}": [{", ".join(f"{x:.9g}" for x in curve)}]' for name, curve in found.items()]
    CURVES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


# ---- sanitize ----

def sanitize(options, checks):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not pathlib.Path(tool).exists():
        checks.add("compute-sanitizer", None, why="it is not installed")
        return
    program = pathlib.Path(options.build) / "tests/test_conformance"
    for kind in ("memcheck", "racecheck", "synccheck", "initcheck"):
        # One case of each row will do: what sanitizers see does not depend on the numbers.
        result = run(options, [tool, "--tool", kind, "--error-exitcode", "97", program, "cuda"],
                     env={"BENCH_CASES": "2" if kind == "memcheck" else "1"})
        refused = "Device not supported" in result.stdout or "not supported on this" in result.stdout
        errors = re.search(r"ERROR SUMMARY: (\d+) error", result.stdout) or re.search(
            r"RACECHECK SUMMARY: (\d+) hazard", result.stdout)
        (checks.out / f"{kind}.txt").write_text(result.stdout[-200000:])
        if refused:
            checks.add(kind, None, why="the host refuses compute-sanitizer the device")
            continue
        checks.add(kind, result.returncode == 0 and errors is not None and errors.group(1) == "0",
                   errors=errors.group(1) if errors else "no summary")


# ---- bench ----

def write_images(folder, count=60000):
    """Random pixels in the files that both read."""
    source = random.Random(1)
    for stem, n in (("train", count), ("t10k", 1000)):
        pixels = source.randbytes(n * 28 * 28)
        labels = bytes(source.randrange(10) for _ in range(n))
        for name, header, data in ((f"{stem}-images-idx3-ubyte", bytes([0, 0, 8, 3]) + n.to_bytes(4, "big")
                                    + (28).to_bytes(4, "big") * 2, pixels),
                                   (f"{stem}-labels-idx1-ubyte", bytes([0, 0, 8, 1]) + n.to_bytes(4, "big"), labels)):
            with gzip.open(folder / f"{name}.gz", "wb", compresslevel=1) as file:
                file.write(header + data)


def brim_rate(options, folder, data, batch, precision, steps, *words):
    workers = max(1, min(14, (os.cpu_count() or 2) - 2))
    # Two runs: what the longer one takes more is steps alone, without starting up.
    seconds = []
    for part in (steps, 3 * steps):
        run_dir = folder / f"brim-{batch}-{precision}-{part}-{len(words)}"
        train(options, run_dir, "model=cnn", "dataset=fashion_mnist", f"dataset.path={data}", "optimizer=adamw",
              "backend=cuda", f"precision={precision}", f"training.batch_size={batch}", f"training.steps={part}",
              "training.gradient_accumulation_steps=1", "augment.flip=false", "schedule=constant",
              f"training.num_workers={workers}", "training.eval_every_steps=1000000000",
              "training.checkpoint_every_steps=1000000000", "observe.log_every_steps=1000000", "training.epochs=1",
              *words)
        records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        rate = next(r["samples_per_second"] for r in records if r["split"] == "train")
        seconds.append(batch * part / rate)
        planned = json.loads((run_dir / "summary.json").read_text())["planned_peak_bytes"]
    return 2 * steps * batch / (seconds[1] - seconds[0]), planned


def torch_rates(options, folder, data, batch, steps):
    """Of every mode and precision: {mode: [samples/s, peak bytes]}."""
    result = run(options, [sys.executable, ROOT / "scripts/bench/torch_gpu.py", "--data", data, "--batch", batch,
                           "--steps", steps])
    if result.returncode != 0:
        print(result.stdout[-2000:])
        return {}
    return json.loads(result.stdout.splitlines()[-1])


def bench(options, checks):
    with tempfile.TemporaryDirectory(prefix="brim-gpu-") as name:
        folder = pathlib.Path(name)
        write_images(folder)
        for batch, steps in ((128, 1500), (1024, 500)):
            torch = torch_rates(options, folder, folder, batch, steps)
            for precision, words in (("fp32", []), ("fp32", ["backend.tf32=true"]), ("bf16", [])):
                label = "tf32" if words else precision
                try:
                    rate, planned = brim_rate(options, folder, folder, batch, precision, steps, *words)
                except RuntimeError as error:
                    checks.add(f"cnn, batch {batch}, {label}", False, error=str(error)[-300:])
                    continue
                figures = {"brim": f"{rate:.0f} samples/s, {planned / 2**20:.0f} MiB"}
                for mode in ("eager", "channels_last", "compiled"):
                    if f"{mode} {label}" in torch:
                        other, peak = torch[f"{mode} {label}"]
                        figures[f"torch {mode}"] = (f"{other:.0f} samples/s, {peak / 2**20:.0f} MiB: brim "
                                                    f"{rate / other:.2f} times the speed, {planned / peak:.2f} times "
                                                    "the memory")
                checks.add(f"cnn, batch {batch}, {label}", True if torch else None, **figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", default="build/gpu_check")
    parser.add_argument("stage", choices=["conformance", "sanitize", "bench", "all", "record"])
    options = parser.parse_args()
    if not (pathlib.Path(options.build) / "bin/brim").exists():
        sys.exit(f"gpu_check: there is no brim in {options.build}: build it (scripts/build.sh release), or pack it")
    if options.stage == "record":
        record(options)
        return
    if device_name(options) == "no GPU":
        sys.exit(f"gpu_check: no GPU can be used\n{brim(options, 'devices').stdout}")
    checks = Checks(options)
    failed = 0
    for stage in ["conformance", "sanitize", "bench"] if options.stage == "all" else [options.stage]:
        print(f"== {stage}", flush=True)
        start = time.monotonic()
        try:
            globals()[stage](options, checks)
        except RuntimeError as error:
            checks.add(stage, False, error=str(error))
        failed += checks.close(stage, time.monotonic() - start)
    print(f"{failed} failed; see {checks.file.with_suffix('.md')}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
