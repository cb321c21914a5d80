"""A run that runs out of memory applies a measure, repeats the failed part, and ends with the same results; or it ends
with exit status 4 or 5 and can be resumed."""

import resource
import signal

from support import FAILED, NO_FIT, SANITIZED, SMALL, SMALL_CNN, Case, main, plain, some_of

# An epoch has two steps, the second of 122 samples. Evaluations and checkpoints are due at different steps.
BUSY = ["dataset.train_count=250", "training.steps=8", "training.eval_every_steps=3",
        "training.checkpoint_every_steps=2", "training.keep_checkpoints=2", "observe.log_every_steps=4"]
LIGHTCNN = ["model=lightcnn", "dataset=synthetic", "dataset.shape=[1,32,32]", "dataset.train_count=250",
            "dataset.test_count=64", "training.batch_size=128", "backend.threads=1", "memory.timing=false"]
STEPS = 8


def first(count, step):
    """Returns a fault that makes the first `count` attempts at a step fail."""
    return ",".join(f"step:{step}:begin:{n}" for n in range(1, count + 1))


class Recovery(Case):
    def run_with(self, run, faults, *overrides, status=0):
        return self.train(run, *overrides, status=status, env={"BRIM_FAULT": faults})

    def recovered(self, run):
        return [r for r in self.records(run, "events.jsonl") if r["event"] == "recovered"]

    def choices(self, run):
        return [r["choice"] for r in self.records(run, "events.jsonl")
                if r["event"] == "decision" and r["by"] == "recovery"]

    def assert_same_end(self, run, retries=None):
        self.assert_same_checkpoint("whole", run, STEPS, context=run)
        self.assert_same_records("whole", run)
        for key in ("status", "steps", "test_loss", "test_confusion"):
            self.assertEqual(self.summary("whole")[key], self.summary(run)[key], run)
        if retries is not None:
            self.assertEqual(self.summary(run)["retries"], retries, run)

    def assert_reported(self, run):
        """Asserts that each retry is an event with its time."""
        self.assertEqual(len(self.recovered(run)), self.summary(run)["retries"])
        for record in self.recovered(run):
            self.assertGreaterEqual(record["recovered_seconds"], 0)

    def check(self, *overrides):
        self.train("whole", *overrides)
        self.assertEqual(self.summary("whole")["retries"], 0)
        for step in (1, 2, 7):
            self.run_with(f"once{step}", f"step:{step}", *overrides)
            self.assert_same_end(f"once{step}", 1)
            self.assert_reported(f"once{step}")
        self.run_with("often", "begin:%2", *overrides)
        self.assert_same_end("often", STEPS - 1)
        self.run_with("ladder", first(6, step=2), *overrides)
        self.assert_same_end("ladder", 6)
        self.assert_reported("ladder")


