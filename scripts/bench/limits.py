#!/usr/bin/env python3
"""The largest micro-batch within a memory limit, and its samples/s: brim compared with PyTorch. See limits.sh.

Every attempt is a separate process, measured from outside: the increase of its resident memory over its base, before
there is a model, must stay within the limit, for both. PyTorch's batch is found by halving one that is too large;
brim's by `brim plan`. Then all are timed in turn at their batches. Quarters between the powers of two are tried too.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import sys
import time
from dataclasses import dataclass

import limits_table
from limits_watch import MIB, Cache, Watch, files_hash, run_json, watch

HERE = pathlib.Path(__file__).resolve().parent
EFFECTIVE = 1 << 14  # effective batch; larger than any batch that fits, so it never limits one
PROBE_STEPS = 2      # PyTorch's optimizer allocates its state at the end of the first step
QUARTERS = (5, 6, 7)
LOOKS = 4       # attempts to find a limit for brim's arena
SPREAD_MIB = 1  # allowed difference between two measurements of the same process


@dataclass
class Model:
    help: str
    brim: list
    torch: list


VIT = ["model=vit", "model.depth=12", "model.width=128", "model.heads=4", "model.patch=4"]
TORCH_VIT = ["--model", "vit", "--depth", "12", "--width", "128", "--heads", "4", "--patch", "4"]
MODELS = {
    "cnn": Model("PyTorch's MNIST example on Fashion-MNIST: 1,199,882 parameters",
                 ["model=cnn", "dataset=fashion_mnist"], ["--model", "cnn"]),
    "vit": Model("vision transformer of 12 blocks, width 128, 4 heads, on Fashion-MNIST in patches of 4x4:"
                 " 50 tokens, 2,389,514 parameters",
                 [*VIT, "dataset=fashion_mnist"], TORCH_VIT),
    "vit64": Model("the same on made-up images of 3x64x64: 257 tokens, 2,420,234 parameters",
                   [*VIT, "dataset=synthetic", "dataset.shape=[3,64,64]"], [*TORCH_VIT, "--shape", "3", "64", "64"]),
}
CONTENDERS = {
    "torch eager": [],
    "torch checkpoint": ["--checkpoint"],
    "torch checkpoint bf16": ["--checkpoint", "--bf16"],
    "brim none": ["memory.recompute=none"],
    "brim auto": ["memory.recompute=auto"],
    "brim auto bf16": ["memory.recompute=auto", "precision=bf16"],
}
PATIENT = {"OMP_WAIT_POLICY": "passive"}  # for attempts that are not timed: waiting threads sleep
# As in brim, freed blocks of 128 KiB and more go back to the system at once; otherwise they would still count.
TIGHT_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}


class Torch:
    def __init__(self, options, cache):
        self.options, self.cache = options, cache
        self.version = run_json([options.python, "-c", "import json, torch; print(json.dumps(torch.__version__))"])
        self.identity = f"{self.version} {files_hash(HERE.glob('torch_*.py'))}"

    def attempt(self, model, name, batch, environment, steps, seconds, limit=None):
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.options.threads), **environment}
        with Watch() as folder:
            argv = [self.options.python, HERE / "torch_limits.py", "--records", folder / "records", "--threads",
                    self.options.threads, "--batch", batch, *MODELS[model].torch, *CONTENDERS[name]]
            return watch(argv, environment, folder / "records", batch, limit=limit, steps=steps, seconds=seconds,
                         first_is_base=True)

    def fits(self, model, name, limit, batch, malloc):
        """Returns whether a batch fits. An attempt runs until it exceeds the largest of all limits, so its cached
        result decides for each limit."""
        most = max(self.options.limits)
        got = self.cache.get([self.identity, model, name, batch, "malloc" if malloc else ""],
                             lambda: self.attempt(model, name, batch, {**PATIENT, **malloc}, PROBE_STEPS, 0, most),
                             lambda known: known["fits"] or known["growth"] > limit * MIB)
        return got["growth"] <= limit * MIB

    def largest(self, model, name, limit, start):
        """Doubles `start` until it is too large, then halves it until it fits."""
        batch = start
        while self.fits(model, name, limit, batch, TIGHT_MALLOC):
            batch *= 2
        while batch > 0 and not self.fits(model, name, limit, batch, TIGHT_MALLOC):
            batch //= 2
        return batch

    def time(self, model, name, limit, batch):
        """Times a batch with malloc's defaults, which are faster, if it fits with them too."""
        malloc = {} if self.fits(model, name, limit, batch, {}) else TIGHT_MALLOC
        return self.attempt(model, name, batch, malloc, self.options.steps, self.options.seconds)


