#!/usr/bin/env python3
"""The stages of gpu_check.sh; see there. Every check has a name, a result and the figures it rests on."""

import argparse
import contextlib
import datetime
import filecmp
import gzip
import hashlib
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CURVES = ROOT / "tests/golden/cuda_curves.json"
STAGE_SECONDS = 530  # where a command may take 10 minutes, with some left to write down what was found

# Networks that between them have every family of operations that models are made of, so small that the reference
# backend trains all of them within half a minute, and data so easy that their losses fall to a fraction.
NETWORKS = {
    "mlp": ["model=mlp", "dataset.shape=[1,12,12]", "dataset.noise=2", "training.steps=20"],
    "cnn": ["model=cnn", "model.width=8", "dataset.shape=[1,12,12]", "optimizer.lr=3e-3"],
    "lightcnn": ["model=lightcnn", "model.width=8", "dataset.shape=[1,16,16]", "optimizer.lr=3e-3"],
    "emotion_cnn": ["model=emotion_cnn", "model.dropout=0.1", "model.dropout_fc=0.25", "dataset.shape=[1,28,28]",
                    "dataset.noise=0.3", "training.batch_size=4", "training.steps=20"],
    "temperature_lstm": ["model=temperature_lstm", "model.hidden=16", "dataset.shape=[1,16,8]", "optimizer.lr=1e-2"],
    "mental_state": ["model=mental_state", "model.width=8", "model.hidden=16", "model.dropout=0.1",
                     "dataset.shape=[1,8,32]", "dataset.noise=0.3", "optimizer.lr=3e-3", "training.steps=60"],
}
# The words of a network come behind these.
COMMON = ["dataset=synthetic", "dataset.classes=4", "dataset.noise=0.5", "dataset.train_count=512",
          "dataset.test_count=64", "training.batch_size=16", "training.steps=40",
          "training.gradient_accumulation_steps=2", "optimizer=adamw", "schedule=constant", "observe.log_every_steps=1",
          "augment.flip=false", "augment.crop_padding=0"]
# Relative to the first loss. Backends that only sum in another order stay within 1e-6 on every step. Of a smaller type
# the first loss tells how finely it rounds; later ones tell no more, as emotion_cnn's norms over 4 samples make 1e-2 of
# 1e-6 within ten steps.
FIRST_LOSS_ERROR_MAX = {"fp32": 1e-5, "bf16": 2e-3, "fp16": 1e-4}  # before rounding has been amplified
LOSS_ERROR_MAX = {"fp32": 1e-3, "bf16": 1e-1, "fp16": 1e-1}        # of every step
LAST_LOSSES_ERROR_MAX = {"fp32": 1e-3, "bf16": 2e-2, "fp16": 2e-2} # of the mean of the last ten
FALL_MIN = 0.5                                                     # how far they must be below the first loss
# Curves are of steps that all have an update, so of a scale of the loss that none of these networks is too large for;
# repeats are of one that the first steps are too large for.
SCALE = {"fp16": ["loss_scale.init_scale=1024"]}
HUGE_SCALE = {"fp16": [f"loss_scale.init_scale={1 << 40}"]}


class OutOfTime(Exception):
    """The stage's time is up. What was found is kept."""


