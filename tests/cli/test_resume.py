"""A run that is stopped at any moment, by a signal or a kill, resumes to the same end."""

import fcntl
import os
import random
import shutil
import signal
import time
import unittest

from support import (DONE, FAULT_SHIM, FULL, INTERRUPTED, SANITIZED, SMALL, SMALL_CNN, Case, idx_overrides, killed,
                     main, write_idx_dataset)

# Evaluations, the best checkpoint and records are all frequent, so that a stop is likely to interrupt them. An epoch is
# 6 steps, the last with 32 samples instead of 35.
BUSY = ["dataset.train_count=248", "dataset.validation_fraction=0.166", "training.batch_size=7",
        "training.gradient_accumulation_steps=5", "training.eval_every_steps=4", "training.checkpoint_every_steps=3",
        "training.keep_checkpoints=2", "observe.log_every_steps=5", "training.eval_batch_size=16"]
STEPS = 30
KILLS = int(os.environ.get("KILLS", "10" if FULL else "4"))  # at random moments, for each number of loader threads


class Killed(Case):
    """kill -9: only the files on the disk at that moment remain."""

    def undisturbed(self, *overrides):
        start = time.monotonic()
        self.train("whole", *overrides)
        return time.monotonic() - start

    def assert_same_end(self, run, steps, context=""):
        self.assertEqual(self.summary(run)["status"], "finished")
        # A kill between the last checkpoint and the deletion of an older one leaves the older one too.
        self.assertLessEqual(set(self.steps("whole")), set(self.steps(run)), context)
        self.assert_same_checkpoint("whole", run, steps, context=context)
        self.assert_same_records("whole", run)
        whole, other = self.summary("whole"), self.summary(run)
        for key in ("steps", "test_loss", "test_accuracy", "test_confusion", "planned_peak_bytes"):
            self.assertEqual(whole[key], other[key], f"{key} {context}")
        for link in ("last", "best"):
            self.assertEqual((self.folder / run / "checkpoints" / link).readlink(),
                             (self.folder / "whole" / "checkpoints" / link).readlink(), context)
        left = [path.name for path in (self.folder / run / "checkpoints").iterdir() if path.name.startswith(".")]
        self.assertEqual(left, [], "left-overs of killed attempts")

    def kill_after(self, seconds, *argv):
        """Returns True if the kill came before the run's end."""
        process = self.start(*argv)
        time.sleep(seconds)
        process.kill()
        return killed(self.finish(process))

    def resume_to_the_end(self, run, *first):
        """Resumes the run. If it was killed before it wrote its configuration, starts it again."""
        if (self.folder / run / "config.yaml").exists():
            self.brim("train", "--resume", run)
        else:
            self.train(run, *first)

    def check_random_moments(self, workers, seed):
        overrides = [*SMALL_CNN, *BUSY, f"training.steps={STEPS}", f"training.num_workers={workers}"]
        seconds = self.undisturbed(*overrides)
        moments = random.Random(seed)
        kills = 0
        for attempt in range(6 * KILLS):
            # The test kills a run several times, and takes a new one when it has finished.
            run = f"run{kills // 4}-{attempt}"
            argv = ["train", f"run.dir={run}", *overrides]
            for _ in range(4):
                moment = moments.uniform(0, 1.05 * seconds)
                if not self.kill_after(moment, *argv):
                    break
                kills += 1
                if (self.folder / run / "config.yaml").exists():
                    argv = ["train", "--resume", run]
            self.resume_to_the_end(run, *overrides)
            self.assert_same_end(run, STEPS, f"(seed {seed}, {workers} loader threads)")
            if kills >= KILLS:
                return
        self.fail(f"only {kills} kills came in time")

    def test_random_moments_without_loader_threads(self):
        self.check_random_moments(0, seed=11)

    def test_random_moments_with_one_loader_thread(self):
        self.check_random_moments(1, seed=12)

    def test_random_moments_with_four_loader_threads(self):
        self.check_random_moments(4, seed=13)

    def test_loader_threads_do_not_matter(self):
        for name, workers in (("whole", 0), ("one", 1), ("four", 4)):
            self.train(name, *SMALL_CNN, *BUSY, "augment.flip=true", "augment.crop_padding=2",
                       f"training.steps={STEPS}", f"training.num_workers={workers}")
        self.assert_same_end("one", STEPS)
        self.assert_same_end("four", STEPS)

    def test_a_run_that_stops_early_with_every_option_of_training(self):
        overrides = [*SMALL, "dataset.noise=3", "dataset.validation_fraction=0.25", "training.batch_size=16",
                     "training.epochs=1000", "training.eval_every_steps=10", "training.checkpoint_every_steps=7",
                     "training.patience=3", "training.ema_decay=0.9", "training.clip_norm=0.5",
                     "loss.label_smoothing=0.1", "optimizer.lr=0.01"]
        seconds = self.undisturbed(*overrides)
        steps = self.summary("whole")["steps"]
        best = min((r for r in self.records("whole") if r["split"] == "validation"), key=lambda r: r["loss"])["step"]
        self.assertEqual(steps, best + 3 * 10)
        for attempt in range(4):
            self.kill_after(seconds * (attempt + 1) / 5, "train", f"run.dir=run{attempt}", *overrides)
            self.resume_to_the_end(f"run{attempt}", *overrides)
            self.assert_same_end(f"run{attempt}", steps)

    def test_patience_needs_validation_data(self):
        result = self.train("run", *SMALL, "training.patience=2", status=2)
        self.assertIn("set dataset.validation_fraction", result.err)

    @unittest.skipIf(SANITIZED or not FAULT_SHIM, "the shim and a sanitizer cannot both be preloaded")
    def test_at_changes_on_the_disk_one_after_another(self):
        overrides = [*SMALL, *BUSY, "training.steps=6"]
        self.undisturbed(*overrides)
        shim = {"LD_PRELOAD": FAULT_SHIM, "BRIM_FILES_FOLDER": str(self.folder)}
        report = self.folder / "changes"
        self.train("counted", *overrides, env={**shim, "BRIM_FILES_REPORT": str(report)})
        changes = int(report.read_text())
        self.assertGreater(changes, 60)
        # Kills at every seventh change, in the full tier at every third; another seed begins with another one.
        every = 3 if FULL else 7
        for at in range(1 + random.Random(5).randrange(every), changes + 1, every):
            run = f"run{at}"
            result = self.train(run, *overrides, status=None, env={**shim, "BRIM_FILES_KILL_AT": str(at)})
            self.assertTrue(killed(result), result)
            if (self.folder / run / "config.yaml").exists():
                self.brim("train", "--resume", run)
                self.assert_same_end(run, 6, f"(killed at change {at} of {changes})")


