"""The checks of the second command: speed and memory of training, compared with PyTorch."""

import csv
import importlib.util
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

from machine import HERE, Job, OutOfTime, Skipped, json_lines, largest, summary
from networks import COMMON, federation, images, tokens

CAPS = [10, 24, 40, 80]  # GB
FLOPS, BYTES = 989e12, 3.0e12  # per second: dense bf16 of an H100 SXM, and the bandwidth that its memory reaches
LANES_GAIN = 3  # least gain of ten clients of a federation at a time over one
KERNELS = 1500  # number that ncu records: more than a step of GPT-2 has
GPT2 = [*tokens(50257, 1024), "model.dropout=0"]
# brim's overrides, the batch, and the steps of a timed window; the names are those of peer.py
CASES = {"gpt2-124M": (["model=gpt2", *GPT2], 16, 40),
         "gpt2-350M": (["model=gpt2_medium", *GPT2], 8, 25),
         "resnet50": (["model=resnet50", *images([3, 224, 224]), "training.norm_group=256"], 256, 25),
         "vit-b16": (["model=vit_base", *images([3, 224, 224])], 128, 25),
         "cnn": (["model=cnn", *images([1, 28, 28])], 128, 4000)}
SMALL = {"gpt2-124M": (["model=gpt2", "model.layers=1", "model.width=32", "model.heads=2", "model.context=32",
                        *tokens(64, 32), "model.dropout=0"], 2, 2),
         "cnn": (["model=cnn", "model.width=4", *images([1, 12, 12])], 4, 2)}


