"""Tests brim train over two hosts: the results of one host, a cut cable, a killed rank, and resuming."""

import json
import os
import signal
import time

from hosts import TwoHosts, main
from jobs import HANG_SECONDS, ranks_among

BINARY = os.environ["BRIM_BINARY"]
STEPS = 1500
SECONDS = 12 # dist.timeout_seconds: on a busy machine ranks may be late
FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]
RUN = ["train", "model=mlp", "model.hidden=[16]", "dataset=synthetic", "dataset.shape=[1,8,8]",
       "dataset.train_count=256", "dataset.test_count=64", "training.batch_size=128", "training.num_workers=0",
       "training.checkpoint_every_steps=50", "training.eval_every_steps=400", "training.keep_checkpoints=100000",
       "observe.log_every_steps=50", "dist.check_every_steps=50", f"dist.timeout_seconds={SECONDS}", "backend=cpu",
       "backend.threads=1"]


class Training(TwoHosts):
    def over(self, counts, *words, env=None):
        settings = {"BRIM_CLAIMS_DIR": str(self.folder / "claims"), **(env or {})}
        return super().over(counts, BINARY, *words, env=settings)

    def done(self, job):
        status, out, err = job.finish()
        self.assertEqual(status, 0, out + err)
        self.assert_nothing_left(job)

    def steps(self, run):
        folder = self.folder / run / "checkpoints"
        return sorted(path.name for path in folder.glob("step-*")) if folder.exists() else []

    def begin(self, run, *words):
        """Starts a job of four ranks that trains for a while, and waits for its first checkpoint."""
        job = self.over((2, 2), *RUN, f"run.dir={run}", f"training.steps={STEPS}", *words)
        deadline = time.monotonic() + HANG_SECONDS
        while not self.steps(run):
            self.assertIsNone(job.process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual({self.hosts.where(process) for process in job.processes()}, {0, 1})
        return job

    def wait_for_end(self, job):
        self.assert_nothing_left(job)  # otherwise TCP would give up only after a quarter of an hour
        return job.finish()

    def test_the_results_of_one_host_with_every_sharding(self):
        self.done(self.job(3, BINARY, *RUN, "run.dir=one", "training.steps=100"))
        for shard in ("none", "optimizer"):
            self.done(self.over((1, 2), *RUN, f"run.dir={shard}", "training.steps=100", f"dist.shard={shard}"))
            for name in FILES:
                path = f"checkpoints/step-00000100/{name}"
                self.assertEqual((self.folder / "one" / path).read_bytes(),
                                 (self.folder / shard / path).read_bytes(), path)

    def test_a_cut_cable_ends_the_job_and_it_resumes_to_the_same_bytes(self):
        job = self.begin("cut")
        self.hosts.cut()
        status, _, err = self.wait_for_end(job)
        self.assertNotEqual(status, 0, err)
        self.assertRegex(err, r"rank [23] of 4 is missing")
        self.assertEqual(err.count("error: "), 1, err)
        self.hosts.mend()
        last = self.steps("cut")[-1]
        self.assertLess(int(last[5:]), STEPS)
        self.done(self.over((2, 2), "train", "--resume", "cut"))
        self.done(self.over((2, 2), *RUN, "run.dir=whole", f"training.steps={STEPS}"))
        self.assertEqual(self.steps("cut"), self.steps("whole"))
        for step in (last, self.steps("whole")[-1]):
            for name in FILES:
                path = f"checkpoints/{step}/{name}"
                self.assertEqual((self.folder / "cut" / path).read_bytes(), (self.folder / "whole" / path).read_bytes(),
                                 path)

    def test_a_cable_that_is_cut_before_mpi_has_started_ends_the_job_on_both_hosts(self):
        program = self.folder / "waits"
        program.write_text('#!/bin/sh\ntouch "there$OMPI_COMM_WORLD_RANK"\n'
                           f'[ "$OMPI_COMM_WORLD_RANK" = 1 ] && until [ -e go ]; do sleep 0.1; done\n'
                           f'exec {BINARY} "$@"\n')
        program.chmod(0o755)
        job = TwoHosts.over(self, (1, 1), program, *RUN, "run.dir=run", "dist.timeout_seconds=4")
        while not all((self.folder / f"there{rank}").exists() for rank in (0, 1)):
            self.assertIsNone(job.process.poll())
            time.sleep(0.05)
        self.hosts.cut()
        (self.folder / "go").touch()
        status, _, err = self.wait_for_end(job)
        self.assertNotEqual(status, 0, err)
        self.assertIn("the 2 ranks did not connect within dist.timeout_seconds=4", err)

    def test_a_rank_that_is_killed_on_either_host(self):
        for rank in (0, 3):
            with self.subTest(rank):
                job = self.begin(f"run{rank}")
                os.kill(ranks_among(job.processes())[rank], signal.SIGKILL)
                status, _, err = self.wait_for_end(job)
                self.assertNotEqual(status, 0, err)
                self.assertIn(f"rank {rank} ", err)
                events = (self.folder / f"run{rank}" / "events.jsonl").read_text().splitlines()
                self.assertEqual(json.loads(events[0])["event"], "started")


if __name__ == "__main__":
    main()