class Signalled(Case):
    """SIGINT and SIGTERM: brim finishes the step, writes a checkpoint and exits with status 6."""

    OVERRIDES = [*SMALL_CNN, *BUSY, "training.num_workers=1"]

    def stop(self, run, number, steps, at_step):
        process = self.start("train", f"run.dir={run}", *self.OVERRIDES, f"training.steps={steps}")
        self.wait_for(run, at_step, process)
        process.send_signal(number)
        return self.finish(process)

    def wait_for(self, run, step, process):
        metrics = self.folder / run / "metrics.jsonl"
        self.until(lambda: metrics.exists() and f'"step":{step},' in metrics.read_text().replace(" ", ""), process)

    def check(self, number, word):
        for steps in (600, 2400, 9600, 38400):
            result = self.stop("run", number, steps, 40)
            if result.status != DONE:
                break
            shutil.rmtree(self.folder / "run")  # the run had finished before this process ran again
        whole = self.shared / f"whole {steps}"
        if not whole.exists():
            self.train(whole, *self.OVERRIDES, f"training.steps={steps}")
        self.assertEqual(result.status, INTERRUPTED, result)
        self.assertIn(word, result.err)
        self.assertIn("brim train --resume run", result.err)
        reported = [line for line in result.err.splitlines() if " again ends at once" in line]
        self.assertEqual(len(reported), 1, result)
        self.assertRegex(reported[0], "^(finishing the step|stopping the evaluation), then a checkpoint; ")
        self.assertLess(result.err.index(reported[0]), result.err.index(word))
        summary = self.summary("run")
        self.assertEqual(summary["status"], "interrupted")
        self.assertLess(summary["steps"], steps)
        self.assertGreaterEqual(summary["steps"], 40)
        self.assertEqual(self.steps("run")[-1], summary["steps"])
        self.assertEqual(self.events("run")[-1], "interrupted")
        self.brim("train", "--resume", "run", status=DONE)
        self.assert_same_checkpoint(whole, "run", steps)
        self.assert_same_records(whole, "run")

    def test_sigint(self):
        self.check(signal.SIGINT, "interrupted after step")

    def test_sigterm(self):
        self.check(signal.SIGTERM, "terminated after step")

    def test_sighup(self):
        self.check(signal.SIGHUP, "terminated after step")

    def test_sighup_does_not_matter_to_nohup(self):
        process = self.start("train", "run.dir=run", *self.OVERRIDES, "training.steps=600", ignoring=signal.SIGHUP)
        self.wait_for("run", 40, process)
        process.send_signal(signal.SIGHUP)
        self.finish(process, DONE)
        self.assertEqual(self.summary("run")["steps"], 600)

    def test_during_an_evaluation(self):
        # An evaluation takes most of the time, so that the signal is likely to arrive during it. At the last step, a
        # checkpoint is due as well.
        overrides = [*SMALL_CNN, "dataset.test_count=15000", "training.eval_batch_size=8", "training.steps=2",
                     "training.eval_every_steps=1", "dataset.validation_fraction=0.9", "dataset.train_count=10000",
                     "training.checkpoint_every_steps=1", "training.batch_size=16", "observe.log_every_steps=1"]
        self.train("whole", *overrides)
        for step in (1, 2):
            for attempt in range(20):  # on a busy machine the evaluation may be over before the signal
                run = f"run{step}-{attempt}"
                process = self.start("train", f"run.dir={run}", *overrides)
                self.wait_for(run, step, process)
                time.sleep(0.05)
                process.send_signal(signal.SIGTERM)
                if self.finish(process).status == INTERRUPTED and self.records(run)[-1]["split"] == "train":
                    break
            self.assertEqual(self.records(run)[-1]["split"], "train", "it was in the evaluation")
            self.brim("train", "--resume", run)
            self.assert_same_checkpoint("whole", run, 2)
            self.assert_same_records("whole", run)
            for link in ("last", "best"):
                self.assertEqual((self.folder / run / "checkpoints" / link).readlink(),
                                 (self.folder / "whole" / "checkpoints" / link).readlink())

    def test_before_the_first_step_nothing_is_lost(self):
        process = self.start("train", "run.dir=run", *self.OVERRIDES, "training.steps=30")
        time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        result = self.finish(process)
        self.assertIn(result.status, (INTERRUPTED, -signal.SIGTERM), result)
        if result.status == INTERRUPTED:
            self.brim("train", "--resume", "run")
            self.assertEqual(self.summary("run")["steps"], 30)