class Checks:
    """What a stage found, kept with that of the others; written after each check."""

    def __init__(self, options):
        self.out = pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = self.out / "gpu_check.json"
        self.stages = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.identity = {"device": device_name(options), "build": build_hash(options)}
        self.stage = None

    def open(self, name):
        """A stage, with what was found good when it was cut off on the same build and device."""
        before = self.stages.get(name, {})
        same = before.get("finished") is False and all(before.get(k) == v for k, v in self.identity.items())
        rows = [row for row in before.get("checks", []) if row["good"]] if same else []
        self.seconds = before["seconds"] if same else 0
        self.start = time.monotonic()
        self.stage = self.stages[name] = {**self.identity, "date": datetime.date.today().isoformat(), "seconds": 0,
                                          "finished": False, "checks": rows}
        if rows:
            print(f"{len(rows)} checks were done before", flush=True)
        self.write()

    def left(self):
        """Seconds of the stage's time."""
        return STAGE_SECONDS - (time.monotonic() - self.start)

    def lacks(self, *names):
        """Is one of these still to be done?"""
        done = {row["check"] for row in self.stage["checks"]}
        return any(name not in done for name in names)

    def add(self, name, good, **figures):
        self.stage["checks"] = [row for row in self.stage["checks"] if row["check"] != name]
        self.stage["checks"].append({"check": name, "good": good, **figures})
        said = ", ".join(f"{key} {value}" for key, value in figures.items())
        print(f"{'ok    ' if good else 'FAILED' if good is False else 'skip  '} {name}{': ' if said else ''}{said}",
              flush=True)
        self.write()

    def close(self, finished):
        self.stage["finished"] = finished
        self.write()
        return sum(row["good"] is False for row in self.stage["checks"])

    def write(self):
        self.stage["seconds"] = round(self.seconds + time.monotonic() - self.start, 1)
        for file, text in ((self.file, json.dumps(self.stages, indent=1) + "\n"),
                           (self.file.with_suffix(".md"), page(self.stages))):
            aside = file.with_name(file.name + ".tmp")
            aside.write_text(text)
            aside.replace(file)


def page(stages):
    def cell(text):
        return str(text).replace("|", "\\|").replace("\n", "<br>")

    text = ["# The cuda backend on a GPU", ""]
    for stage, found in stages.items():
        text += [f"## {stage}", "", f"{found['device']}, {found['date']}, {found['seconds']} s"
                 + ("" if found["finished"] else "; cut off before its end"), "",
                 "| check | | figures |", "|---|---|---|"]
        for row in found["checks"]:
            figures = ", ".join(f"{k} {v}" for k, v in row.items() if k not in ("check", "good"))
            mark = {True: "ok", False: "**failed**", None: "skipped"}[row["good"]]
            text.append(f"| {cell(row['check'])} | {mark} | {cell(figures)} |")
        text.append("")
    return "\n".join(text)


# ---- running ----

