"""The checks of the first command: correct numbers, and memory as planned."""

import contextlib
import filecmp
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from machine import HERE, Job, OutOfTime, Skipped, json_lines, losses, summary
from networks import COMMON, SCALE, compare, federation, gpt2, images, networks, training

SHARDS = 12         # parts of the conformance table; six run at a time on 16 cores, beside the other checks
PLANNED_OFF = 0.03  # allowed difference from NVML's measurement
TOOLS = {"memcheck": "ERROR", "initcheck": "ERROR", "racecheck": "RACECHECK", "synccheck": "ERROR"}
OWN_KERNELS = "regex=^_Z[0-9]"  # mangled names outside of any namespace; the libraries' names are inside one
CHECKPOINTS = ["training.checkpoint_every_steps=3", "training.keep_checkpoints=10"]
OWN_ATTENTION = ["own", "own_fp32"]  # values of backend.attention
LANES = [1, 4, 10]  # clients of a federation that train at the same time
FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


class Correct:
    """The checks on one machine, with the reference curves of the pack."""

    jobs_max = 16

    def __init__(self, on, curves, reduced):
        self.on, self.curves, self.reduced = on, curves, reduced
        self.covered = []  # operations compared by each shard of the conformance table
        self.networks = networks(reduced)
        self.shards, self.thirds = (1, 1) if reduced else (SHARDS, 3)
        self.precisions = ["bf16"] if reduced else ["fp32", "bf16", "fp16"]
        # Full GPT-2, for checks that depend on sizes: split sums, graphs of 900 kernels, memory
        self.large = [*COMMON, *gpt2(reduced, 12, 8, 6), "precision=bf16", "backend=cuda"]
        self.small = [*COMMON, *self.networks["cnn"], "backend=cuda", "precision=fp32",
                      "training.steps=6"]

    def alone(self):
        """Returns the checks that need the device alone; they are the fastest, so they come first. Two ranks on one
        device take turns on it to wait for each other, and would take turns with other processes too."""
        ranks = Job([*(f"two ranks, dist.shard={s}: the losses of one" for s in ("none", "optimizer", "gradients")),
                     "two ranks: the same bits again"], 120, self.ranks)
        return [Job("a first step", 60, self.first_step),
                Job(self.planned_names(), 120, self.planned),
                Job(["a run beside a process that takes all other memory",
                     "a run that does not fit beside it is refused"], 90, self.neighbour),
                Job(["a trace by CUPTI: the times of kernels", "a trace by CUPTI: the same bits"], 60, self.traced),
                Job("steps that overflow in fp16 leave no trace", 60, self.overflow),
                Job("the same bits when interrupted and resumed", 60, self.interrupted),
                ranks, Job("a rank that is killed ends the job", 90, self.killed_rank),
                Job([f"a federation, {lanes} clients at a time: {what}" for lanes in LANES
                     for what in ("placed as planned", "the same bits")], 60, self.federate)]

    def together(self):
        """Returns the checks that may share the device. Shards run side by side, because a check that runs out of
        time has no other result."""
        sanitizers = [Job(f"{tool} of own kernels, shard {shard + 1} of {self.thirds}", 400,
                          self.sanitize(tool, shard))
                      for shard in range(self.thirds) for tool in TOOLS]
        shards = [Job(f"conformance, shard {shard + 1} of {self.shards}", 420, self.conformance(shard))
                  for shard in range(self.shards)]
        curves = [Job([f"curve of {name} in {precision}", f"libraries, {name} in {precision}"], 240,
                      self.curve(name, precision)) for precision in self.precisions for name in self.networks]
        repeats = Job([f"gpt2 124M in bf16, the same bits: {what}" for what in (
            "second run", "third run", "one launch at a time", "resumed after step 3")], 300, self.repeats)
        own = [Job(f"attention by own kernels ({kind}), every operation", 300, self.own_attention(kind))
               for kind in OWN_ATTENTION]
        own += [Job(f"curve of gpt2 in {precision}, attention by own kernels", 120, self.own_curve(precision))
                for precision in self.precisions if precision != "fp32"]
        own.append(Job("gpt2 124M with dropout in bf16, the same bits again", 240, self.own_repeats))
        return [repeats, *own, *curves, *(job for pair in zip(shards, sanitizers) for job in pair),
                *sanitizers[len(shards):]]

    # ---- alone on the device ----

    def first_step(self, limit):
        start = time.monotonic()
        run = self.on.train(limit, "first", *self.small, "training.steps=2")
        found = summary(run)
        yield (found["planned_peak_bytes"] == found["device_peak_bytes"] > 0,
               {"planned": found["planned_peak_bytes"], "allocated": found["device_peak_bytes"],
                "process": f"{time.monotonic() - start:.1f} s",
                "to the first step": f"{found['first_step_seconds']:.1f} s"})

    def memory_cases(self):
        vision = [*COMMON, "model=resnet50", "precision=bf16", "backend=cuda"]
        size = [*images([3, 16, 16]), "model.width=2", *training(4, 3)] if self.reduced else [
            *images([3, 224, 224]), *training(64, 20)]
        return {"gpt2 124M in bf16": self.large, "resnet50 in bf16": [*vision, *size],
                "cnn in fp32": [*self.small, "training.steps=200"]}

    def planned_names(self):
        return [f"planned against NVML, {name}" for name in self.memory_cases()]

    def planned(self, limit):
        for number, (name, words) in enumerate(self.memory_cases().items()):
            before = most = self.on.used_bytes()
            run = self.on.scratch / f"memory-{number}"
            process = self.on.start([self.on.build / "bin/brim", "--quiet", "train", f"run.dir={run}", *words])
            try:
                while process.poll() is None:
                    most = max(most, self.on.used_bytes())
                    if limit.left() <= 0:
                        raise OutOfTime
                    time.sleep(0.02)
            finally:
                said = self.on.end(process)
            if process.returncode != 0:
                raise RuntimeError(f"{name}: exit status {process.returncode}\n{said}")
            found, taken = summary(run), most - before
            reserved = found["device_reserved_bytes"]
            yield (abs(reserved - taken) <= PLANNED_OFF * taken,
                   {"planned": reserved, "of that the arena": found["device_bytes"], "NVML": taken,
                    "off by": f"{reserved / taken - 1:+.1%}" if taken else "all of it"})

    def neighbour(self, limit):
        """Once a run has its arena, a process that ignores brim's claims takes the rest of the device's memory. The run
        continues, and has the bits of a run alone with the same number of steps."""
        beside, report = self.on.scratch / "beside", self.on.scratch / "neighbour"
        records = beside / "metrics.jsonl"

        def steps():
            return records.read_bytes().count(b"\n") if records.exists() else 0

        with contextlib.ExitStack() as stack:
            run = self.on.start([self.on.build / "bin/brim", "--quiet", "train", f"run.dir={beside}", *self.large,
                                 "training.steps=1000000"])
            stack.callback(self.on.end, run)
            wait_for(limit, run, steps)
            other = self.on.start([sys.executable, HERE / "neighbour.py", report])
            stack.callback(self.on.end, other)
            wait_for(limit, other, report.exists)
            refused = self.on.brim(limit, "--quiet", "train", f"run.dir={self.on.scratch}/refused",
                                   *[w for w in self.large if not w.startswith("wait_for_gpu")])
            before = steps()
            wait_for(limit, run, lambda: steps() > before + 3)
            run.send_signal(signal.SIGINT)
            wait_for(limit, None, lambda: run.poll() is not None)
            said = self.on.end(run)
        taken, done = int(report.read_text()), len(losses(beside))
        alone = self.on.train(limit, "alone", *self.large, f"training.steps={done}")
        yield (taken > 0 and run.returncode == 6 and same_checkpoint(alone, beside, FILES[:2]),
               {"taken": taken, "steps": done, "exit status": run.returncode, "said": said[-200:]})
        yield (refused.returncode == 4,
               {"exit status": refused.returncode, "said": refused.stdout.strip()[:300]})

    def federate(self, limit):
        """Each client that trains at the same time as others has its own stream, handles and recorded programs."""
        first = None
        for lanes in LANES:
            run = self.on.train(limit, f"lanes-{lanes}", *federation(self.reduced, lanes, 3), command="federate")
            found, first = summary(run), first or run
            yield (found["planned_peak_bytes"] == found["device_peak_bytes"] > 0,
                   {"planned": found["planned_peak_bytes"], "allocated": found["device_peak_bytes"],
                    "reserved": found["device_reserved_bytes"]})
            yield same_checkpoint(first, run, FILES[:2]), {}

    # ---- operations ----

    def bench(self, limit, prefix, cases, **env):
        env = {"BENCH_CASES": str(cases), **env}
        if self.reduced:
            env["BENCH_ROWS"] = "relu"
        path = os.environ.get("BRIM_PLUGIN_PATH")  # emulated device: FOLDER/lib/brim/plugins
        where = [os.path.relpath(pathlib.Path(path).parents[2], self.on.build)] if path else []
        return self.on.run(limit, [*prefix, self.on.build / "tests/test_conformance", "cuda", *where], env)

    def conformance(self, shard):
        def check(limit):
            result = self.bench(limit, [], 8, BENCH_SHARD=f"{shard}/{self.shards}")
            # an operation, then "N cases  worst X" for fp32, bf16 and fp16
            rows = {line[:30].strip(): re.findall(r"(\d+) cases  worst (\S+)", line)[-3:]
                    for line in result.stdout.splitlines() if "cases  worst" in line}
            self.covered.append(set(rows))
            worst = {p: max((float(row[i][1]) for row in rows.values() if len(row) == 3), default=0)
                     for i, p in enumerate(("fp32", "bf16", "fp16"))}
            yield (result.returncode == 0 and bool(rows),
                   {"cases": sum(int(n) for row in rows.values() for n, _ in row),
                    **{f"worst in {p}": f"{w:.1e}" for p, w in worst.items()},
                    **failure(result)})
        return check

    def own_attention(self, kind):
        """Runs the rows of attention without cuDNN. Those on tensor cores have random lengths, groups, dropout and
        windows."""
        def check(limit):
            rows = {} if self.reduced else {"BENCH_ROWS": "attention"}
            result = self.bench(limit, [], 8, BENCH_LARGE="1" if self.reduced else "6",
                                BENCH_SETTINGS=f"{{attention: {kind}}}", **rows)
            yield result.returncode == 0, failure(result)
        return check

    def last(self):
        return [Job("every operation has been compared", 60, self.coverage)]

    def coverage(self, limit):
        """Lists operations that no shard compared; fused operations ("+") and cast are optional."""
        if len(self.covered) < self.shards:
            raise Skipped(f"only {len(self.covered)} of {self.shards} shards were run by this command")
        words = self.on.brim(limit, "ops", "--json", errors=subprocess.DEVNULL).stdout
        operations = {op["name"] for op in json.loads(words)["operations"]}
        missing = sorted(op for op in operations.difference(*self.covered) if "+" not in op and op != "cast")
        yield not missing, {
            "operations": len(operations), "without a case": " ".join(missing) or "none"}

    def sanitize(self, tool, shard):
        def check(limit):
            program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
            if not pathlib.Path(program).exists():
                raise Skipped("compute-sanitizer is not installed")
            # One case of each row is enough, because sanitizers' findings do not depend on the numbers.
            result = self.bench(limit, [program, "--tool", tool, "--error-exitcode", "97", "--kernel-name",
                                        OWN_KERNELS], 1, CUDA_MODULE_LOADING="LAZY",
                                BENCH_SHARD=f"{shard}/{self.thirds}")
            errors = re.search(TOOLS[tool] + r" SUMMARY: (\d+) (?:error|hazard)", result.stdout)
            if "[==========] Running" not in result.stdout:
                raise Skipped(f"compute-sanitizer cannot be used here: {result.stdout.strip()[:300]}")
            own = re.search("=========.*Internal Sanitizer Error: (.*)", result.stdout)
            if own and not re.search("=========.*(Race|Invalid|Uninitialized|Barrier)", result.stdout):
                done = result.stdout[:own.start()].count("[       OK ]")
                raise Skipped(f"compute-sanitizer failed: {own[1]} It reported no error in the {done} tests before")
            yield (result.returncode == 0 and errors is not None and errors[1] == "0",
                   {"errors": errors[1] if errors else "no summary", "exit status": result.returncode,
                    **failure(result)})
        return check

    # ---- training ----

    def curve(self, name, precision):
        def check(limit):
            words = [*COMMON, *self.networks[name], "backend=cuda", f"precision={precision}", *SCALE.get(precision, [])]
            run = self.on.train(limit, f"curve-{name}-{precision}".replace(" ", "-"), *words)
            good, figures = compare(losses(run), self.curves[name], precision, name)
            yield good, figures
            counts = summary(run)["kernels"]
            refused = counts.pop("refused")
            # Attention on tensor cores is for 16 bits. The reduced mental_state has heads of 2 numbers.
            known = "attention" if precision == "fp32" or (self.reduced and name == "mental_state") else "(none)"
            yield (all(r["operation"].startswith(known) for r in refused) and len(counts) > 1,
                   {**counts, "refused": "; ".join(f"{r['operations']} {r['operation']}: {r['reason']}"
                                                   for r in refused) or "nothing"})
            shutil.rmtree(run)
        return check

    def own_curve(self, precision):
        """Trains with brim's own attention. The network has no dropout, so by default cuDNN would compute its
        attention."""
        def check(limit):
            words = [*COMMON, *self.networks["gpt2"], "backend=cuda", f"precision={precision}", "backend.attention=own",
                     *SCALE.get(precision, [])]
            run = self.on.train(limit, f"own-attention-{precision}", *words)
            yield compare(losses(run), self.curves["gpt2"], precision, "gpt2")
            shutil.rmtree(run)
        return check

    def own_repeats(self, limit):
        """Repeats a run: dropout's mask and all sums of attention on tensor cores must have the same bits."""
        words = [*self.large, "model.dropout=0.1", *CHECKPOINTS]
        runs = [self.on.train(limit, f"dropout-{i}", *words) for i in range(2)]
        yield same_checkpoint(*runs), {"loss": losses(runs[1])[-1]}
        for run in runs:
            shutil.rmtree(run)

    def repeats(self, limit):
        words = [*self.large, *CHECKPOINTS]
        once = self.on.train(limit, "once", *words)
        for folder, more in (("again", []), ("third", []), ("slow", ["--debug-launches"])):
            run = self.on.train(limit, folder, *words, *more)
            yield same_checkpoint(once, run), {"loss": losses(run)[-1]}
            shutil.rmtree(run)
        cut = self.on.scratch / "cut"
        shutil.copytree(once, cut, symlinks=True)
        cut_back(cut, 3)
        self.resume(limit, cut)
        yield same_checkpoint(once, cut), {"loss": losses(cut)[-1]}

    def resume(self, limit, run):
        result = self.on.brim(limit, "--quiet", "train", "--resume", run)
        if result.returncode != 0:
            raise RuntimeError(f"--resume: exit status {result.returncode}\n{result.stdout[-2000:]}")

    def overflow(self, limit):
        """The device detects infinite gradients in fp16 while the host is ahead: parameters and the optimizer's state
        stay as before the step."""
        steps = 24 if self.reduced else 40
        run = self.on.train(limit, "overflow", *self.small, "precision=fp16", f"loss_scale.init_scale={1 << 40}",
                            "training.clip_norm=1", f"training.steps={steps}", "training.checkpoint_every_steps=1",
                            "training.keep_checkpoints=100")
        skipped = {e["step"] for e in json_lines(run / "events.jsonl") if e["event"] == "skipped_step"}
        files = {s: run / f"checkpoints/step-{s:08d}" for s in range(1, steps + 1)}
        same = all(filecmp.cmp(files[s - 1] / part, files[s] / part, shallow=False) == (s in skipped)
                   for s in range(2, steps + 1) for part in FILES[:2])
        yield same and 0 < len(skipped) < steps, {
            "skipped": len(skipped), "scale": summary(run)["loss_scale"]}

    def traced(self, limit):
        """In a trace, each operation takes some time, and all together take no longer than the steps."""
        words = [*self.small, "training.checkpoint_every_steps=6"]
        run = self.on.train(limit, "traced", *words, "observe.trace=4:6")
        table = json.loads((run / "operations.json").read_text(encoding="utf-8"))
        if not table["measured_by"].startswith("CUPTI"):
            raise Skipped(table["measured_by"])
        timed = [row for row in table["operations"] if row["seconds"] > 0]
        yield (len(timed) > len(table["operations"]) / 2 and 0 < table["covered"] <= 1,
               {"operations": len(table["operations"]), "with a time": len(timed), "ms a step":
                f"{1e3 * table['step_seconds']:.3f}", "of that in operations": f"{table['covered']:.1%}"})
        plain = self.on.train(limit, "untraced", *words)
        yield same_checkpoint(plain, run), {"loss": losses(run)[-1]}

    def interrupted(self, limit):
        """When the signal arrives, one more step has been started on the device. It must not affect the checkpoint."""
        words = [*self.small, f"training.steps={60 if self.reduced else 300}"]
        whole, part = self.on.train(limit, "whole", *words), self.on.scratch / "part"
        process = self.on.start([self.on.build / "bin/brim", "--quiet", "train", f"run.dir={part}", *words])
        try:
            records = part / "metrics.jsonl"
            wait_for(limit, process, lambda: records.exists() and records.read_bytes().count(b"\n") >= 20)
            process.send_signal(signal.SIGINT)
            wait_for(limit, None, lambda: process.poll() is not None)
        finally:
            self.on.end(process)
        if process.returncode == 0:
            raise Skipped("the run ended before the signal")
        if process.returncode == 6:
            self.resume(limit, part)
        yield process.returncode == 6 and same_checkpoint(whole, part), {"exit status": process.returncode}

    # ---- ranks ----

    def rank_words(self):
        """Returns overrides that distribute two norm groups of 16 and a remainder over the ranks, with minimal buckets.
        The ranks share a GPU, so comm/nccl makes NCCL treat each of them as a separate host."""
        return [*self.small, "training.batch_size=8", "training.gradient_accumulation_steps=8", "dist.bucket_mb=0",
                "dist.check_every_steps=3", "dist.timeout_seconds=60"]

    def ranks(self, limit):
        if not self.has_communicator(limit):
            raise Skipped("the build has no comm/nccl")
        one = losses(self.on.train(limit, "one", *self.rank_words()))
        for shard in ("none", "optimizer", "gradients"):
            run = self.on.train(limit, f"two-{shard}", *self.rank_words(), "dist.ranks=2", f"dist.shard={shard}")
            good, figures = compare(losses(run), one, "fp32")
            yield good, figures
        again = self.on.train(limit, "two-again", *self.rank_words(), "dist.ranks=2", "dist.shard=gradients")
        yield same_checkpoint(run, again), {"loss": losses(again)[-1]}

    def has_communicator(self, limit):
        return "nccl" in self.on.brim(limit, "plugins").stdout

    def killed_rank(self, limit):
        if not self.has_communicator(limit):
            raise Skipped("the build has no comm/nccl")
        run = self.on.scratch / "killed"
        process = self.on.start([self.on.build / "bin/brim", "--quiet", "train", f"run.dir={run}", *self.rank_words(),
                                 "dist.ranks=2", "training.steps=1000000"])
        try:
            records = run / "metrics.jsonl"
            wait_for(limit, process, lambda: records.exists() and records.stat().st_size)
            victim = ranks_of(run).get(1)
            if not victim:
                raise RuntimeError("rank 1 was not found")
            os.kill(victim, signal.SIGKILL)
            start = time.monotonic()
            wait_for(limit, None, lambda: process.poll() is not None)
            seconds, left = time.monotonic() - start, ranks_of(run)
        finally:
            said = self.on.end(process)
        yield process.returncode == 5 and "rank 1" in said and not left, {
            "exit status": process.returncode, "ended after": f"{seconds:.1f} s", "left running": len(left),
            "said": said.strip()[:200]}


