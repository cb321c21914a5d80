"""Tests memory pressure: a run warns; at the critical threshold it saves, cleans up and makes a smaller plan, with the
same results."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

from support import FASHION, FULL, HANG_SECONDS, NO_FIT, SANITIZED, SMALL, USAGE, Case, Result, main

MIB = 1 << 20
CNN = ["model=cnn", "model.width=4", "dataset=synthetic", "dataset.shape=[1,16,16]", "dataset.train_count=4096",
       "dataset.test_count=64", "training.batch_size=256", "training.grain=32", "training.eval_every_steps=8",
       "training.checkpoint_every_steps=1000", "backend.threads=1", "memory.timing=false", "seed=3"]
OFTEN = "memory.check_interval_seconds=0.002"
LINE = r"(Warning|Critical) at round \d+: RAM at \d+\.\d%"


class Pressure(Case):
    def reported(self, run):
        """Returns the events about memory, and the decisions."""
        return [(e["event"], e.get("detail") or e.get("choice")) for e in self.records(run, "events.jsonl")
                if e["event"] in ("memory_warning", "memory_critical", "decision")]

    def assert_same_results(self, run, steps):
        self.assert_same_checkpoint("alone", run, steps)
        self.assert_same_records("alone", run)

    def lines(self, result):
        return re.findall(LINE, result.err)


class Thresholds(Pressure):
    """Some of the host's memory is always in use, so a threshold near 0 is always reached."""

    LONG = [*SMALL, "dataset.train_count=2048", "training.steps=3000", "training.eval_every_steps=1000",
            "training.checkpoint_every_steps=5000", OFTEN]

    def test_a_warning_is_printed_once(self):
        result = self.train("run", *self.LONG, "memory.warn_percent=0.01", "memory.critical_percent=0")
        self.assertEqual(self.lines(result), ["Warning"])
        (event, detail), = self.reported("run")
        self.assertEqual(event, "memory_warning")
        self.assertRegex(detail,
                         LINE + r".* \([\d.]+ [KMGT]iB of [\d.]+ [KMGT]iB that the (machine|control group) has are "
                                r"used.*; CPU at \d+%\)$")
        self.assertNotIn("cleanup", result.err)
        self.assertEqual(self.events("run").count("checkpoint"), 1)

    def test_never(self):
        result = self.train("run", *self.LONG, "memory.warn_percent=0", "memory.critical_percent=0")
        self.assertEqual(self.reported("run"), [])
        self.assertEqual(self.lines(result), [])

    def test_critical_is_acted_on_in_order_and_after_growing_gaps(self):
        result = self.train("run", *self.LONG, "memory.warn_percent=0.01", "memory.critical_percent=0.02")
        lines = self.lines(result)
        self.assertEqual(set(lines), {"Critical"})
        self.assertLess(len(lines), 10)
        parts = re.findall(r"Critical at|\[Memory\] Before cleanup: \d+\.\d\d GB allocated$|"
                           r"\[Memory\] After cleanup: \d+\.\d\d GB \(freed \d+\.\d\d GB\)$|recovery: ",
                           result.err, re.M)
        self.assertEqual([part.split(":")[0] for part in parts[:4]],
                         ["Critical at", "[Memory] Before cleanup", "[Memory] After cleanup", "recovery"])
        events = self.records("run", "events.jsonl")
        first = [e["event"] for e in events].index("memory_critical")
        self.assertEqual([e["event"] for e in events[first:first + 3]], ["memory_critical", "checkpoint", "decision"])
        self.assertEqual(len({e["step"] for e in events[first:first + 3]}), 1)

    def test_the_saved_run_can_be_resumed(self):
        words = [*CNN, "training.steps=30", OFTEN]
        self.train("alone", *words)
        process = self.start("train", "run.dir=run", *words, "memory.critical_percent=0.02")
        self.until(lambda: self.steps("run"), process)
        process.kill()
        self.finish(process)
        self.assertTrue(self.steps("run"))
        self.brim("train", "--resume", "run")
        self.assert_same_results("run", 30)

    def test_values_are_checked(self):
        for word, text in (("memory.warn_percent=101", "must be in [0,100], got 101"),
                           ("memory.critical_percent=-1", "must be in [0,100]"),
                           ("memory.check_interval_seconds=0", "must be in [0.001,86400], got 0")):
            with self.subTest(word):
                self.assert_error(self.brim("train", *SMALL, word, status=USAGE), word.split("=")[0], text)

    def test_results_stay_the_same_whatever_the_plan_becomes(self):
        words = [*CNN, "training.steps=16", OFTEN]
        self.train("alone", *words)
        for run, more in (("cut", []), ("fixed", ["memory.recompute=none"]), ("loaders", ["training.num_workers=2"])):
            result = self.train(run, *words, *more, "memory.warn_percent=0.01", "memory.critical_percent=0.02")
            with self.subTest(run):
                choices = [choice for event, choice in self.reported(run) if event == "decision"]
                self.assertRegex(choices[0], r"^micro-batch (128 x 2|64 x 4|32 x 8).*, a plan of .* instead of ")
                self.assertIn("[Memory] After cleanup: ", result.err)
                self.assert_same_results(run, 16)