def environment(options):
    """Libraries beside the build, then the toolkit's, then those that Python's packages bring."""
    build = pathlib.Path(options.build).resolve()
    folders = [build / "lib", pathlib.Path("/usr/local/cuda/lib64")]
    for packages in site.getsitepackages() + [site.getusersitepackages()]:
        folders += sorted(pathlib.Path(packages).glob("nvidia/*/lib"))
    torch = importlib.util.find_spec("torch")
    folders += [pathlib.Path(p) / "lib" for p in (torch.submodule_search_locations if torch else [])]
    path = ":".join([str(f) for f in folders if f.is_dir()] + [os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
    return {**os.environ, "LD_LIBRARY_PATH": path, "BRIM_BUILD_DIR": str(build)}


def run(argv, env, limit=None, errors=subprocess.STDOUT):
    """A program to its end, or to that of the time, when it is killed with all that it started."""
    with subprocess.Popen([str(a) for a in argv], env=env, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=errors, start_new_session=True) as process:
        try:
            out, _ = process.communicate(timeout=None if limit is None else max(limit, 0.1))
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise OutOfTime(out) from None
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out)


def brim(options, *words, limit=None, errors=subprocess.STDOUT):
    return run([pathlib.Path(options.build) / "bin/brim", *words], environment(options), limit, errors)


def device_name(options):
    """None: there is none that can be used."""
    found = brim(options, "devices", "--json", errors=subprocess.DEVNULL).stdout
    try:
        return next(d["name"] for d in json.loads(found)["devices"] if d["backend"] == "cuda")
    except (ValueError, KeyError, StopIteration):
        return None


def build_hash(options):
    """Of the files that are judged, and of what judges."""
    digest = hashlib.sha256()
    build = pathlib.Path(options.build)
    for file in sorted([build / "bin/brim", build / "tests/test_conformance", *build.glob("lib/**/*.so*"),
                        *ROOT.glob("scripts/gpu_check.*"), ROOT / "scripts/bench/torch_gpu.py", CURVES]):
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def train(options, folder, *words, limit=None):
    result = brim(options, "--quiet", "train", f"run.dir={folder}", *words, limit=limit)
    if result.returncode != 0:
        raise RuntimeError(f"brim train {' '.join(map(str, words))}: exit status {result.returncode}\n"
                           f"{result.stdout[-2000:]}")
    return folder


def losses(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [r["loss"] for r in records if r["split"] == "train"]


def same_checkpoint(a, b):
    names = ["model.safetensors", "optimizer.safetensors", "state.json"]
    return all(filecmp.cmp(a / "checkpoints/last" / n, b / "checkpoints/last" / n, shallow=False) for n in names)


# ---- conformance ----

def check_operations(options, checks):
    name = "every operation against reference"
    if not checks.lacks(name):
        return
    result = run([pathlib.Path(options.build) / "tests/test_conformance", "cuda"], environment(options), checks.left())
    (checks.out / "conformance.txt").write_text(result.stdout)
    # operation, then "N cases worst X" for fp32, bf16 and fp16
    found = re.findall(r"(\d+) cases  worst (\S+)", result.stdout)
    figures = {"cases": sum(int(n) for n, _ in found)}
    for precision, column in (("fp32", -3), ("bf16", -2), ("fp16", -1)):
        worst = [float(row[column][1]) for row in (re.findall(r"(\d+) cases  worst (\S+)", line)
                                                   for line in result.stdout.splitlines()) if len(row) >= 3]
        figures[f"worst in {precision}"] = f"{max(worst, default=float('nan')):.1e}"
    narrowed = [f"{key}={os.environ[key]}" for key in ("BENCH_CASES", "BENCH_ROWS") if key in os.environ]
    if narrowed:
        figures["narrowed by"] = " ".join(narrowed)
    checks.add(name, result.returncode == 0 and bool(found), **figures)
    if result.returncode != 0:
        print(result.stdout[-4000:])


def compare_curves(got, curve, precision):
    """Whether they are as they must be, and figures."""
    if len(got) != len(curve):
        return False, {"steps": len(got), "expected": len(curve)}
    first, *_ = errors = [abs(a - b) / curve[0] for a, b in zip(got, curve)]
    last, last_expected = (sum(x[-10:]) / 10 for x in (got, curve))
    good = (first <= FIRST_LOSS_ERROR_MAX[precision] and max(errors) <= LOSS_ERROR_MAX[precision]
            and abs(last - last_expected) / curve[0] <= LAST_LOSSES_ERROR_MAX[precision]
            and last <= (1 - FALL_MIN) * got[0])
    return good, {"first loss": f"{got[0]:.6f}", "last ten": f"{last:.4f}", "expected": f"{last_expected:.4f}",
                  "first off by": f"{first:.1e}", "off at most by": f"{max(errors):.1e}"}


def check_curves(options, checks, folder):
    expected = json.loads(CURVES.read_text())
    for network, words in NETWORKS.items():
        for precision in ("fp32", "bf16", "fp16"):
            name = f"curve of {network} in {precision}"
            if not checks.lacks(name):
                continue
            got = losses(train(options, folder / f"{network}-{precision}", *COMMON, *words, "backend=cuda",
                               f"precision={precision}", *SCALE.get(precision, []), limit=checks.left()))
            good, figures = compare_curves(got, expected[network], precision)
            checks.add(name, good, **figures)


def cut_back(run_dir, step):
    """The run as if it had been killed right after the checkpoint of a step."""
    for checkpoint in (run_dir / "checkpoints").glob("step-*"):
        if int(checkpoint.name[5:]) > step:
            shutil.rmtree(checkpoint)
    for link in ("last", "best"):
        (run_dir / "checkpoints" / link).unlink(missing_ok=True)
    (run_dir / "checkpoints/last").symlink_to(f"step-{step:08d}")
    (run_dir / "summary.json").unlink()


def resume(options, checks, run_dir):
    result = brim(options, "--quiet", "train", "--resume", run_dir, limit=checks.left())
    if result.returncode != 0:
        print(result.stdout[-2000:])
    return result.returncode == 0


def check_repeats(options, checks, folder, precision):
    names = [f"{what}, {precision}" for what in (
        "plan = bytes allocated", "the same bits in every run", "the same bits with one launch at a time",
        "the same bits when resumed after step 10", "the same bits with the optimizer's state in host memory")]
    if not checks.lacks(*names):
        return
    words = [*COMMON, *NETWORKS["cnn"], "backend=cuda", f"precision={precision}", *HUGE_SCALE.get(precision, []),
             "training.clip_norm=1",
             "training.ema_decay=0.9", "training.checkpoint_every_steps=10", "training.keep_checkpoints=10",
             "training.eval_every_steps=10"]
    once, again, slow, cut, host = (folder / f"{kind}-{precision}" for kind in ("once", "again", "slow", "cut", "host"))
    train(options, once, *words, limit=checks.left())
    summary = json.loads((once / "summary.json").read_text())
    planned, allocated = summary["planned_peak_bytes"], summary["device_peak_bytes"]
    checks.add(names[0], planned == allocated > 0, planned=planned, allocated=allocated)
    checks.add(names[1], same_checkpoint(once, train(options, again, *words, limit=checks.left())))
    checks.add(names[2], same_checkpoint(once, train(options, slow, *words, "backend.debug_launches=true",
                                                     limit=checks.left())))
    shutil.copytree(once, cut, symlinks=True)
    cut_back(cut, 10)
    checks.add(names[3], resume(options, checks, cut) and same_checkpoint(once, cut))
    checks.add(names[4], same_checkpoint(once, train(options, host, *words, "memory.offload=optimizer",
                                                     limit=checks.left())))


def check_skips(options, checks, folder):
    """Gradients that are infinite in fp16, found by the device while the host is ahead: parameters, averages and the
    optimizer's state are as before the step."""
    name = "steps that overflow in fp16 leave no trace"
    if not checks.lacks(name):
        return
    run_dir = train(options, folder / "skips", *COMMON, *NETWORKS["emotion_cnn"], "backend=cuda", "precision=fp16",
                    *HUGE_SCALE["fp16"], "training.clip_norm=1", "training.ema_decay=0.9", "training.steps=40",
                    "training.checkpoint_every_steps=1", "training.keep_checkpoints=100", limit=checks.left())
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    skipped = {e["step"] for e in events if e["event"] == "skipped_step"}
    same = True
    for step in range(2, 41):
        pair = [run_dir / f"checkpoints/step-{s:08d}" for s in (step - 1, step)]
        for part in ("model.safetensors", "optimizer.safetensors"):
            same = same and filecmp.cmp(pair[0] / part, pair[1] / part, shallow=False) == (step in skipped)
    checks.add(name, same and 0 < len(skipped) < 40, skipped=len(skipped),
               scale=json.loads((run_dir / "summary.json").read_text())["loss_scale"])


def interrupt(options, checks, run_dir, words, after):
    """Ctrl-C when metrics.jsonl has so many records. The exit status."""
    argv = [pathlib.Path(options.build) / "bin/brim", "--quiet", "train", f"run.dir={run_dir}", *words]
    with subprocess.Popen([str(a) for a in argv], env=environment(options), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        records = run_dir / "metrics.jsonl"
        try:
            while process.poll() is None and checks.left() > 0:
                if records.exists() and records.read_bytes().count(b"\n") >= after:
                    process.send_signal(signal.SIGINT)
                    return process.wait(timeout=max(checks.left(), 1))
                time.sleep(0.001)
        finally:
            process.kill()
        if checks.left() <= 0:
            raise OutOfTime("")
        return process.returncode


def check_interruptions(options, checks, folder):
    """At several moments: the step that was begun ahead of its time is to leave no trace."""
    name = "the same bits when interrupted and resumed"
    if not checks.lacks(name):
        return
    words = [*COMMON, *NETWORKS["mlp"], "backend=cuda", "training.steps=200", "training.checkpoint_every_steps=1000",
             "training.eval_every_steps=1000"]
    whole = train(options, folder / "whole", *words, limit=checks.left())
    done, same = 0, True
    for after in (1, 20, 50, 100):
        part = folder / f"part-{after}"
        status = interrupt(options, checks, part, words, after)
        if status == 0:
            continue  # it was faster than the signal
        done += 1
        same = same and status == 6 and resume(options, checks, part) and same_checkpoint(whole, part)
    checks.add(name, same if done else None, interruptions=done)


def check_failures(options, checks, folder):
    name = "what does not fit is refused before the first step"
    if checks.lacks(name):
        result = brim(options, "--quiet", "train", f"run.dir={folder}/huge", "model=cnn", "dataset=synthetic",
                      "dataset.train_count=2097152", "backend=cuda", "training.batch_size=1048576", limit=checks.left())
        checks.add(name, result.returncode == 4 and "would fit" in result.stdout, exit_status=result.returncode)
    name = "a loss that is not finite ends a run, and says where it was made"
    if checks.lacks(name):
        result = brim(options, "--quiet", "train", f"run.dir={folder}/wild", *COMMON, *NETWORKS["mlp"], "backend=cuda",
                      "optimizer=sgd", "optimizer.lr=1e30", limit=checks.left())
        checks.add(name, result.returncode == 5 and "first made by" in result.stdout, exit_status=result.returncode)


def conformance(options, checks):
    with tempfile.TemporaryDirectory(prefix="brim-gpu-") as folder:
        folder = pathlib.Path(folder)
        check_curves(options, checks, folder)
        for precision in ("fp32", "bf16", "fp16"):
            check_repeats(options, checks, folder, precision)
        check_skips(options, checks, folder)
        check_interruptions(options, checks, folder)
        check_failures(options, checks, folder)
        check_operations(options, checks)


def record(options):
    """On the reference backend, in double precision."""
    with tempfile.TemporaryDirectory(prefix="brim-gpu-") as folder:
        found = {name: losses(train(options, pathlib.Path(folder) / name, *COMMON, *words, "backend=reference"))
                 for name, words in NETWORKS.items()}
    lines = [f' "{name}": [{", ".join(f"{x:.9g}" for x in curve)}]' for name, curve in found.items()]
    CURVES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


# ---- dist ----

# Two norm groups of 16 and what is left over, dealt to the ranks; buckets as small as they get.
DIST = [*COMMON, *NETWORKS["cnn"], "backend=cuda", "wait_for_gpu=true", "training.batch_size=8",
        "training.gradient_accumulation_steps=8", "training.checkpoint_every_steps=10", "training.keep_checkpoints=10",
        "training.eval_every_steps=10", "dist.bucket_mb=0", "dist.check_every_steps=10", "dist.timeout_seconds=60"]


def ranks_of(run_dir):
    """The processes of a job that writes to this folder, by their rank."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(run_dir).encode() not in (folder / "cmdline").read_bytes():
                continue
            for word in (folder / "environ").read_bytes().split(b"\0"):
                name, _, value = word.partition(b"=")
                if name in (b"BRIM_RANK", b"OMPI_COMM_WORLD_RANK"):
                    found[int(value)] = int(folder.name)
    return found


def check_rank_losses(options, checks, folder):
    one = None
    for ranks, shard in [(n, s) for n in (2, 4) for s in ("none", "optimizer", "gradients")]:
        name = f"losses of {ranks} ranks, dist.shard={shard}"
        if not checks.lacks(name):
            continue
        if one is None:
            one = losses(train(options, folder / "one", *DIST, limit=checks.left()))
        got = losses(train(options, folder / f"by{ranks}-{shard}", *DIST, f"dist.ranks={ranks}", f"dist.shard={shard}",
                           limit=checks.left()))
        good, figures = compare_curves(got, one, "fp32")
        checks.add(name, good, **figures)


def check_rank_repeats(options, checks, folder):
    names = ["2 ranks: the same bits in every run", "2 ranks: the same bits when resumed after step 10"]
    if not checks.lacks(*names):
        return
    once = train(options, folder / "ranks-once", *DIST, "dist.ranks=2", limit=checks.left())
    checks.add(names[0], same_checkpoint(once, train(options, folder / "ranks-again", *DIST, "dist.ranks=2",
                                                     limit=checks.left())))
    cut = folder / "ranks-cut"
    shutil.copytree(once, cut, symlinks=True)
    cut_back(cut, 10)
    checks.add(names[1], resume(options, checks, cut) and same_checkpoint(once, cut))


def check_killed_rank(options, checks, folder):
    name = "a rank that is killed ends the job"
    if not checks.lacks(name):
        return
    run_dir = folder / "killed"
    argv = [pathlib.Path(options.build) / "bin/brim", "--quiet", "train", f"run.dir={run_dir}", *DIST, "dist.ranks=2",
            "training.steps=1000000"]
    with subprocess.Popen([str(a) for a in argv], env=environment(options), text=True, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            records = run_dir / "metrics.jsonl"
            while process.poll() is None and checks.left() > 0 and not (records.exists() and records.stat().st_size):
                time.sleep(0.05)
            victim = ranks_of(run_dir).get(1)
            start = time.monotonic()
            if not victim:
                raise RuntimeError(f"{name}: there is no rank 1 to kill")
            os.kill(victim, signal.SIGKILL)
            _, errors = process.communicate(timeout=max(checks.left(), 1))
            seconds, left = time.monotonic() - start, ranks_of(run_dir)
        except subprocess.TimeoutExpired:
            raise OutOfTime("") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    checks.add(name, process.returncode == 5 and "rank 1" in errors and not left, exit_status=process.returncode,
               seconds=round(seconds, 1), left_running=len(left), said=errors.strip().splitlines()[0] if errors else "")


def check_overlap(options, checks, folder):
    """On a GPU that two ranks share both wait for each other's kernels too: what counts is the one beside the other."""
    name = "2 ranks: sums beside the backward pass"
    if not checks.lacks(name):
        return
    seconds = {}
    for bucket in ("1", "100000"):
        run_dir = train(options, folder / f"overlap-{bucket}", *DIST, "model.width=32", "dist.ranks=2",
                        f"dist.bucket_mb={bucket}", "training.eval_every_steps=1000000",
                        "training.checkpoint_every_steps=1000000", limit=checks.left())
        seconds[bucket] = json.loads((run_dir / "summary.json").read_text())["wall_seconds"]
    checks.add(name, True, **{"seconds with buckets of 1 MiB": seconds["1"], "with one bucket": seconds["100000"]})


def dist(options, checks):
    """NCCL takes each rank for a host, as they share a GPU: comm/nccl sees to that."""
    with tempfile.TemporaryDirectory(prefix="brim-gpu-") as folder:
        folder = pathlib.Path(folder)
        check_rank_losses(options, checks, folder)
        check_rank_repeats(options, checks, folder)
        check_killed_rank(options, checks, folder)
        check_overlap(options, checks, folder)


# ---- sanitize ----

def sanitizer_refused(text):
    """Its own line about why it cannot be used here; None: it could."""
    if "[==========] Running" in text:
        return None  # it had the device, and the program began
    lines = [line.strip("= ") for line in text.splitlines() if line.startswith("=========")]
    return next((line for line in lines if re.search("not supported|denied|permission|[Ii]nternal|Unable", line)), None)


def sanitize(options, checks):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    kinds = ("memcheck", "racecheck", "synccheck", "initcheck")
    if not pathlib.Path(tool).exists():
        checks.add("compute-sanitizer", None, why="it is not installed")
        return
    program = pathlib.Path(options.build) / "tests/test_conformance"
    unfinished = []
    for at, kind in enumerate(kinds):
        if not checks.lacks(kind):
            continue
        # One case of each row will do: what sanitizers see does not depend on the numbers.
        env = {"BENCH_CASES": "1", **environment(options)}
        try:
            result = run([tool, "--tool", kind, "--error-exitcode", "97", program, "cuda"], env,
                         checks.left() / (len(kinds) - at))
        except OutOfTime as error:
            (checks.out / f"{kind}.txt").write_text(str(error)[-200000:])
            checks.add(kind, None, why="it did not finish in its share of the time; BENCH_ROWS=conv,linear narrows it")
            unfinished.append(kind)
            continue
        (checks.out / f"{kind}.txt").write_text(result.stdout[-200000:])
        why = sanitizer_refused(result.stdout)
        if result.returncode != 0 and why:
            checks.add(kind, None, why=f"it cannot be used here: {why}")
            continue
        errors = re.search(r"ERROR SUMMARY: (\d+) error", result.stdout) or re.search(
            r"RACECHECK SUMMARY: (\d+) hazard", result.stdout)
        checks.add(kind, result.returncode == 0 and errors is not None and errors.group(1) == "0",
                   errors=errors.group(1) if errors else "no summary", exit_status=result.returncode)
    if unfinished:
        raise OutOfTime(", ".join(unfinished))


# ---- bench ----

IMAGES = 61440  # a multiple of the batches, so that every step has as many
MODES = ("eager", "channels_last", "compiled", "graphs")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def write_images(folder):
    """Random pixels in the files that both read."""
    source = random.Random(1)
    for stem, n in (("train", IMAGES), ("t10k", 1024)):
        pixels = source.randbytes(n * 28 * 28)
        labels = bytes(source.randrange(10) for _ in range(n))
        for name, header, data in ((f"{stem}-images-idx3-ubyte", bytes([0, 0, 8, 3]) + n.to_bytes(4, "big")
                                    + (28).to_bytes(4, "big") * 2, pixels),
                                   (f"{stem}-labels-idx1-ubyte", bytes([0, 0, 8, 1]) + n.to_bytes(4, "big"), labels)):
            with gzip.open(folder / f"{name}.gz", "wb", compresslevel=1) as file:
                file.write(header + data)


def brim_rate(options, checks, folder, batch, precision, steps):
    """Samples a second, planned bytes."""
    workers = max(1, min(14, (os.cpu_count() or 2) - 2))
    seconds = []
    # Two runs: what the longer one takes more is steps alone, without starting up, testing and ending.
    for part in (steps, 4 * steps):
        run_dir = folder / f"brim-{batch}-{precision}-{part}"
        train(options, run_dir, "model=cnn", "dataset=fashion_mnist", f"dataset.path={folder}", "optimizer=adamw",
              "backend=cuda", f"precision={'fp32' if precision == 'tf32' else precision}",
              f"backend.tf32={'true' if precision == 'tf32' else 'false'}", f"training.batch_size={batch}",
              f"training.steps={part}", "training.gradient_accumulation_steps=1", "augment.flip=false",
              "schedule=constant", f"training.num_workers={workers}", "training.eval_every_steps=1000000000",
              "training.checkpoint_every_steps=1000000000", "observe.log_every_steps=1000000", limit=checks.left())
        summary = json.loads((run_dir / "summary.json").read_text())
        seconds.append(summary["wall_seconds"])
    return 3 * steps * batch / (seconds[1] - seconds[0]), summary["planned_peak_bytes"]


def torch_rate(checks, folder, batch, mode, precision, steps):
    """Samples a second, peak bytes of its allocator. PyTorch finds its own libraries."""
    result = run([sys.executable, ROOT / "scripts/bench/torch_gpu.py", "--data", folder, "--batch", batch, "--steps",
                  steps, "--mode", mode, "--precision", precision], os.environ, checks.left())
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0 or not lines:
        raise RuntimeError(result.stdout.strip()[-300:] or f"exit status {result.returncode}")
    found = json.loads(lines[-1])
    return found["samples_per_second"], found["peak_bytes"]


def measure(checks, name, function, *arguments):
    """A row of its own, so that what was measured is not measured again."""
    if not checks.lacks(name):
        return
    try:
        rate, size = function(*arguments)
        checks.add(name, True, samples_per_second=round(rate), MiB=round(size / 2**20))
    except RuntimeError as error:
        checks.add(name, False if name.startswith("brim") else None, why=str(error)[-300:])


def compare(checks, batch, precision):
    rows = {row["check"]: row for row in checks.stage["checks"] if row["good"]}
    own = rows.get(f"brim, batch {batch}, {precision}")
    figures = {}
    for mode in MODES:
        other = rows.get(f"torch {mode}, batch {batch}, {precision}")
        if own and other:
            figures[f"over torch {mode}"] = (f"{own['samples_per_second'] / other['samples_per_second']:.2f} x speed, "
                                             f"{own['MiB'] / other['MiB']:.2f} x memory")
    if figures:
        checks.add(f"compared, batch {batch}, {precision}", True, **figures)


def bench(options, checks):
    """The network of torch_cnn.py. The quick ones first: compiling takes most of the time."""
    with tempfile.TemporaryDirectory(prefix="brim-gpu-") as name:
        folder = pathlib.Path(name)
        write_images(folder)
        batches = {128: 4000, 1024: 1000}
        for batch, steps in batches.items():
            for precision in PRECISIONS:
                measure(checks, f"brim, batch {batch}, {precision}", brim_rate, options, checks, folder, batch,
                        precision, steps)
        if importlib.util.find_spec("torch") is None:
            checks.add("torch", None, why="this Python has no PyTorch")
            return
        for mode in MODES:
            for batch, steps in batches.items():
                for precision in PRECISIONS:
                    measure(checks, f"torch {mode}, batch {batch}, {precision}", torch_rate, checks, folder, batch,
                            mode, precision, steps // 2)
        for batch in batches:
            for precision in PRECISIONS:
                compare(checks, batch, precision)


# ---- all ----

def run_stage(name, options, checks):
    """How many checks failed, and whether it came to its end."""
    print(f"== {name}", flush=True)
    checks.open(name)
    finished = True
    try:
        {"conformance": conformance, "dist": dist, "sanitize": sanitize, "bench": bench}[name](options, checks)
    except OutOfTime:
        finished = False
        print(f"the time of {name} is up; the same command goes on with it", flush=True)
    except RuntimeError as error:
        checks.add(f"{name} to its end", False, error=str(error))
    return checks.close(finished), finished


def stop(text):
    print(f"gpu_check: {text}", file=sys.stderr)
    sys.exit(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", default="build/gpu_check")
    parser.add_argument("stage", choices=["conformance", "dist", "sanitize", "bench", "all", "record"])
    options = parser.parse_args()
    if not (pathlib.Path(options.build) / "bin/brim").exists():
        stop(f"there is no brim in {options.build}: build it (scripts/build.sh release), or pack it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # so that what was started ends too
    if options.stage == "record":
        record(options)
        return
    if device_name(options) is None:
        stop(f"no GPU can be used\n{brim(options, 'devices').stdout}")
    checks = Checks(options)
    found = [run_stage(stage, options, checks)
             for stage in (["conformance", "dist", "sanitize", "bench"] if options.stage == "all" else [options.stage])]
    failed = sum(count for count, _ in found)
    print(f"{failed} failed; see {checks.file.with_suffix('.md')}")
    sys.exit(1 if failed else 0 if all(finished for _, finished in found) else 3)


if __name__ == "__main__":
    main()
