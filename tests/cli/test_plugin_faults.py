"""Tests plugins that crash, loop or return nonsense: the run ends with a message that names the plugin, writes a
checkpoint first if it has begun, and resumes to the bits of an undisturbed run."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from support import BINARY, DONE, FAILED, LOAD, NO_FIT, SANITIZED, SMALL, USAGE, Case, main, plain

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))
from jobs import ENVIRONMENT  # noqa: E402  pylint: disable=wrong-import-position

BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"])
# A sanitizer handles these signals in its own way.
unsanitized = unittest.skipIf(SANITIZED, "a sanitizer has handlers and limits of its own")

RUN = [*SMALL, "training.steps=8", "training.eval_every_steps=1", "training.checkpoint_every_steps=100",
       f"--plugin-path={BAD}"]
CRASHES = {"segv": "segmentation fault (SIGSEGV) at address 0x10", "abort": "abort (SIGABRT)",
           "fpe": "arithmetic exception (SIGFPE)", "ill": "illegal instruction (SIGILL)",
           "stack": "segmentation fault (SIGSEGV) at address 0x", "exit": "called exit()"}


class Bad(Case):
    def bad(self, words, *overrides, run="run", status=FAILED):
        """Makes a run with the bad policy, which misbehaves as the options say."""
        return self.train(run, *RUN, "policy=[bad]", *overrides, status=status, env={"BRIM_BAD": words})

    def assert_named(self, result, *parts):
        self.assert_error(result, "policy 'bad'", str(BAD / "policy" / "bad.so"), *parts)


class BeforeTheRun(Bad):
    def test_a_crash_names_the_plugin_the_function_and_the_signal(self):
        for hook in ("create", "choose_device", "choose_plan"):
            for what, text in CRASHES.items():
                with self.subTest(hook=hook, what=what):
                    if SANITIZED and what == "stack":
                        continue
                    self.assert_named(self.bad(f"{hook}:{what}"), hook, text)
                    self.assertFalse((self.folder / "run").exists())

    @plain
    def test_a_loop_is_abandoned_after_its_time(self):
        self.assert_named(self.bad("choose_plan:loop"), "did not return from choose_plan",
                          "after 1 s of processor time")

    @plain
    def test_a_loop_of_questions_is_abandoned_too(self):
        self.assert_error(self.bad("choose_plan:asks"), "policy 'bad'", "choose_plan")

    @plain
    def test_a_child_that_a_policy_forks_ends_by_itself(self):
        for words in ("choose_plan:child_exits", "choose_plan:child_crashes", "choose_plan:child_returns"):
            with self.subTest(words):
                # At exit(), the leak sanitizer takes all locks of its allocator. In a child, one of them may have been
                # held by a thread of the parent, so nothing releases it.
                if SANITIZED and words == "choose_plan:child_exits":
                    continue
                result = self.train(words.split(":")[1], *RUN, "policy=[bad,auto_plan]", status=DONE,
                                    env={"BRIM_BAD": words})
                self.assertNotIn("brim train --resume", result.err)

    def test_pointers_that_lead_nowhere_are_the_policys(self):
        self.assert_named(self.bad("choose_plan:wild"), "crashed in choose_plan")
        self.assert_error(self.bad("choose_plan:null", status=USAGE), "with a NULL pointer", "policy 'bad'")

    def test_nonsense_is_refused_with_the_value(self):
        for words, status, parts in (
                ("choose_device:kind", USAGE, ["policy.bad", "kind 77"]),
                ("choose_device:device", USAGE, ["policy.bad", "device 1 of 1"]),
                ("choose_device:negative", USAGE, ["policy.bad", "device -1 of 1"]),
                ("choose_device:tiny", NO_FIT, ["the policy allows 1 B"]),
                ("choose_device:reason", FAILED, ["policy.bad", "choose_device", "200 bytes"]),
                ("choose_plan:zero", USAGE, ["policy.bad", "the micro-batch 0", "from 128 down to 1"]),
                ("choose_plan:odd", USAGE, ["policy.bad", "the micro-batch 129"]),
                ("choose_plan:precision", USAGE, ["policy.bad", "precision", "does not have: unknown"]),
                ("choose_plan:model", USAGE, ["'no_such_model'", "available:", "policy.bad requested"]),
                ("choose_plan:foreign", USAGE, ["12345", "policy 'bad'"]),
                ("choose_plan:reason", FAILED, ["policy.bad", "choose_plan", "200 bytes", "brim_reason"]),
                ("choose_plan:silent", FAILED, ["policy 'bad'", "without an error text", "device error"]),
                ("choose_plan:unknown", FAILED, ["policy 'bad'", "returned 77", "not a status"]),
                ("choose_plan:interrupted", FAILED, ["policy 'bad'", "EINTERRUPTED"]),
                ("choose_plan:fails", USAGE, ["this policy does not want to", "policy 'bad'"])):
            with self.subTest(words):
                self.assert_error(self.bad(words, status=status), *parts)
                self.assertFalse((self.folder / "run").exists())

    def test_a_dataset_that_gives_no_reason_is_named(self):
        for function in "create", "open", "describe", "read":
            result = self.train("run", "model=mlp", "dataset=bad", "backend.threads=1", f"--plugin-path={BAD}",
                                status=FAILED, env={"BRIM_BAD": f"{function}:silent"})
            self.assert_error(result, f"dataset 'bad' failed in {function} without an error text: device error")

    @plain
    def test_out_of_memory_goes_to_no_other_policy(self):
        limit = ["backend=cpu", "backend.devices=1", "backend.memory_mb=1", "model.hidden=[2048]"]
        self.assert_named(self.bad("on_oom:segv", *limit), "crashed in on_oom")
        self.assert_error(self.bad("on_oom:kind", *limit, status=USAGE), "policy.bad", "unknown action kind 77")
        self.assert_error(self.bad("on_oom:again", *limit, status=NO_FIT), "needs")


class Simulated(Case):
    def test_unwritable_results_are_an_error_after_a_crash_too(self):
        command = [BINARY, "simulate", "scenario=all_busy", "policy=bad,robust", f"--plugin-path={BAD}"]
        with open("/dev/full", "w", encoding="ascii") as full:
            process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                                     env={**os.environ, "BRIM_BAD": "destroy:segv"})
        self.assertEqual(process.returncode, FAILED, process.stderr)
        self.assertIn("error: cannot write to standard output", process.stderr)


class InTheMiddle(Bad):
    """A fault in the middle leaves a checkpoint of the last commit; the run resumes as if nothing had happened."""

    def assert_goes_on(self, result, step, run="run"):
        self.assert_error(result, f"there is a checkpoint of step {step}", f"brim train --resume {run}")
        self.assertIn(step, self.steps(run))
        self.assertEqual(self.summary(run)["status"], "failed")
        self.brim("train", f"--plugin-path={BAD}", "--resume", run)
        self.train("whole", *RUN, "policy=[bad]")
        self.assert_same_checkpoint("whole", run, 8)
        self.assert_same_records("whole", run)

    def test_a_crash(self):
        result = self.bad("on_boundary:segv:4")
        self.assert_named(result, "crashed in on_boundary")
        self.assert_goes_on(result, 4)

    def test_exit(self):
        result = self.bad("on_boundary:exit:4")
        self.assert_named(result, "called exit() in on_boundary")
        self.assertNotIn("a handler of exit() has run", result.err)
        self.assert_goes_on(result, 4)

    @plain
    def test_a_loop(self):
        result = self.bad("on_boundary:loop:5")
        self.assert_named(result, "did not return from on_boundary")
        self.assert_goes_on(result, 5)

    @plain
    def test_nonsense(self):
        result = self.bad("on_boundary:kind:3", status=USAGE)
        self.assert_error(result, "policy.bad", "unknown cleanup kind 77")
        self.assert_goes_on(result, 3)

    def test_between_two_steps(self):
        result = self.bad("on_step:abort")
        self.assert_named(result, "crashed in on_step", "abort (SIGABRT)")
        self.assert_goes_on(result, 0)

    @plain
    def test_more_lanes_than_there_may_be(self):
        result = self.bad("on_step:lanes", status=USAGE)
        self.assert_error(result, "policy.bad chose 1 clients at a time after step 0, where at most 0 are allowed")

    def test_when_memory_runs_out(self):
        result = self.train("run", *RUN, "policy=[bad]", "memory.recompute=none", "max_retries=0", status=FAILED,
                            env={"BRIM_BAD": "on_oom:segv", "BRIM_FAULT": "step:6"})
        self.assert_named(result, "crashed in on_oom")
        self.assert_goes_on(result, 5)

    @unittest.skipUnless(shutil.which(os.environ.get("BRIM_MPIRUN", "").split(" ")[0] or "none"), "there is no mpirun")
    @plain
    def test_of_one_rank_of_two(self):
        for words, step in (("on_boundary:segv:4", 4), ("on_step:loop", 0)):
            with self.subTest(words):
                result = self.train(f"run{step}", *RUN, "policy=[bad]", "dist.ranks=2", "training.grain=1",
                                    status=FAILED, env={**ENVIRONMENT, "BRIM_BAD": words, "BRIM_BAD_RANK": "1"})
                self.assert_named(result, "error: rank 1: policy 'bad'", f"there is a checkpoint of step {step}")
                self.assertIn(step, self.steps(f"run{step}"))

    @plain
    def test_at_the_end_it_changes_nothing(self):
        for what in ("segv", "exit"):
            with self.subTest(what):
                result = self.bad(f"destroy:{what}", run=what, status=DONE)
                self.assertIn("warning: policy 'bad'", result.err)
                self.assertEqual(self.summary(what)["status"], "finished")


class Elsewhere(Case):
    """A crash outside of policies ends the process by its signal, after a message that names the plugin."""

    DATA = ["dataset=bad", "model=mlp", "model.hidden=[4]", "training.batch_size=16", "training.steps=20",
            "training.checkpoint_every_steps=4", "backend.threads=1", "memory.timing=false", "augment.flip=false",
            f"--plugin-path={BAD}"]

    def crash(self, words, *overrides, by=signal.SIGSEGV):
        result = self.train("run", *overrides, status=None, env={"BRIM_BAD": words})
        self.assertEqual(result.status, -by, result)
        return result

    @unsanitized
    def test_of_a_dataset(self):
        file = BAD / "dataset" / "bad.so"
        for words in ("create:segv", "open:segv", "open:stack", "describe:segv"):
            with self.subTest(words):
                self.assert_error(self.crash(words, *self.DATA), f"the plugin {file} has crashed: segmentation fault",
                                  f"brim check {file}")
        aborted = self.crash("create:abort", *self.DATA, by=signal.SIGABRT)
        self.assert_error(aborted, file, "abort (SIGABRT)")
        self.assertRegex(aborted.err, r"\n  at 0x[0-9a-f]+ of /.*libc.*\n")

    @unsanitized
    def test_of_a_reading_thread(self):
        result = self.crash("read:segv:200", *self.DATA, "training.num_workers=2")
        self.assert_error(result, BAD / "dataset" / "bad.so", "brim train --resume run")
        self.brim("train", f"--plugin-path={BAD}", "--resume", "run")

    @unsanitized
    def test_of_a_model(self):
        words = [word for word in RUN if not word.startswith("model")]
        self.assert_error(self.crash("build:segv", "model=bad", *words), BAD / "model" / "bad.so", "SIGSEGV")

    MODEL = ["model=bad", *(word for word in RUN if not word.startswith("model"))]

    @unsanitized
    def test_a_constructor_that_crashes_is_the_plugins(self):
        result = self.crash("load:segv", *self.MODEL)
        self.assert_error(result, f"the plugin {BAD / 'model' / 'bad.so'}, which brim was loading, has crashed: "
                                  "segmentation fault", "constructor")
        self.assertNotIn("brim has crashed", result.err)

    @unsanitized
    @plain
    def test_a_signal_from_another_process_is_not_reported_as_a_plugins_crash(self):
        for number, name in ((signal.SIGSEGV, "segmentation fault (SIGSEGV)"), (signal.SIGABRT, "abort (SIGABRT)")):
            with self.subTest(name):
                run = f"run{number}"
                process = self.start("train", f"run.dir={run}", *self.DATA, "training.steps=1000000", "policy+=bad",
                                     "training.num_workers=1")
                self.until((self.folder / run / "metrics.jsonl").exists, process)
                process.send_signal(number)
                result = self.finish(process, -number)
                self.assert_error(result, f"error: process {os.getpid()} sent this process a signal: {name}",
                                  f"brim train --resume {run}")
                self.assertNotIn("crashed", result.err)

    def assert_exit(self, words, kind, *overrides, status=FAILED):
        result = self.train("run", *overrides, env={"BRIM_BAD": words}, status=status)
        file = BAD / kind / "bad.so"
        self.assert_error(result, f"the plugin {file}", "called exit(), which ends the program; plugins must not")
        self.assertFalse((self.folder / "run" / "summary.json").exists())
        return result

    def test_exit_of_a_model_or_a_dataset_is_a_failure(self):
        self.assert_exit("load:exit", "model", *self.MODEL, status=LOAD)
        # Uses only the dataset's folder: each of the bad plugins has the id bad, and one loaded before it would exit
        # too.
        data = [word for word in self.DATA if not word.startswith("--plugin-path")]
        self.assert_exit("load:exit", "dataset", *data, f"--plugin-path={BAD / 'dataset'}", status=LOAD)
        for words in ("build:exit", "build:quick_exit"):
            self.assert_exit(words, "model", *self.MODEL)
        for words in ("create:exit", "open:exit", "describe:exit"):
            self.assert_exit(words, "dataset", *self.DATA)

    @plain
    def test_exit_of_a_reading_thread_says_how_to_resume(self):
        result = self.assert_exit("read:exit:200", "dataset", *self.DATA, "training.num_workers=2")
        self.assert_error(result, "brim train --resume run")

    @plain
    def test_a_sweep_counts_a_job_that_a_plugin_has_ended_as_failed(self):
        for what in ("exit", "leaves"):
            with self.subTest(what):
                result = self.train(what, "-m", "seed=1", *self.MODEL, status=FAILED, env={"BRIM_BAD": f"build:{what}"})
                job, = self.json(what, "sweep.json")["jobs"]
                self.assertEqual((job["status"], job["exit_status"]), ("failed", FAILED), result)
        self.assertIn("exit status 0 before the run was finished", result.err)

    def test_a_slow_call_is_reported_and_waited_for(self):
        words = [word for word in RUN if not word.startswith("model")]
        slow = [(self.start("plan", "model=bad", *words, env={"BRIM_BAD": "build:naps"}), "model", "build"),
                (self.start("train", "run.dir=slow", *self.DATA, env={"BRIM_BAD": "open:naps"}), "dataset", "open")]
        stuck = [self.start("train", f"run.dir=stuck{threads}", *self.DATA, f"training.num_workers={threads}",
                            env={"BRIM_BAD": "read:sleeps:200"}) for threads in (0, 2)]
        for process, kind, function in slow:
            self.assert_reads(process, f"the {kind}'s {function} has not returned yet: plugin "
                                       f"{BAD / kind / 'bad.so'}\n")
        (self.folder / "awake").touch()
        for process, _, _ in slow:
            self.assertNotIn("has not returned yet", self.finish(process, DONE).err)
        for process in stuck:
            self.assert_reads(process, "the dataset's read has not returned yet: plugin ")
            process.terminate()
            self.assert_reads(process, "finishing the step, then a checkpoint; SIGTERM again ends at once")
            while process.poll() is None:
                process.terminate()
                time.sleep(0.05)
            result = self.finish(process, -signal.SIGTERM)
            self.assertIn("ended at once", result.err)
            self.assertNotIn("has not returned yet", result.err)

    def assert_reads(self, process, text):
        """Waits until the process writes a line with the text."""
        lines = []
        for line in process.stderr:
            lines.append(line)
            if text in line:
                return
        self.fail(f"{text} is not in {lines}")


if __name__ == "__main__":
    main()