class Neighbours(Pressure):
    """Another run works on the same share of the host. The limit of the share is slightly more than both need
    together."""

    STEPS = 250
    WORDS = [*CNN, f"training.steps={STEPS}"]
    NEIGHBOUR = ["model=mlp", "model.hidden=[80000]", "dataset=synthetic", "dataset.shape=[1,8,8]",
                 "dataset.train_count=64", "dataset.test_count=0", "training.batch_size=1", "training.grain=1",
                 "optimizer=sgd", "training.checkpoint_every_steps=1000000000", "backend.threads=1",
                 "memory.timing=false", "memory.warn_percent=0", "memory.critical_percent=0"]

    def setUp(self):
        super().setUp()
        self.once(lambda: self.train("alone", *self.WORDS), "alone")
        self.alone = self.summary("alone")["device_bytes"]
        self.once(lambda: self.train("first", *self.NEIGHBOUR, "training.steps=1"), "first")
        rest = self.summary("first")["device_bytes"] / 0.95
        self.share = [f"backend.memory_mb={int((self.alone + rest) / MIB) + 1}", OFTEN]

    def start_and_wait(self, run, *words):
        process = self.start("train", f"run.dir={run}", *words, *self.share)
        self.until(lambda: self.has_begun(run), process)
        return process

    def neighbour(self):
        """Starts another run and stops it, because the tests need only its memory."""
        process = self.start_and_wait("neighbour", *self.NEIGHBOUR, "training.steps=1000000000")
        self.suspend(process.pid)
        return process

    def test_a_process_that_starts_later_causes_pressure(self):
        run = self.start_and_wait("run", *self.WORDS)
        self.neighbour()
        result = self.finish(run, 0)
        self.assertRegex(result.err, r"Critical at round \d+: RAM at [\d.]+%, cpu:0 at 9\d\.\d%")
        self.assertEqual([choice for event, choice in self.reported("run") if event == "decision"][1:], [], result)
        self.assertLess(self.summary("run")["device_bytes"], self.alone)
        self.assertEqual(self.summary("run")["device_peak_bytes"], self.alone)
        self.assert_same_results("run", self.STEPS)

    def test_a_process_that_started_before_causes_no_pressure(self):
        self.neighbour()
        self.finish(self.start_and_wait("run", *self.WORDS), 0)
        self.assertEqual(self.reported("run"), [])
        self.assert_same_results("run", self.STEPS)


@unittest.skipIf(SANITIZED, "a sanitizer keeps freed memory")
class Flat(unittest.TestCase):
    def test_resident_memory_stays_as_it_is_while_neighbours_come_and_go(self):
        script = pathlib.Path(__file__).resolve().parents[2] / "scripts/bench/neighbour.py"
        argv = [sys.executable, script, os.environ["BRIM_BINARY"], "200" if FULL else "100"]
        result = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(result.returncode, 0, result.stdout)


@contextlib.contextmanager
def control_group(test, limit):
    """Makes a group of the memory controller (v1 or v2) with a limit; skips the test if that is impossible."""
    name = f"brim-test-{os.getpid()}"
    for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(root, name)
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(limit))
            yield group
            return
        except OSError:
            continue
        finally:
            for _ in range(1000):
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.01)
    test.skipTest("no control group can be made here")


def most_used(group):
    """Returns the most bytes that the group has used; 0 if this kernel does not report it."""
    for file in ("memory.max_usage_in_bytes", "memory.peak"):
        if (group / file).exists():
            return int((group / file).read_text())
    return 0


