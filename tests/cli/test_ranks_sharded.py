"""Ranks that shard the optimizer's state, and the gradients too, train as one does, and their checkpoints can be
resumed by any number of ranks.

STEPS=100 compares that many steps."""

import os
import shutil

from ranks import Ranks
from support import FULL, HANG_SECONDS, SANITIZED, SMALL_CNN, main

STEPS = int(os.environ.get("STEPS", "40" if FULL and not SANITIZED else "12"))
# Micro-batches of 16 in steps of 80, the last of an epoch with 20 samples: the ranks' shares are unequal, and some are
# empty at times.
DATA = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=500", "dataset.test_count=100",
        "training.batch_size=16", "training.gradient_accumulation_steps=5", f"training.steps={STEPS}",
        "training.eval_every_steps=6", "observe.log_every_steps=1", "memory.timing=false", "training.num_workers=0",
        "augment.flip=true", "augment.crop_padding=1", "backend=reference"]
NORMS = ["model=lightcnn", "model.width=8", *DATA]
DROPOUT = ["model=cnn", "model.width=2", *DATA]


class Sharded(Ranks):
    def losses(self, run):
        return [(r["split"], r["step"], r["loss"]) for r in self.records(run)]

    def compare(self, one, other):
        a, b = self.losses(one), self.losses(other)
        self.assertEqual([x[:2] for x in a], [x[:2] for x in b])
        for x, y in zip(a, b):
            self.assertLessEqual(abs(x[2] - y[2]), 1e-9, f"{x[0]} at step {x[1]}: {other}")

    def state_bytes(self, run):
        plan = self.json(run, "plan.json")
        return plan["classes"]["optimizer"] + plan["host_state_bytes"]

    def check(self, *overrides, ranks=(2, 4)):
        self.train("one", *overrides)
        for n in ranks:
            for shard in ("optimizer", "gradients"):
                self.ranks(n, f"{shard}{n}", *overrides, f"dist.shard={shard}")
                self.compare("one", f"{shard}{n}")
                self.assertLess(self.state_bytes(f"{shard}{n}"), self.state_bytes("one") * 0.75)

    def test_norm_groups(self):
        self.check(*NORMS, "dist.bucket_mb=0")

    def test_clipped_gradients_and_averages(self):
        self.check(*DROPOUT, "training.clip_norm=0.5", "training.ema_decay=0.9", ranks=(3,))

    def test_more_ranks_than_micro_batches(self):
        self.check(*NORMS, "training.gradient_accumulation_steps=1", "training.steps=12", ranks=(3,))

    def test_states_of_8_bits_in_host_memory(self):
        self.check(*DROPOUT, "model.width=8", "optimizer=adamw8bit", "memory.offload=optimizer", ranks=(3,))

    def test_optimizers_that_cannot_be_sharded(self):
        result = self.ranks(2, "run", *DROPOUT, "optimizer=adafactor", "dist.shard=optimizer", status=2)
        self.assert_error(result, "dist.shard cannot be combined with an optimizer")
        self.assertEqual(result.err.count("error: "), 1, result)


class Checkpoints(Ranks):
    OPTIONS = [*DROPOUT, "training.steps=12", "training.eval_every_steps=6", "training.checkpoint_every_steps=3",
               "training.keep_checkpoints=9"]

    def continue_run(self, ranks, run, *argv):
        process = self.start_ranks(ranks, "train", "--resume", run, *argv)
        out, err = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, 0, out + err)

    def take_back(self, run, *steps):
        """Takes the run back to its state before these steps."""
        (self.folder / run / "summary.json").unlink()
        for step in steps:
            shutil.rmtree(self.folder / run / "checkpoints" / f"step-{step:08}")

    def test_resumed_to_the_same_bytes(self):
        for shard in ("optimizer", "gradients"):
            run, again = f"{shard}-whole", f"{shard}-again"
            self.ranks(3, run, *self.OPTIONS, f"dist.shard={shard}")
            shutil.copytree(self.folder / run, self.folder / again, symlinks=True)
            self.take_back(again, 9, 12)
            self.continue_run(3, again)
            for step in (6, 9, 12):
                self.assert_same_checkpoint(run, again, step)

    def test_every_sharding_writes_the_same_names(self):
        """One rank also evaluates a checkpoint that three have written."""
        self.ranks(3, "none", *self.OPTIONS)
        self.ranks(3, "gradients", *self.OPTIONS, "dist.shard=gradients")
        sizes = [[(self.folder / run / "checkpoints" / "step-00000012" / f"{part}.safetensors").stat().st_size
                  for part in ("model", "optimizer")] for run in ("none", "gradients")]
        self.assertEqual(sizes[0], sizes[1])
        result = self.brim("eval", "gradients")
        self.assertIn("loss", result.out)


class Faults(Ranks):
    """If a rank has no memory for a while, all ranks start the step again, and get the same bits."""

    RUN = [*SMALL_CNN, "training.batch_size=48", "training.steps=6", "training.checkpoint_every_steps=3",
           "observe.log_every_steps=1", "dist.bucket_mb=0", "backend=cpu"]

    def check(self, *overrides):
        self.ranks(3, "whole", *self.RUN, *overrides)
        for number, fault in enumerate(["rank:1:step:2:begin", "rank:2:step:4:lib:conv", "step:3:lib:conv:5",
                                        "rank:0:step:3:alloc:1"]):
            result = self.ranks(3, f"run{number}", *self.RUN, *overrides, env={"BRIM_FAULT": fault})
            self.assert_same_checkpoint("whole", f"run{number}", 6, context=f"{fault}\n{result}")

    def test_repeated_steps(self):
        self.check("dist.shard=optimizer")

    def test_with_gradients_that_are_shared_out(self):
        self.check("dist.shard=gradients")

    def test_in_fp16_with_gradients_checked_by_all_ranks(self):
        self.check("dist.shard=optimizer", "precision=fp16")


if __name__ == "__main__":
    main()