def wait_for(limit, process, condition):
    while not condition():
        if process and process.poll() is not None and not condition():
            raise RuntimeError(f"a process ended too early: exit status {process.returncode}\n"
                               f"{process.communicate()[0][-1000:]}")
        if limit.left() <= 0:
            raise OutOfTime
        time.sleep(0.005)


def failure(result):
    """Returns the figures of a failed test program: the first lines of its error. The details have all of it."""
    if result.returncode == 0:
        return {}
    telling = re.compile(r"error [0-9.]|\[  FAILED|Failed!|=========.*(at|rror)")
    lines = [line for line in result.stdout.splitlines() if telling.search(line)]
    return {"said": "\n".join(lines[:8]) or result.stdout[-400:], "details": result.stdout}


def same_checkpoint(a, b, files=FILES):
    return all(filecmp.cmp(a / "checkpoints/last" / n, b / "checkpoints/last" / n, shallow=False) for n in files)


def cut_back(run, step):
    """Makes the run look as if it had been killed right after the checkpoint of a step."""
    for checkpoint in (run / "checkpoints").glob("step-*"):
        if int(checkpoint.name[5:]) > step:
            shutil.rmtree(checkpoint)
    for link in ("last", "best"):
        (run / "checkpoints" / link).unlink(missing_ok=True)
    (run / "checkpoints/last").symlink_to(f"step-{step:08d}")
    (run / "summary.json").unlink()


def ranks_of(run):
    """Returns the processes of the job that writes to this folder, by rank."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(run).encode() not in (folder / "cmdline").read_bytes():
                continue
            for word in (folder / "environ").read_bytes().split(b"\0"):
                name, _, value = word.partition(b"=")
                if name in (b"BRIM_RANK", b"OMPI_COMM_WORLD_RANK"):
                    found[int(value)] = int(folder.name)
    return found
