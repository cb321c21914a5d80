"""Tests several ranks with GPUs, on emulated devices connected by an emulated NCCL (tests/cuda/emulated): the same
numbers as one rank, whatever the order in which streams run, with gradients reduced during the backward pass; and the
end of a job whose ranks fail, die or hang while their devices wait for each other."""

import os
import pathlib
import shutil

from ranks import Ranks
from support import HANG_SECONDS, USAGE, fewer_of, main

EMULATED = os.environ["BRIM_EMULATED"]
STEPS = 12
RUN = ["backend=cuda", "precision=fp32", "wait_for_gpu=true", "model=cnn", "model.width=2", "dataset=synthetic",
       "dataset.shape=[1,8,8]", "dataset.classes=4", "dataset.train_count=256", "dataset.test_count=64",
       "training.batch_size=16",
       "training.gradient_accumulation_steps=3", f"training.steps={STEPS}", "training.checkpoint_every_steps=4",
       "training.keep_checkpoints=9", "training.eval_every_steps=6", "observe.log_every_steps=1", "augment.flip=true",
       "dist.bucket_mb=0", "dist.check_every_steps=5", "training.num_workers=0"]
LOSS_ERROR_MAX = 1e-4  # relative to the first loss; the order of sums differs, and steps amplify the rounding


class Cuda(Ranks):
    def job(self, ranks, run, *overrides, status=0, env=None):
        process = self.start_ranks(ranks, "--plugin-path", EMULATED, "train", f"run.dir={run}", *RUN,
                                   *overrides, env=env)
        out, err = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, status, out + err)
        return err

    def whole(self, shard="none"):
        """Returns the folder of an undisturbed run of two ranks."""
        run = self.shared / shard
        if not run.exists():
            self.job(2, run, f"dist.shard={shard}")
        return run

    def losses(self, run):
        return [(r["split"], r["step"], r["loss"]) for r in self.records(run)]

    def assert_near(self, run, other):
        a, b = self.losses(run), self.losses(other)
        self.assertEqual([x[:2] for x in a], [x[:2] for x in b])
        worst = max(abs(x[2] - y[2]) for x, y in zip(a, b)) / a[0][2]
        self.assertLessEqual(worst, LOSS_ERROR_MAX, f"{run} and {other}")


class Numbers(Cuda):
    def test_two_and_four_ranks_have_the_losses_of_one(self):
        self.brim("--plugin-path", EMULATED, "train", "run.dir=one", *RUN)
        self.assert_near("one", self.whole())
        self.job(4, "by4")
        self.assert_near("one", "by4")

    def test_sharding_changes_no_loss(self):
        for shard in ("optimizer", "gradients"):
            self.assert_near(self.whole(), self.whole(shard))
            self.job(2, f"{shard}-random", f"dist.shard={shard}", env={"EMULATED_STREAMS": "4"})
            self.assert_same_checkpoint(self.whole(shard), f"{shard}-random", STEPS)

    def test_the_order_in_which_streams_work_changes_no_bit(self):
        self.job(2, "late", "memory.offload=optimizer")
        for order in fewer_of(("copies", "3", "8"), 2):
            self.job(2, f"order{order}", "memory.offload=optimizer", env={"EMULATED_STREAMS": order})
            self.assert_same_checkpoint("late", f"order{order}", STEPS)
        self.job(2, "large", "dist.bucket_mb=25")
        self.assert_same_checkpoint("late", "large", STEPS)

    def test_a_resumed_run_has_the_same_bits(self):
        shutil.copytree(self.whole(), self.folder / "part", symlinks=True)
        part = self.folder / "part/checkpoints"
        for step in (8, 12):
            shutil.rmtree(part / f"step-{step:08d}")
        for link in ("last", "best"):
            (part / link).unlink(missing_ok=True)
        (part / "last").symlink_to("step-00000004")
        (self.folder / "part/summary.json").unlink()
        process = self.start_ranks(2, "--plugin-path", EMULATED, "train", "--resume", "part")
        out, err = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, 0, out + err)
        self.assert_same_checkpoint(self.whole(), "part", STEPS)


class Devices(Cuda):
    """Runs continue with other devices than they began with. dist.ranks=auto starts a rank for each GPU."""

    WORDS = [word for word in RUN if not word.startswith(("wait_for_gpu", "training.eval_every_steps"))]

    def alone(self, devices, *words, status=0, env=None):
        return self.brim("--plugin-path", EMULATED, "train", *words, status=status,
                         env={"EMULATED_DEVICES": str(devices), **(env or {})})

    def begin(self, devices, run, *words):
        """Starts a run that fails in step 6, after a checkpoint of step 5."""
        result = self.alone(devices, f"run.dir={run}", *self.WORDS, *words, status=None,
                            env={"BRIM_FAULT": "step:6:begin:1+"})
        self.assertEqual(self.steps(run), [4, 5], result)

    def test_more_and_fewer_gpus_continue_a_run(self):
        self.alone(1, "run.dir=whole", *self.WORDS)
        for first, then, shard in (1, 2, "none"), (2, 1, "none"), (2, 3, "optimizer"), (3, 1, "gradients"):
            with self.subTest(shard, first=first, then=then):
                run = f"{shard} on {first}"
                self.begin(first, run, f"dist.shard={shard}")
                result = self.alone(then, "--resume", run)
                ranks = "16 x 3;" if then == 1 else f"{then} ranks x "
                self.assertIn(f"effective batch 48 = {ranks}", result.out)
                self.assert_near("whole", run)

    def test_updates_in_the_backward_pass_take_one_gpu_of_two(self):
        words = ["optimizer.update=fused_backward", "training.gradient_accumulation_steps=1"]
        self.begin(1, "run", *words)
        result = self.alone(2, "--resume", "run")
        self.assertIn("using one of 2 GPUs: optimizer.update=fused_backward needs a single rank", result.err)
        self.assertIn("effective batch 16 = 16 x 1;", result.out)
        self.assertIn("set dist.ranks=1", self.alone(2, "run.dir=asked", *self.WORDS, *words, "dist.ranks=2",
                                                     status=USAGE).err)


