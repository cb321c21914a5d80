"""Tests selectors that crash, loop or select clients that do not exist: the run ends with a message that names the
selector and the client, after a checkpoint of the previous round, and resumes to the bits of an undisturbed run."""

import os
import pathlib
import unittest

from support import FAILED, SANITIZED, USAGE, Case, main, plain

BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"])
RUN = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=120", "dataset.test_count=20",
       "dataset.classes=4", "total_clients=6", "clients_per_round=3", "rounds=4", "memory.timing=false", "model=mlp",
       "model.hidden=[9]", "training.batch_size=8", "method=bad", f"--plugin-path={BAD}"]


class SelectorFaults(Case):
    def federate(self, run, *words, bad=None, status=0):
        return self.brim("federate", f"run.dir={run}", *RUN, *words, status=status,
                         env={"BRIM_BAD": bad} if bad else None)

    def check(self, bad, *parts):
        """Checks a run that fails in the third round. Resumed without the fault, it ends like an undisturbed run."""
        run = bad.replace(":", " ")
        result = self.federate(run, bad=bad, status=FAILED)
        self.assert_error(result, "selector 'bad'", "there is a checkpoint of step 2", "brim federate --resume", *parts)
        self.brim("federate", "--resume", run, f"--plugin-path={BAD}")
        self.assert_same_checkpoint("whole", run, 4)

    def setUp(self):
        super().setUp()
        self.once(lambda: self.federate("whole"), "whole")

    def test_clients_that_do_not_exist_are_refused_by_name(self):
        for bad, text in (("twice", "selected client 2 twice in round 3"),
                          ("stranger", "selected client 6 in round 3; there are 6"),
                          ("negative", "selected client -1 in round 3"),
                          ("none", "selected 0 clients in round 3; it must select 1 to 3"),
                          ("many", "selected 4 clients in round 3; it must select 1 to 3"),
                          ("pointer", "replaced the pointer `client` in round 3")):
            with self.subTest(bad):
                self.check(f"select:{bad}", text)

    @plain
    def test_a_client_that_is_away_is_refused_by_name(self):
        """Client 4 is never available."""
        (self.folder / "trace.csv").write_text("client,start,end\n0,0,9\n1,0,9\n2,0,9\n3,0,9\n5,0,9\n")
        result = self.federate("away", "world.availability=trace", "world.trace=trace.csv", bad="select:away",
                               status=FAILED)
        self.assert_error(result, "selector 'bad' selected client 4 in round 3, which is not among the candidates",
                          "there is a checkpoint of step 2")

    @plain
    def test_losses_that_were_not_planned_for_are_refused(self):
        self.check("select:losses",
                   "failed in select: losses was called, but the selector's needs lack BRIM_NEED_LOSSES")

    def test_a_selectors_own_error_ends_the_run_with_a_checkpoint(self):
        for function in "select", "learn":
            with self.subTest(function):
                self.check(f"{function}:fails", f"failed in {function}: this policy does not want to")
                self.check(f"{function}:unknown", f"returned 77 from {function}, which is not a status",
                           "return BRIM_OK, or brim_fail(status, ...) to name the failure")
                self.check(f"{function}:notsup", f"returned BRIM_ENOTSUP from {function}")

    def test_a_selector_without_memory_is_called_again_after_a_cleanup(self):
        result = self.federate("run", bad="select:memory", status=FAILED)
        self.assert_error(result, "selector 'bad' failed in select: no memory for the scores")
        self.assertIn("recovery: heavy cleanup", result.err)
        self.assertEqual(max(self.steps("run")), 2)

    @unittest.skipIf(SANITIZED, "a sanitizer has handlers of its own")
    @plain
    def test_a_crash_ends_the_run_with_a_checkpoint(self):
        for function in "select", "learn":
            with self.subTest(function):
                self.check(f"{function}:segv", function, str(BAD / "selector" / "bad.so"), "segmentation fault")

    @plain
    def test_a_loop_ends_the_run_with_a_checkpoint(self):
        self.check("select:loop", "did not return from select", "after 1 s of processor time")

    def test_an_instance_that_could_not_be_made_is_not_destroyed(self):
        result = self.federate("made", bad="create:fails", status=USAGE)
        self.assert_error(result, "this policy does not want to")

    def test_a_state_that_cannot_be_is_refused_before_the_run(self):
        for bad in "huge", "negative":
            with self.subTest(bad):
                result = self.federate(bad, bad=f"state:{bad}", status=FAILED)
                self.assert_error(result, "selector 'bad' asks for a state of")


if __name__ == "__main__":
    main()
