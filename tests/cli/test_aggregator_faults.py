"""Tests aggregators that crash, loop or give answers that cannot be used: the run ends with a message that names the
aggregator and the client, after a checkpoint of the previous round, and resumes to the bits of an undisturbed run."""

import os
import pathlib
import unittest

from support import FAILED, SANITIZED, Case, main

BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"])
RUN = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=120", "dataset.test_count=20",
       "dataset.classes=4", "total_clients=6", "clients_per_round=3", "rounds=4", "memory.timing=false", "model=mlp",
       "model.hidden=[9]", "training.batch_size=8", "method=round_robin"]


class AggregatorFaults(Case):
    plugins = BAD

    def federate(self, run, *words, bad=None, status=0):
        return self.brim("federate", f"run.dir={run}", *RUN, f"--plugin-path={self.plugins}", *words, status=status,
                         env={"BRIM_BAD": bad} if bad else None)

    def check(self, bad, *parts):
        """Checks a run that fails in the third round. Resumed without the fault, it ends like an undisturbed run."""
        run = bad.replace(":", " ")
        result = self.federate(run, "aggregator=bad", bad=bad, status=FAILED)
        self.assert_error(result, "aggregator 'bad'", "there is a checkpoint of step 2", "once the plugin is fixed",
                          "brim federate --resume", *parts)
        self.brim("federate", "--resume", run, f"--plugin-path={self.plugins}")
        self.assert_same_checkpoint("whole", run, 4)

    def setUp(self):
        super().setUp()
        self.once(lambda: self.federate("whole", "aggregator=bad"), "whole")

    def test_without_a_fault_it_has_the_bits_of_fedavg(self):
        self.federate("fedavg", "aggregator=fedavg")
        self.assert_same_checkpoint("whole", "fedavg", 4, ["model.safetensors", "optimizer.safetensors"])

    def test_answers_that_cannot_be_used_are_refused_by_name(self):
        for bad, text in (("weigh:below", "gave client 2 the weight -1 in round 3"),
                          ("weigh:nan", "gave client 0 the weight nan in round 3"),
                          ("weigh:nothing", "add up to 0 in round 3"),
                          ("scale:below", "gave client 2 the divisor -1 and the factor 1 in round 3"),
                          ("scale:infinite", "gave client 0 the divisor 20 and the factor inf in round 3"),
                          ("scale:nothing", "divides the sum of updates by"),
                          ("scale:opposite", "divides the sum of updates by -")):
            with self.subTest(bad):
                self.check(bad, text)

    def test_its_own_error_ends_the_run_with_a_checkpoint(self):
        for function in "weigh", "scale":
            with self.subTest(function):
                self.check(f"{function}:fails", f"failed in {function}: this policy does not want to")
                self.check(f"{function}:unknown", f"returned 77 from {function}, which is not a status")
                self.check(f"{function}:notsup", "returned BRIM_ENOTSUP")

    @unittest.skipIf(SANITIZED, "a sanitizer has handlers of its own")
    def test_a_crash_ends_the_run_with_a_checkpoint(self):
        for function in "weigh", "scale":
            with self.subTest(function):
                self.check(f"{function}:segv", function, str(BAD / "aggregator" / "bad.so"), "segmentation fault")

    def test_a_loop_ends_the_run_with_a_checkpoint(self):
        self.check("weigh:loop", "did not return from weigh", "after 1 s of processor time")

    def test_faults_of_one_that_sees_all_updates(self):
        self.plugins = BAD.parent / "bad_whole"
        self.federate("means", "aggregator=bad")
        (self.folder / "whole").rename(self.folder / "other")
        (self.folder / "means").rename(self.folder / "whole")
        checks = [("merge:nan", "gave value 575 of the update nan in round 3"),
                  ("look:fails", "failed in look: this policy does not want to"),
                  ("merge:fails", "failed in merge: this policy does not want to"),
                  ("merge:loop", "did not return from merge", "after 1 s of processor time")]
        if not SANITIZED:
            checks += [("look:segv", "look", "segmentation fault"), ("merge:segv", "merge", "segmentation fault")]
        for bad, *texts in checks:
            with self.subTest(bad):
                self.check(bad, *texts)


if __name__ == "__main__":
    main()