class ProcessorTime(Case):
    def test_its_limit_ends_a_run_with_a_checkpoint(self):
        """The kernel sends the signal every second from the soft limit on."""
        words = [*SMALL, "training.checkpoint_every_steps=100000000", "training.eval_every_steps=100000000"]
        process = self.start("train", "run.dir=run", *words, "training.steps=100000000")
        metrics = self.folder / "run" / "metrics.jsonl"
        self.until(lambda: metrics.exists() and metrics.stat().st_size > 0, process, what="a step's record")
        for _ in range(3):
            process.send_signal(signal.SIGXCPU)
        result = self.finish(process, INTERRUPTED)
        self.assertEqual(result.err.count("processor time limit reached: finishing the step, then a "
                                          "checkpoint\n"), 1)
        self.assertTrue(self.steps("run"))


class Locked(Case):
    def test_two_processes_do_not_write_one_run(self):
        process = self.start("train", "run.dir=run", *SMALL, "training.steps=1000000")
        self.until((self.folder / "run" / "metrics.jsonl").exists, process)
        result = self.brim("train", "--resume", "run", status=2)
        self.assert_error(result, "in use by another brim", str(process.pid))
        self.assertFalse((self.folder / "run" / "summary.json").exists(), "the run has not ended")
        process.send_signal(signal.SIGTERM)
        self.finish(process, INTERRUPTED)

    def test_the_holder_of_an_unsigned_lock_is_not_called_process_0(self):
        self.train("run", *SMALL, "training.steps=1")
        (self.folder / "run" / "summary.json").unlink()
        with (self.folder / "run" / ".lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            result = self.brim("train", "--resume", "run", status=2)
        self.assert_error(result, "in use by another brim: wait for it")
        self.assertNotIn("process 0", result.err)

    def test_a_run_that_lacks_only_its_summary_is_as_if_it_had_not_stopped(self):
        for run, more in (("test", []), ("validation", ["dataset.validation_fraction=0.25"])):
            with self.subTest(run):
                self.train(run, *SMALL, *more, "training.steps=5")
                records, summary = self.records(run), self.summary(run)
                (self.folder / run / "summary.json").unlink()
                self.brim("train", "--resume", run)
                again = self.summary(run)
                self.assertEqual([r["split"] for r in self.records(run)], [r["split"] for r in records])
                for key in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
                    self.assertEqual(again[key], summary[key], key)

    def test_a_run_without_a_checkpoint_starts_at_step_0(self):
        self.train("whole", *SMALL, "training.steps=4")
        (self.folder / "run").mkdir()
        for name in ("config.yaml", "overrides.yaml", "sources.yaml"):
            (self.folder / "run" / name).write_bytes((self.folder / "whole" / name).read_bytes())
        self.assertIn("starting at step 0", self.brim("train", "--resume", "run").out)
        self.assert_same_checkpoint("whole", "run", 4)


class Edited(Case):
    """config.yaml is a text file. A resume compares it with the configuration that the run began with, and reports
    changes that matter."""

    def setUp(self):
        super().setUp()
        self.once(lambda: self.train("run", *SMALL, "training.steps=8", "training.checkpoint_every_steps=4",
                                     "training.keep_checkpoints=3", "optimizer.lr=1e-3"), "run")
        self.go_back("run")

    def go_back(self, run):
        """Makes the run look as if it had been stopped after step 4."""
        (self.folder / run / "summary.json").unlink()
        shutil.rmtree(self.checkpoint(run, 8))

    def edit(self, *changes):
        path = self.folder / "run" / "config.yaml"
        text = path.read_text()
        for old, new in changes:
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        path.write_text(text)
        return text

    def test_a_run_of_an_older_build_has_old_names(self):
        """Memory limits used to be keys of policy=periodic. A user may edit them by the rules of that time."""
        self.train("old", *SMALL, "training.steps=8", "training.checkpoint_every_steps=4", "policy=periodic")
        self.go_back("old")
        path = self.folder / "old" / "config.yaml"
        text = path.read_text()
        for new in ("  warn_percent: 85\n", "  critical_percent: 90\n"):
            self.assertEqual(text.count(new), 1, text)
            text = text.replace(new, "")
        every = "    light_every_n_rounds: 5\n"
        self.assertEqual(text.count(every), 1, text)
        path.write_text(text.replace(every, f"{every}    warn_percent: 70\n    critical_percent: 95.5\n"))
        for argv in (["--from", "old", "run.dir=new"], ["--resume", "old"]):
            result = self.brim("train", *argv)
            for name, value in (("warn_percent", "70"), ("critical_percent", "95.5")):
                self.assertIn(f"policy.periodic.{name}={value} is taken as memory.{name}={value}, its new name",
                              result.err)
        self.assert_same_checkpoint("old", "new", 8)

    def test_edited_values_that_change_training_are_reported_together(self):
        before = self.tree("run", "checkpoints")
        text = self.edit(("lr: 1e-3", "lr: 5e-3"), ("hidden: [16]", "hidden: [32]"),
                         ("seed: 1\ndevice", "seed: 2\ndevice"))
        result = self.brim("train", "--resume", "run", status=2)
        line = 1 + text.splitlines().index("  lr: 5e-3")
        self.assert_error(result, "'optimizer.lr' was edited: the run began with 1e-3, now it is 5e-3\n"
                          f"  run/config.yaml:{line}:7\n",
                          "error: 'model.hidden' was edited: the run began with [16], now it is [32]",
                          "error: 'seed' was edited: the run began with 1, now it is 2\n  run/config.yaml:1:7\n",
                          "to resume, restore the old value; to train with the new one, start a new run: "
                          "brim train --from run\n")
        self.assertEqual(self.tree("run", "checkpoints"), before)
        self.assertFalse((self.folder / "run" / "summary.json").exists())

    def test_an_edited_plugin_is_one_error(self):
        self.edit(("  id: adamw", "  id: adam"))
        result = self.brim("train", "--resume", "run", status=2)
        self.assert_error(result, "'optimizer.id' was edited: the run began with adamw, now it is adam")
        self.assertEqual(result.err.count("error: "), 1)

    def test_a_deleted_line_is_reported(self):
        self.edit(("  lr: 1e-3\n", "  lr: 0.002\n"))
        self.edit(("  lr: 0.002\n", ""))
        self.brim("train", "--resume", "run")  # the default is the old directory

        self.go_back("run")
        self.edit(("  steps: 8\n", ""))
        self.assert_error(self.brim("train", "--resume", "run", status=2),
                          "'training.steps' was edited: the run began with 8, now it is 0\n  default")

    def test_equivalent_and_irrelevant_edits_are_accepted(self):
        self.train("whole", *SMALL, "training.steps=8", "training.checkpoint_every_steps=4", "optimizer.lr=1e-3")
        self.edit(("lr: 1e-3", "lr: 0.001"), ("hidden: [16]", "hidden: 16"), ("seed: 1\ndevice", "seed: 0x1\ndevice"),
                  ("num_workers: 1", "num_workers: 3"), ("checkpoint_every_steps: 4", "checkpoint_every_steps: 5"),
                  ("threads: 1", "threads: 2"), ("limit_mb: 0", "limit_mb: 1GiB"))
        self.brim("train", "--resume", "run")
        self.assert_same_checkpoint("whole", "run", 8)

    def test_smaller_micro_batches_of_the_same_step_are_accepted(self):
        self.edit(("  batch_size: 128", "  batch_size: 32"),
                  ("gradient_accumulation_steps: 1", "gradient_accumulation_steps: 4"))
        self.brim("train", "--resume", "run")
        self.assertEqual(self.summary("run")["steps"], 8)

    def test_another_step_is_not(self):
        self.edit(("  batch_size: 128", "  batch_size: 32"))
        self.assert_error(self.brim("train", "--resume", "run", status=2), "'training.batch_size' was edited")

    def test_without_sources_it_is_not_known(self):
        (self.folder / "run" / "sources.yaml").unlink()
        result = self.brim("train", "--resume", "run")
        self.assertIn("warning: cannot find out whether run/config.yaml was edited", result.err)


class Elsewhere(Case):
    """The tests resume, evaluate and repeat a run from another working directory than the one it began in."""

    def test_a_relative_path_of_data_is_still_found(self):
        write_idx_dataset(self.folder / "data")
        self.train("run", *idx_overrides("data"), "training.steps=4", "training.checkpoint_every_steps=2")
        self.assertIn(f"  path: {self.folder}/data\n", self.read("run", "config.yaml"))
        self.assertIn("dataset.path=data", self.read("run", "overrides.yaml"))
        (self.folder / "run" / "summary.json").unlink()
        shutil.rmtree(self.checkpoint("run", 4))
        base = self.folder
        self.folder = base / "elsewhere"
        self.folder.mkdir()
        try:
            self.brim("train", "--resume", "../run")
            self.brim("train", "--from", "../run", "run.dir=again")
            self.brim("eval", "../run")
            self.brim("train", "-m", "--from", "../run", "run.dir=sweep", "seed=2,3")
            self.assertEqual(self.summary("sweep/1")["steps"], 4)
            self.assert_same_checkpoint("../run", "again", 4)
        finally:
            self.folder = base


if __name__ == "__main__":
    main()