class Fast:
    """The checks on one machine. Timed programs have the device alone."""

    jobs_max = 13  # five compiled trainings take about 60 GB of the device, plans only their contexts

    def __init__(self, on, reduced):
        self.on, self.reduced = on, reduced
        self.cases = SMALL if reduced else CASES
        self.caps = [0.002] if reduced else [cap for cap in CAPS if cap * 10**9 < on.gpu["total_bytes"]]
        self.with_caps = ["gpt2-124M"] if reduced else ["gpt2-124M", "resnet50"]
        self.rates, self.batches = {}, {}  # brim's results, by case, and by case and cap

    def words(self, case, batch=None):
        words, size, _ = self.cases[case]
        workers = max(1, min(14, (os.cpu_count() or 2) - 2))
        return [*COMMON, *words, "backend=cuda", "precision=bf16", f"training.batch_size={batch or size}",
                f"training.num_workers={workers}", f"dataset.train_count={8 * (batch or size)}", "dataset.noise=0"]

    def alone(self):
        return [*(Job(f"brim, {case}", 100, self.brim_rate(case)) for case in self.cases),
                Job("a federation of lightcnn, 10 clients at a time", 60, self.federate),
                Job("attention of gpt2-124M with dropout", 120, self.attention)]

    def together(self):
        """Returns the checks whose speed depends on the processor: compilers, and plans."""
        return [*(Job(f"plan under {cap} GB, {case}", 200, self.plan_under(case, cap))
                  for case in self.with_caps for cap in self.caps),
                *(Job(f"torch compiles {case}", 200, self.prepare(case)) for case in self.cases)]

    def last(self):
        beside = [Job([f"{case} beside torch {mode}" for mode in ("eager", "compiled")], 120, self.beside(case))
                  for case in self.cases]
        return [*beside[:3], Job(f"operations of {next(iter(self.cases))} and their floor", 90, self.operations),
                *beside[3:],
                *(Job(f"largest micro-batch of brim under {cap} GB, {case}", 60, self.largest_brim(case, cap))
                  for case in self.with_caps for cap in self.caps),
                *(Job([f"largest micro-batch of torch under {cap} GB, {case}" for cap in self.caps], 120,
                      self.largest_torch(case)) for case in self.with_caps),
                Job(f"kernels of {next(iter(self.cases))}", 120, self.kernels),
                Job(f"brim tuned, {next(iter(self.cases))}", 120, self.tuned)]

    # ---- speed ----

    def rate(self, limit, name, case, *more):
        """Returns the samples a second of the last of three windows, and the run's folder."""
        _, batch, steps = self.cases[case]
        run = self.on.train(limit, name, *self.words(case), f"training.steps={3 * steps}",
                            f"observe.log_every_steps={steps}", *more)
        records = [r for r in json_lines(run / "metrics.jsonl") if r["split"] == "train"]
        programs = json.loads((run / "plan.json").read_text(encoding="utf-8"))["programs"]
        flops = next(p["flops"] for p in programs if p["kind"] == "train") / batch
        found, rate = summary(run), records[-1]["samples_per_second"]
        shutil.rmtree(run)
        return rate, {"samples/s": f"{rate:.1f}", "of dense bf16": f"{rate * flops / FLOPS:.1%}",
                      "MiB": found["device_reserved_bytes"] >> 20, "first step": f"{found['first_step_seconds']:.1f} s",
                      "refused": len(found["kernels"]["refused"])}

    def brim_rate(self, case):
        def check(limit):
            self.rates[case], figures = self.rate(limit, f"rate-{case}", case)
            yield figures["refused"] == 0, figures
        return check

    def attention(self, limit):
        """Checks that brim's attention on tensor cores is faster than in fp32. Without dropout, the figure is relative
        to cuDNN's attention."""
        case, dropout = "gpt2-124M", "model.dropout=0.1"
        rates = {name: self.rate(limit, f"attention-{i}", case, *words)[0] for i, (name, words) in enumerate((
            ("with dropout", [dropout]), ("with dropout, in fp32", [dropout, "backend.attention=own_fp32"]),
            ("without dropout", ["backend.attention=own"])))}
        beside = self.rates.get(case)
        yield self.reduced or rates["with dropout"] > rates["with dropout, in fp32"], {
            **{f"{name}, samples/s": f"{rate:.1f}" for name, rate in rates.items()},
            **({"without dropout, over cuDNN": f"{rates['without dropout'] / beside:.2f}"} if beside else {})}

    def federate(self, limit):
        """Ten clients at a time must be at least LANES_GAIN times as fast as one. The time excludes the process's start
        and the first round, in which clocks rise."""
        rates = []
        for lanes in (1, 10):
            run = self.on.train(limit, f"lanes-{lanes}", *federation(self.reduced, lanes, 2 if self.reduced else 12),
                                "observe.log_every_steps=1", command="federate")
            records = [r for r in json_lines(run / "metrics.jsonl") if r["split"] == "train"]
            rates.append(statistics.median(r["samples_per_second"] for r in records[1:]))
            shutil.rmtree(run)
        yield self.reduced or rates[1] >= LANES_GAIN * rates[0], {
            "one, samples/s": f"{rates[0]:.0f}", "ten, samples/s": f"{rates[1]:.0f}",
            "gain": f"{rates[1] / rates[0]:.2f}"}

    def tuned(self, limit):
        case = next(iter(self.cases))
        rate, figures = self.rate(limit, "tuned", case, f"backend.profile={self.on.scratch}/tuned.tsv",
                                  "backend.tune=true")
        before = self.rates.get(case)
        yield True, {**figures, **({"over untuned": f"{rate / before:.2f}"} if before else {})}

    def peer(self, limit, case, *words):
        """Yields the lines of JSON that PyTorch's process prints."""
        if importlib.util.find_spec("torch") is None:
            raise Skipped("this Python has no PyTorch")
        folders = [str(HERE), str(HERE.parent / "bench")]  # in a pack, and in the source
        # PyTorch needs the original library path to find its own libraries; its compiler's cache outlives the process
        env = {"PYTHONPATH": ":".join(folders), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
               "TORCHINDUCTOR_CACHE_DIR": str(self.on.scratch / "inductor"),
               "TRITON_CACHE_DIR": str(self.on.scratch / "triton")}
        result = self.on.run(limit, [sys.executable, HERE / "peer.py", "--case", "reduced" if self.reduced else case,
                                     "--batch", self.cases[case][1], *words,
                                     *(["--device", "cpu"] if self.reduced else [])], env)
        lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        if result.returncode != 0:
            raise RuntimeError(f"PyTorch: exit status {result.returncode}\n{result.stdout[-1500:]}")
        return lines

    def prepare(self, case):
        def check(limit):
            self.peer(limit, case, "--prepare")
            yield True, {}
        return check

    def beside(self, case):
        def check(limit):
            lines = self.peer(limit, case, "--steps", self.cases[case][2])
            if case not in self.rates:  # another command timed this case; both times must be from one
                self.rates[case], _ = self.rate(limit, f"beside-{case}", case)
            for line in lines:
                rate = line["samples_per_second"]
                yield True, {
                    "torch": f"{rate:.1f} samples/s", "MiB": line["peak_bytes"] >> 20,
                    "reserved MiB": line["reserved_bytes"] >> 20, "brim over torch": f"{self.rates[case] / rate:.2f}"}
        return check

    # ---- memory ----

    def limited(self, case, cap, batch):
        norm_group = ["training.norm_group=16"] if case == "resnet50" else []
        headroom = ["memory.headroom_mb=0"] if cap < 1 else []  # for a reduced case
        return [*self.words(case, batch), f"memory.limit_mb={cap}GB", *headroom, *norm_group]

    def plan(self, limit, words):
        """Returns the plan, or None if it does not fit."""
        result = self.on.brim(limit, "plan", "--no-timing", "--json", *words, errors=subprocess.DEVNULL)
        if result.returncode not in (0, 4):
            raise RuntimeError(f"brim plan {' '.join(words)}: exit status {result.returncode}")
        return json.loads(result.stdout) if result.returncode == 0 else None

    def batch_under(self, limit, case, cap):
        """Returns the largest batch whose plan fits. Plans do not depend on other processes' memory. The first guess
        is a linear extrapolation."""
        if (case, cap) not in self.batches:
            batch = self.cases[case][1]
            found = self.plan(limit, self.words(case))
            fixed = found["persistent_bytes"]
            guess = batch * (cap * 10**9 - fixed) / max(1, found["peak_bytes"] - fixed)
            self.batches[case, cap] = largest(
                lambda size: self.plan(limit, self.limited(case, cap, size)) is not None, int(guess))
        return self.batches[case, cap]

    def plan_under(self, case, cap):
        def check(limit):
            batch = self.batch_under(limit, case, cap)
            yield batch > 0, {"batch": batch}
        return check

    def largest_brim(self, case, cap):
        def check(limit):
            batch = self.batch_under(limit, case, cap)
            run = self.on.train(limit, f"largest-{case}-{cap}", *self.limited(case, cap, batch), "training.steps=2")
            reserved = summary(run)["device_reserved_bytes"]
            shutil.rmtree(run)
            yield 0 < reserved <= cap * 10**9, {"batch": batch, "bytes": reserved}
        return check

    def largest_torch(self, case):
        def check(limit):
            if self.reduced:
                raise Skipped("memory caps need a GPU")
            late = None
            try:
                lines = self.peer(limit, case, "--caps", *self.caps)
            except OutOfTime as why:  # the results of earlier caps are valid
                late, lines = why, [json.loads(line) for line in str(why).splitlines() if line.startswith("{")]
            for line in lines:
                yield True, {"batch": line["batch"]}
            if late:
                raise late
        return check

    # ---- where the time goes ----

    def operations(self, limit):
        """Lists, for brim's plan, each operation's time as measured alone, and the least time for its work."""
        case = next(iter(self.cases))
        words = [w for w in self.words(case) if w != "memory.timing=false"]
        if self.reduced:
            words += ["backend=cpu", "backend.threads=1"]  # the emulated device would take minutes for each kernel
        result = self.on.brim(limit, "plan", "--json", "--times", *words, errors=subprocess.DEVNULL)
        if result.returncode != 0:
            raise RuntimeError(f"brim plan --times: exit status {result.returncode}")
        times = {}
        for row in json.loads(result.stdout)["times"]["operations"]:
            sums = times.setdefault(row["op"], [0, 0, 0])
            work = max(row["flops"] / FLOPS, row["bytes"] / BYTES)  # work of all nodes of the row
            for i, value in enumerate((row["times"], row["seconds"] or 0, work)):
                sums[i] += value
        table = "\n".join(f"{op:32} {count:6.0f} {1e3 * seconds:9.3f} ms  floor {1e3 * floor:9.3f} ms"
                          for op, (count, seconds, floor) in sorted(times.items(), key=lambda row: -row[1][1]))
        yield bool(times), {"table": "\n" + table}

    def kernels(self, limit):
        """Returns ncu's times of the first kernels, which belong to the warm-up on zeros."""
        case = next(iter(self.cases))
        program = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
        if not pathlib.Path(program).exists():
            raise Skipped("ncu is not installed")
        metric = "gpu__time_duration.sum"
        argv = [program, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
                "--graph-profiling", "node", "--target-processes", "all", "--metrics", metric,
                "--launch-count", KERNELS, "--kill", "yes"]
        result = self.on.run(limit, [*argv, self.on.build / "bin/brim", "--quiet", "train",
                                     f"run.dir={self.on.scratch}/ncu", *self.words(case), "training.steps=2"])
        lines = result.stdout.splitlines()
        head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
        if head is None:
            raise Skipped(f"ncu cannot be used here: {result.stdout.strip()[-300:]}")
        sums = {}
        for row in csv.DictReader(io.StringIO("\n".join(lines[head:]))):
            if not row["ID"]:
                continue  # the line with units
            short = row["Kernel Name"].split("(")[0].removeprefix("void ")[:90]
            total = sums.setdefault(short, [0, 0.0])
            total[0] += 1
            total[1] += float((row[metric] or "0").replace(",", "")) / 1e6
        table = "\n".join(f"{name:90} {count:5} {ms:9.3f} ms"
                          for name, (count, ms) in sorted(sums.items(), key=lambda row: -row[1][1])[:60])
        yield bool(sums), {"of": f"the first {KERNELS}", "ms": round(sum(
            ms for _, ms in sums.values()), 3), "table": "\n" + table}
