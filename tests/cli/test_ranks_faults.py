"""Tests calls that fail for lack of memory on one rank, on each in turn, and on all (docs/faults.md): no rank waits for
ever, and the job ends with the bits of an undisturbed one.

ROUNDS=200 runs that many jobs; the default of 12 is spread over all cases."""

import itertools
import os

from ranks import Ranks
from support import FULL, HANG_SECONDS, SANITIZED, SMALL_CNN, main

STEPS = 8
RANKS = 3
RUN = [*SMALL_CNN, "training.batch_size=48", f"training.steps={STEPS}", "training.checkpoint_every_steps=2",
       "training.keep_checkpoints=2", "training.eval_every_steps=4", "observe.log_every_steps=1",
       "dist.check_every_steps=2", "dist.bucket_mb=0", "backend=cpu"]
ROUNDS = int(os.environ.get("ROUNDS", "12" if FULL and not SANITIZED else "4"))
POINTS = ["begin", "lib:conv", "update", "lib:conv:5", "begin,begin:2,begin:3", "alloc:1", "lib:conv:3,lib:conv:9",
          "update,update:2"]
WHERE = ["rank:0:", "rank:1:", "rank:2:", ""]


def cases():
    """Lists every point on every rank at every step, in an order in which the first cases differ most."""
    everything = [(rank, step, point) for point, step, rank in itertools.product(POINTS, (1, 2, 7), WHERE)]
    return [everything[(i * 29) % len(everything)] for i in range(len(everything))]


def words(rank, step, point):
    return ",".join(f"{rank}step:{step}:{one}" for one in point.split(","))


class Faults(Ranks):
    def check(self, *overrides):
        self.ranks(RANKS, "whole", *RUN, *overrides)
        retried = 0
        for number, case in zip(range(ROUNDS), itertools.cycle(cases())):
            fault = words(*case)
            result = self.ranks(RANKS, f"run{number}", *RUN, *overrides, env={"BRIM_FAULT": fault})
            self.assert_same_checkpoint("whole", f"run{number}", STEPS, context=f"{fault}\n{result}")
            self.assert_same_records("whole", f"run{number}")
            retried += self.summary(f"run{number}")["retries"] > 0
        self.assertGreater(retried, ROUNDS // 3)

    def test_each_rank_and_all(self):
        self.check()

    def test_a_rank_that_gives_up_ends_all(self):
        """The job ends with one message and a checkpoint of the last commit, from which as many ranks resume to the
        same end."""
        self.ranks(RANKS, "whole", *RUN)
        result = self.ranks(RANKS, "run", *RUN, "policy=fixed", "memory.recompute=none", status=4,
                            env={"BRIM_FAULT": "rank:1:step:5:begin:1+"})
        self.assertEqual(result.err.count("error: "), 1, result)
        self.assert_error(result, "rank 1", "no recovery measure helped", "checkpoint of step 4")
        self.assertEqual(self.steps("run")[-1], 4)
        process = self.start_ranks(RANKS, "train", "--resume", "run")
        out, err = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, 0, out + err)
        self.assert_same_checkpoint("whole", "run", STEPS)


if __name__ == "__main__":
    main()