class Brim:
    def __init__(self, options, cache):
        self.options, self.cache = options, cache
        root = pathlib.Path(options.brim).resolve().parents[1]
        self.identity = f"brim {files_hash([options.brim, *root.glob('lib/**/*.so')])} {' '.join(options.overrides)}"
        self.version = os.popen(f"'{options.brim}' --version").readline().split()[-1]

    def words(self, model, name):
        return [*MODELS[model].brim, "backend=cpu", f"backend.threads={self.options.threads}", "optimizer=adamw",
                "augment.flip=false", *CONTENDERS[name], *self.options.overrides]

    def plan(self, model, name, limit, *words):
        """Returns brim's plan, or None if nothing fits. The limit in MiB applies to the arena."""
        argv = [self.options.brim, "--quiet", "plan", "--json", *self.words(model, name), f"memory.limit_mb={limit}",
                *words]
        return self.cache.get([self.identity, *argv[1:]], lambda: run_json(argv, nothing=4))

    def chosen(self, model, name, limit):
        """Returns the micro-batch that training.batch_size=auto chooses."""
        plan = self.plan(model, name, limit, "training.batch_size=auto", f"training.effective_batch_size={EFFECTIVE}")
        return plan["batch_size"] if plan else 0

    def arena_limit(self, model, name, limit, batch):
        """Returns the limit of the arena with which the whole process stays within `limit` in training. Memory for
        planning, kernels and micro-batches ahead counts too. Returns None if the micro-batch does not fit."""
        arena, bare = limit, self.bare(model, name)
        for _ in range(LOOKS):
            plan = self.plan(model, name, arena, f"training.batch_size={batch}",
                             "training.gradient_accumulation_steps=1") if arena > 0 else None
            if plan is None:
                return None
            host = plan["host"]
            besides = host["kernel_bytes"] + host["loader_bytes"] + max(0, host["process_bytes"] - bare)
            over = plan["peak_bytes"] + besides - (limit - SPREAD_MIB) * MIB
            if over <= 0:
                return arena
            arena = min(arena - 1, (limit - SPREAD_MIB) - -(-besides // MIB))
        return None

    def fits(self, model, name, limit, batch, _malloc=None):
        return self.arena_limit(model, name, limit, batch) is not None

    def largest(self, model, name, limit, _start):
        """Returns the largest power of two that fits. auto may choose a smaller one."""
        batch = max(1, self.chosen(model, name, limit))
        while self.fits(model, name, limit, 2 * batch):
            batch *= 2
        while batch > 0 and not self.fits(model, name, limit, batch):
            batch //= 2
        return batch

    def bare_words(self, model, name):
        """Returns the overrides of a contender, with the smallest model: a linear layer."""
        words = [word for word in self.words(model, name) if not word.startswith(("model", "precision"))]
        return [*words, "model=mlp", "model.hidden=[]"]

    def bare(self, model, name):
        """Returns the bytes of the process with that model, as reported by `brim plan`: the program and its
        libraries."""
        argv = [self.options.brim, "--quiet", "plan", "--json", *self.bare_words(model, name)]
        return self.cache.get([self.identity, *argv[1:]], lambda: run_json(argv))["host"]["process_bytes"]

    def base(self, model, name):
        """Returns the base of the process: its peak without a model, minus that run's arena."""
        words = self.bare_words(model, name)
        def look():
            got = self.run(words, 1, None, 3, 0, 0)
            return got["peak"] - got["planned"]
        return self.cache.get([self.identity, "base", *words], look)

    def run(self, words, batch, arena, steps, seconds, base):
        with Watch() as folder:
            run = folder / "run"
            argv = [self.options.brim, "--quiet", "train", f"run.dir={run}", *words, f"training.batch_size={batch}",
                    "training.gradient_accumulation_steps=1", "training.steps=1000000", "observe.log_every_steps=1",
                    "training.eval_every_steps=1000000", "training.checkpoint_every_steps=1000000",
                    *([f"memory.limit_mb={arena}"] if arena else [])]
            got = watch(argv, {**os.environ, "BRIM_CLAIMS_DIR": str(folder / "claims")}, run / "metrics.jsonl", batch,
                        steps=steps, seconds=seconds, base=base)
            return {**got, "planned": json.loads((run / "plan.json").read_text())["peak_bytes"]}

    def time(self, model, name, limit, batch):
        return self.run(self.words(model, name), batch, self.arena_limit(model, name, limit, batch),
                        self.options.steps, self.options.seconds, self.base(model, name))


def refine(side, model, name, limit, batch):
    """Returns the largest batch that fits: 1, 5/4, 6/4 or 7/4 times `batch`."""
    best = batch
    for quarters in QUARTERS if batch >= 4 else ():
        if not side.fits(model, name, limit, batch * quarters // 4, TIGHT_MALLOC):
            break
        best = batch * quarters // 4
    return best


def side_of(sides, name):
    return sides[name.split()[0]]


def find_batches(options, sides, model, limit, before):
    """Returns {contender: {largest, refined, chosen}}. `before`: the result for a smaller limit, near which the search
    starts."""
    found = {}
    for name in options.contenders:
        side, start = side_of(sides, name), 4 * before.get(name, {}).get("largest", 0) or options.start
        largest = side.largest(model, name, limit, start)
        found[name] = {"largest": largest,
                       "refined": refine(side, model, name, limit, largest) if options.refine else largest}
        if isinstance(side, Brim):
            found[name]["chosen"] = side.chosen(model, name, limit)
        print(f"{model}, {limit} MiB  {name:22} {found[name]}", file=sys.stderr)
    return found


def time_batches(options, sides, cache, model, limit, found):
    """Adds runs to each contender, one a round; every second round goes in reverse order."""
    names = [name for name in options.contenders if found[name]["largest"] > 0]
    for turn in range(options.rounds):
        for name in names[::1 if turn % 2 == 0 else -1]:
            side, batch = side_of(sides, name), found[name]["largest"]
            key = [side.identity, "time", model, name, limit, batch, turn, options.steps, options.seconds]
            got = cache.get(key, lambda s=side, n=name, b=batch: s.time(model, n, limit, b))
            found[name].setdefault("runs", []).append(got)
            print(f"{model}, {limit} MiB  round {turn + 1}/{options.rounds}  {name:22} {batch:6}"
                  f" {got['samples_per_second'] or 0:8.1f} samples/s  +{got['growth'] / MIB:.1f} MiB", file=sys.stderr)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brim", required=True)
    parser.add_argument("--python", required=True, help="a Python with PyTorch")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--limits", nargs="+", type=int, default=[64, 128, 256, 512, 1024], help="MiB")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS,
                        default=[name for name in CONTENDERS if name != "torch checkpoint bf16"])
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds; 0: only find the batches")
    parser.add_argument("--steps", type=int, default=4, help="steps of a timed run, without the first one")
    parser.add_argument("--seconds", type=float, default=5, help="minimum time of a timed run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--start", type=int, default=4096, help="initial batch of PyTorch, which is halved")
    parser.add_argument("--no-refine", dest="refine", action="store_false", help="try only powers of two")
    parser.add_argument("--cache", type=pathlib.Path, default="build/limits.json", help="cached results")
    parser.add_argument("--fresh", action="store_true", help="forget it")
    parser.add_argument("--into", type=pathlib.Path, help="a page whose tables are replaced; else they are printed")
    parser.add_argument("overrides", nargs="*", help="of brim")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a signal must also end the watched processes
    cache = Cache(options.cache, options.fresh)
    sides = {"torch": Torch(options, cache), "brim": Brim(options, cache)}
    results = {}
    for model in options.models:
        before = {}
        for limit in sorted(options.limits):
            before = find_batches(options, sides, model, limit, before)
            time_batches(options, sides, cache, model, limit, before)
            results.setdefault(model, {})[limit] = before
    head = (f"{time.strftime('%Y-%m-%d')}, {processor()}, {options.threads} threads, {options.rounds} rounds; PyTorch"
            f" {sides['torch'].version}, brim {sides['brim'].version}. AdamW.")
    text = limits_table.page(head, {model: MODELS[model].help for model in results}, results)
    if options.into:
        limits_table.put(options.into, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
