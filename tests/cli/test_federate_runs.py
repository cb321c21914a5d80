"""Federations as runs: when they end, the names that people bring along, repeats, what they write down, and memory."""

import math

from support import FAILED, NO_FIT, USAGE, Case, main

SMALL = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=240", "dataset.test_count=40",
         "dataset.classes=4", "total_clients=12", "clients_per_round=5", "memory.timing=false", "model=mlp",
         "model.hidden=[9]", "training.batch_size=8"]


class Runs(Case):
    def federate(self, run, *overrides, status=0, env=None):
        return self.brim("federate", f"run.dir={run}", *SMALL, *overrides, status=status, env=env)

    def evaluations(self, run, split="test"):
        return [record for record in self.records(run) if record["split"] == split]


class Stop(Runs):
    """Rules that end a federation before its last round."""

    def test_it_ends_when_an_evaluation_reaches_the_target(self):
        self.federate("whole", "rounds=12")
        accuracies = [record["accuracy"] for record in self.evaluations("whole")]
        target = max(accuracies)
        expected = accuracies.index(target) + 1
        self.assertLess(expected, 12, "the test shows nothing if the last round is the best")
        result = self.federate("run", "rounds=12", f"federate.target_accuracy={target!r}")
        self.assertEqual(self.summary("run")["steps"], expected)
        self.assertIn(f"stopped early after round {expected} of 12: the test accuracy is {100 * target:.2f} %",
                      result.out)
        self.assertIn("stopped_early", self.events("run"))
        self.federate("short", f"rounds={expected}")
        self.assert_same_checkpoint("run", "short", expected, ["model.safetensors"])

    def test_the_target_is_looked_for_in_validation_data_where_there_is_some(self):
        result = self.federate("run", "rounds=12", "dataset.validation_fraction=0.2", "federate.target_accuracy=0.3")
        last = self.evaluations("run", "validation")[-1]
        self.assertGreaterEqual(last["accuracy"], 0.3)
        self.assertIn(f"the validation accuracy is {100 * last['accuracy']:.2f} %", result.out)
        self.assertTrue(all(r["accuracy"] < 0.3 for r in self.evaluations("run", "validation")[:-1]))

    def test_it_ends_when_loss_and_accuracy_have_settled(self):
        """The rule by plain loops, over the evaluations of a run that is not ended."""
        rounds = 30
        self.federate("whole", f"rounds={rounds}", "optimizer.lr=0.02")
        figures = [(record["loss"], record["accuracy"]) for record in self.evaluations("whole")]
        for threshold, patience, least in (0.05, 2, 0), (0.05, 1, 0), (0.08, 3, 0), (0.05, 1, 17):
            with self.subTest(threshold=threshold, patience=patience, min_rounds=least):
                expected = settled(figures, threshold, patience, least)
                self.assertLess(expected, rounds, "the test shows nothing if the rule does not end the run")
                run = f"run {threshold} {patience} {least}"
                result = self.federate(run, f"rounds={rounds}", "optimizer.lr=0.02", f"federate.patience={patience}",
                                       f"federate.convergence_threshold={threshold}", f"federate.min_rounds={least}")
                self.assertEqual(self.summary(run)["steps"], expected)
                self.assertIn(f"stopped early after round {expected} of {rounds}: neither test loss nor accuracy "
                              f"improved by more than {threshold:g}", result.out)

    def test_a_resumed_federation_ends_at_the_same_round_with_the_same_bytes(self):
        words = ["rounds=30", "optimizer.lr=0.02", "federate.convergence_threshold=0.05", "federate.patience=3",
                 "federate.checkpoint_every_rounds=1"]
        self.federate("whole", *words)
        end = self.summary("whole")["steps"]
        self.assertLess(end, 30)
        for cut in end - 2, end:  # while evaluations are counted
            with self.subTest(cut=cut):
                fault = ",".join(f"step:{cut}:begin:{n}" for n in range(1, 13))
                self.federate(f"cut {cut}", *words, status=NO_FIT, env={"BRIM_FAULT": fault})
                self.assertEqual(max(self.steps(f"cut {cut}")), cut - 1)
                self.brim("federate", "--resume", f"cut {cut}")
                self.assertEqual(self.summary(f"cut {cut}")["steps"], end)
                self.assert_same_checkpoint("whole", f"cut {cut}", end)
                self.assert_same_records("whole", f"cut {cut}")

    def test_by_default_no_rule_ends_it(self):
        self.federate("run", "rounds=6", "optimizer.lr=1e-9")
        self.assertEqual(self.summary("run")["steps"], 6)

    def test_too_few_updates_end_the_run_and_leave_a_checkpoint(self):
        words = ["rounds=9", "optimizer.lr=0.5", "server_optimizer.lr=100", "model.hidden=[9,9]",
                 "federate.checkpoint_every_rounds=100"]
        self.federate("any", *words)
        short = next(r for r in self.evaluations("any", "train") if r["clients_left_out"] > 0)
        arrived = short["clients"] - short["clients_left_out"]
        result = self.federate("run", *words, f"federate.min_clients={arrived + 1}", status=FAILED)
        self.assert_error(result, f"{short['clients_left_out']} of the 5 clients of round {short['step']} have "
                                  f"diverged; federate.min_clients needs {arrived + 1} updates",
                          "brim train --resume run")
        self.assertEqual(max(self.steps("run")), short["step"] - 1)

    def test_rules_that_cannot_work_are_refused(self):
        for words, parts in (
                (["federate.target_accuracy=90"], ["'federate.target_accuracy' must be in [0,1], got 90"]),
                (["federate.min_clients=6"], ["federate.min_clients 6 is more than the 5 clients of a round",
                                              "set federate.min_clients to 5 at most"]),
                (["federate.target_accuracy=0.5", "dataset.test_count=0"],
                 ["'federate.target_accuracy' needs test or validation data", "dataset.validation_fraction"]),
                (["federate.convergence_threshold=0.1", "dataset.test_count=0"],
                 ["'federate.convergence_threshold' needs test or validation data"])):
            with self.subTest(words):
                self.assert_error(self.federate("run", "rounds=2", *words, status=USAGE), *parts)


def settled(figures, threshold, patience, least):
    """The round after which the rule ends a run whose evaluations have these losses and accuracies."""
    loss, accuracy, row = math.inf, -math.inf, 0
    for step, (new_loss, new_accuracy) in enumerate(figures, 1):
        lower, better = new_loss < loss - threshold, new_accuracy > accuracy + threshold
        loss = new_loss if lower else loss
        accuracy = new_accuracy if better else accuracy
        row = 0 if lower or better else row + 1
        if row >= patience and step >= least:
            return step
    return len(figures)


if __name__ == "__main__":
    main()