class Processes(Cuda):
    """Clients of a federation in processes of their own (test_federate_processes.py), each with one of the GPUs."""

    WORDS = ["backend=cuda", "dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=60",
             "dataset.test_count=16", "dataset.classes=4", "total_clients=3", "clients_per_round=2", "rounds=3",
             "model=lightcnn", "model.width=4", "partition=dirichlet", "network=moderate", "memory.timing=false"]
    TABLE = ["policy=capped", "policy.capped.shares={cuda:0: {server: 0.3, client_1: 0.3, client_3: 0.3}, "
                              "cuda:1: {client_2: 900MB}}"]

    def federate(self, run, *words, status=0, env=None):
        environment = {"EMULATED_DEVICES": "3", **(env or {})}
        return self.brim("--plugin-path", EMULATED, "federate", f"run.dir={run}", *self.WORDS, *words, status=status,
                         env=environment)

    def test_each_process_sees_its_gpu_only_and_two_share_one(self):
        self.federate("simulated", "dist.ranks=1")
        for visible, env in ("all", None), ("2 and 1", {"CUDA_VISIBLE_DEVICES": "2,1"}):
            with self.subTest(visible):
                result = self.federate(visible, *self.TABLE, "federate.mode=processes", env=env)
                self.assertRegex(result.out,
                                 r"client_2 \S+ KiB of cuda:1, at most 858.3 MiB; client_3 \S+ KiB of cuda:0")
                self.assertIn("policy.capped: cuda:0, at most 307.2 MiB: the share of client 'server'", result.err)
                self.assert_same_checkpoint("simulated", visible, 3, ["model.safetensors", "optimizer.safetensors"])

    def test_a_table_with_a_gpu_that_is_not_visible_is_refused(self):
        result = self.federate("run", *self.TABLE, "federate.mode=processes", env={"CUDA_VISIBLE_DEVICES": "2"},
                               status=USAGE)
        self.assert_error(result, "there is no cuda:1: CUDA_VISIBLE_DEVICES is '2'")


class Memory(Cuda):
    def test_memory_of_the_connections_is_measured_and_reported(self):
        env = {"EMULATED_TAKES": "nccl=20", "XDG_CACHE_HOME": str(self.folder / "cache")}
        self.job(2, "run", env=env)
        devices = self.brim("--plugin-path", EMULATED, "devices", "--json", env=env).json["devices"]
        taken, = [device["memory"] for device in devices if device["backend"] == "cuda"]
        self.assertEqual(taken["ranks_bytes"], 20 << 20)


class Failures(Cuda):
    def test_a_rank_whose_last_micro_batch_fails_makes_all_do_the_step_again(self):
        """The sums of that rank are invalid, so no device applies the update."""
        for number, shard in enumerate(("none", "gradients")):
            faults = "rank:1:step:3:lib:program:2", "rank:0:step:6:begin", "step:7:begin"
            for fault in fewer_of(faults, 2, number):
                run = f"{shard}_{fault.replace(':', '_')}"
                self.job(2, run, f"dist.shard={shard}", env={"BRIM_FAULT": fault})
                self.assert_same_checkpoint(self.whole(shard), run, STEPS, context=fault)
                self.assertGreater(self.summary(run)["retries"], 0, fault)

    def check_end(self, failure, *texts, seconds=2 * HANG_SECONDS):
        """Checks how a job ends. Without a limit in seconds, it must end at once."""
        err = self.job(2, failure.replace(":", "_"), f"dist.timeout_seconds={seconds}", status=5,
                       env={"EMULATED_NCCL": failure})
        for text in texts:
            self.assertIn(text, err)

    def test_a_collective_that_cannot_be_started_ends_the_job(self):
        self.check_end("1:start:40", "rank 1: NCCL, adding up over all ranks: unhandled cuda error")

    def test_a_lost_connection_ends_the_job(self):
        self.check_end("0:lost:40", "NCCL", "remote process exited")

    def test_a_device_that_hangs_ends_the_job_within_the_timeout(self):
        self.check_end("1:hang:40", "dist.timeout_seconds=10", seconds=10)

    def test_ranks_that_cannot_be_connected_do_not_begin(self):
        self.check_end("1:init", "rank 1: NCCL, connecting the ranks: unhandled system error")
        self.assertFalse((pathlib.Path(self.folder) / "1_init/metrics.jsonl").exists())


if __name__ == "__main__":
    main()