@unittest.skipIf(SANITIZED, "a sanitizer's own memory is more than the group's limit")
class ControlGroup(Pressure):
    def in_group(self, group, *argv):
        join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        return subprocess.Popen(["sh", "-c", join, "sh", *argv], cwd=self.folder, text=True, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "BRIM_CLAIMS_DIR": str(self.folder / "claims")})

    def test_memory_of_other_processes_in_the_group_counts(self):
        words = [*CNN, "training.steps=250"]
        self.train("alone", *words)
        take = f"import sys; taken = b'x' * {140 * MIB}; print('taken', flush=True); sys.stdin.read()"
        with control_group(self, 200 * MIB) as group:
            binary = os.environ["BRIM_BINARY"]
            run = self.in_group(group, binary, "train", "run.dir=run", *words, OFTEN,
                                "memory.warn_percent=50", "memory.critical_percent=60")
            self.until(lambda: self.has_begun("run"), run)
            other = self.in_group(group, sys.executable, "-c", take)
            self.assertEqual(other.stdout.readline(), "taken\n")
            out, err = run.communicate(timeout=HANG_SECONDS)
            other.communicate()
            self.assertEqual(run.returncode, 0, err)
        critical = [detail for event, detail in self.reported("run") if event == "memory_critical"]
        self.assertRegex(critical[0], r"of 200\.0 MiB that the control group has are used")
        self.assertLess(self.summary("run")["device_bytes"], self.summary("alone")["device_bytes"])
        self.assert_same_results("run", 250)


    def finish_in_group(self, group, *argv):
        process = self.in_group(group, os.environ["BRIM_BINARY"], *argv)
        out, err = process.communicate(timeout=HANG_SECONDS)
        return Result(argv, process.returncode, out, err)

    def assert_too_large(self, result, limit):
        self.assertEqual(result.status, NO_FIT, result)
        needs, leaves = re.search(r"the run needs ([\d.]+) MiB of host memory, but the control group leaves it "
                                  r"([\d.]+) MiB\n  the process will take about [\d.]+ MiB of host memory: ",
                                  result.err).groups()
        self.assertLess(float(leaves), float(needs))
        self.assertLess(float(leaves), limit / MIB + 32)  # pages of shared libraries count for other groups
        # Suggestions count the whole process, not only its arena.
        for suggested, size in re.findall(r"(would fit, with|, needs) ([\d.]+) MiB", result.err):
            (self.assertLessEqual if suggested.startswith("would") else self.assertGreater)(float(size), float(leaves))
        self.assertNotIn("results in", result.out + result.err)

    def test_a_process_that_does_not_fit_says_so_before_it_reads_data(self):
        words = ["model=cnn", f"dataset.path={FASHION}", "backend=cpu", "memory.timing=false"]
        host = self.brim("plan", "--json", *words).json["host"]
        for share in (0.2, 0.5, 0.8):
            limit = int(share * host["total_bytes"])
            with self.subTest(share), control_group(self, limit) as group:
                self.assert_too_large(self.finish_in_group(group, "train", "run.dir=run", *words), limit)
                self.assertFalse((self.folder / "run").exists())
                plan = self.finish_in_group(group, "plan", "--json", *words)
                self.assert_too_large(plan, limit)
                chosen, = [device for device in json.loads(plan.out)["devices"] if device["chosen"]]
                self.assertLess((chosen["fits_now"] or {"batch_size": 0})["batch_size"], 64)
                self.assertLess(most_used(group), host["data_bytes"])

    def test_an_evaluation_that_does_not_fit_is_an_error_too(self):
        self.train("run", "model=mlp", "model.hidden=[8]", f"dataset.path={FASHION}", "backend=cpu", "training.steps=1",
                   "training.num_train_samples=64", "training.eval_every_steps=2", "memory.timing=false")
        with control_group(self, 24 * MIB) as group:
            result = self.finish_in_group(group, "eval", "run")
        self.assertEqual(result.status, NO_FIT, result)
        self.assertRegex(result.err,
                         r"the evaluation needs [\d.]+ MiB of host memory, but the control group leaves it "
                         r"[\d.]+ MiB\n")

    def test_policies_choose_a_size_that_fits_the_process(self):
        width = ["model.width=16", "dataset.shape=[1,32,32]", "training.steps=2", "training.eval_every_steps=2",
                 "backend=cpu"]
        host = self.brim("plan", "--json", *CNN, *width).json["host"]
        limit = host["total_bytes"] - host["process_bytes"] - host["arena_bytes"] // 2
        for words in (["policy=robust"], ["training.batch_size=auto", "training.effective_batch_size=256"]):
            with self.subTest(words), control_group(self, limit) as group:
                run = words[0].split("=")[1]
                result = self.finish_in_group(group, "train", f"run.dir={run}", *CNN, *width, *words)
                self.assertEqual(result.status, 0, result)
                self.assertLess(self.summary(run)["planned_peak_bytes"], host["arena_bytes"])


class Summary(Pressure):
    def test_memory_is_reported_in_gigabytes_per_device(self):
        self.assertNotIn("[Memory]", self.train("silent", *CNN, "training.steps=4").out)
        result = self.train("run", *CNN, "training.steps=4", "observe.memory_summary=true")
        summary = self.summary("run")
        arena = summary["device_bytes"]
        self.assertEqual(summary["device_reserved_bytes"], arena)
        self.assertEqual(summary["device_peak_bytes"], arena)
        self.assertIn(f"[Memory] cpu:0: allocated {1e-9 * arena:.3f} GB, reserved {1e-9 * arena:.3f} GB, "
                      f"max allocated {1e-9 * arena:.3f} GB\n", result.out)
        resident = re.search(r"\[Memory\] host: resident ([\d.]+) GB, max resident ([\d.]+) GB\n", result.out)
        self.assertLessEqual(float(resident[1]), float(resident[2]))
        self.assertGreaterEqual(summary["rss_peak_bytes"], summary["rss_bytes"])
        self.assertGreater(summary["rss_bytes"], arena)


if __name__ == "__main__":
    main()