class SameBits(Recovery):
    """The bits are the same for every rung of the ladder."""

    @plain
    def test_mlp(self):
        self.check(*SMALL, *BUSY)

    def test_cnn(self):
        self.check(*SMALL_CNN, *BUSY)
        choices = self.choices("ladder")
        self.assertEqual([c.split(" ")[0] for c in choices[:4]], ["light", "heavy", "heavy", "more"])
        self.assertEqual([c.split(",")[0] for c in choices[4:]], ["micro-batch 64 x 2", "micro-batch 32 x 4"])

    @plain
    def test_batch_norm_and_moving_averages(self):
        self.check(*LIGHTCNN, *BUSY, "training.ema_decay=0.9")

    @plain
    def test_fp16_and_states_on_the_host(self):
        self.check(*SMALL_CNN, *BUSY, "precision=fp16", "memory.offload=optimizer", "optimizer=adamw")

    def test_updates_in_the_backward_pass(self):
        """Once these updates have begun, the old parameters are gone: the run returns to its newest checkpoint."""
        overrides = [*SMALL_CNN, *BUSY, "optimizer.update=fused_backward"]
        self.train("whole", *overrides)
        counts = self.folder / "calls"
        self.train("counted", *overrides, env={"BRIM_FAULT_REPORT": str(counts)})
        calls = {int(line.split()[0]): int(line.split()[3]) for line in counts.read_text().splitlines()
                 if line.split()[1:3] == ["lib", "conv"]}
        for step in (1, 2, 7):
            for call in (1, calls[step] // 4, calls[step] // 2):
                run = f"step{step}-{call}"
                self.run_with(run, f"step:{step}:lib:conv:{call}", *overrides)
                self.assert_same_end(run, 1)
        back = [c for run in self.folder.glob("step*-*") for c in self.choices(run.name)
                if c.startswith("back to step")]
        self.assertIn("back to step 0", back)
        self.assertIn("back to step 6", back)


class Ladder(Recovery):
    @plain
    def test_fixed_recompute_is_kept(self):
        overrides = [*SMALL_CNN, *BUSY, "memory.recompute=none"]
        self.train("whole", *overrides)
        self.run_with("run", first(4, step=2), *overrides)
        self.assert_same_end("run", 4)
        self.assertTrue(self.choices("run")[3].startswith("micro-batch 64 x 2"), self.choices("run"))

    @plain
    def test_recovery_never_changes_bits_by_itself(self):
        overrides = [*SMALL_CNN, *BUSY, "training.grain=0", "memory.recompute=none", "max_retries=1"]
        result = self.run_with("run", first(9, step=2), *overrides, status=NO_FIT)
        self.assertIn("without training.grain the results would differ by rounding", result.err)

    @plain
    def test_no_retries_if_none_are_allowed(self):
        self.run_with("run", "step:2", *SMALL_CNN, *BUSY, "max_retries=0", status=NO_FIT)
        self.assertEqual(self.recovered("run"), [])

    def test_a_policy_moves_to_another_device_and_frees_the_first(self):
        host = ["backend.devices=2", "backend.memory_mb=64"]
        overrides = [*SMALL_CNN, *BUSY, *host, "policy=robust", "max_retries=1", "memory.recompute=none"]
        self.train("whole", *SMALL_CNN, *BUSY)
        # The run cleans up, halves the micro-batch, and then moves to the other device, where it uses the whole
        # micro-batch again.
        result = self.run_with("run", first(3, step=2), *overrides)
        self.assertIn("policy.robust: cpu:1", result.err)
        self.assert_same_end("run", 3)
        devices = self.brim("devices", "--json", "backend=cpu", *host).json
        shares = [d for d in devices["devices"] if d["backend"] == "cpu"]
        self.assertEqual([(d["free_bytes"], d["users"]) for d in shares], [(d["total_bytes"], []) for d in shares])
        self.assertEqual(len(shares), 2)

    @plain
    def test_no_policy_leaves_a_share_of_the_host_for_its_processors(self):
        overrides = [*SMALL_CNN, *BUSY, "backend.devices=1", "backend.memory_mb=64", "policy=robust", "max_retries=1",
                     "memory.recompute=none"]
        self.train("whole", *SMALL_CNN, *BUSY)
        result = self.run_with("run", first(3, step=2) + ",step:6:begin:1+", *overrides, status=NO_FIT)
        self.assertNotIn("the host's processors", result.err)
        self.assertIn("memory_mb: 64", self.read("run", "config.yaml"))
        self.brim("train", "--resume", "run")
        self.assert_same_end("run", 0)

    def test_a_run_that_cannot_recover_can_be_resumed(self):
        overrides = [*SMALL_CNN, *BUSY, "max_retries=1"]
        self.train("whole", *overrides)
        for step in (1, 3, 8):
            run = f"run{step}"
            result = self.run_with(run, f"step:{step}:begin:1+", *overrides, status=NO_FIT)
            self.assertIn("failed at its beginning (injected by BRIM_FAULT)", result.err)
            self.assertEqual(self.summary(run)["status"], "failed")
            self.assertEqual(self.steps(run)[-1], step - 1)
            self.brim("train", "--resume", run)
            self.assert_same_end(run, 0)

    def test_evaluations_and_checkpoints_too(self):
        overrides = [*SMALL_CNN, *BUSY, "training.num_workers=0"]
        self.train("whole", *overrides)
        retries = 0
        for step in (2, 3, 8):
            for call in some_of(range(1, 5), 2):
                run = f"run{step}-{call}"
                self.run_with(run, f"step:{step}:alloc:{call}", *overrides)
                self.assert_same_end(run)
                retries += self.summary(run)["retries"]
        self.assertGreaterEqual(retries, 1 if SANITIZED else 3)  # the run may survive small failures without a retry


class OtherErrors(Recovery):
    """Other errors end the run at once, with their own message."""

    def assert_no_retry(self, run, result, words):
        self.assertIn(words, result.err)
        self.assertNotIn("recovery:", result.err)
        self.assertEqual(self.summary(run)["retries"], 0)
        self.assertEqual(self.recovered(run), [])

    def test_numbers_that_are_not_finite(self):
        result = self.train("run", *SMALL, "optimizer=sgd", "optimizer.lr=1e38", "training.steps=8", status=FAILED)
        self.assert_no_retry("run", result, "the step was not committed")

    def test_a_disk_without_room(self):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16384, limits[1]))
        try:
            process = self.start("train", "run.dir=run", *SMALL, "model.hidden=[256]", "training.steps=4",
                                 "training.checkpoint_every_steps=2", ignoring=signal.SIGXFSZ)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assert_no_retry("run", self.finish(process, FAILED), "the checkpoint of step 2 was not written")


if __name__ == "__main__":
    main()
