"""Tests each method of client selection in whole federations: the same choices and the same bytes whether clients train
one after another or two at a time, and after a stop in any round."""

import math
import os
import pathlib
import struct

import tensors
from support import NO_FIT, Case, main, plain, some_of
from test_federate import attempts

# Parameters with which each method shows its particular behaviour within six rounds.
METHODS = {
    "random": [], "round_robin": [], "proportional": [], "topk_loss": [], "gradient_norm": [], "power_of_choice": [],
    "fairness_adjusted": [], "cluster_balanced": ["method.clusters=3"], "mmr_diverse": [], "label_coverage": [],
    "fedcs": [], "tifl": ["method.tiers=3", "method.interval=1", "method.credits=2"],
    "oort": ["method.explore=0.5", "method.window=2"], "epsilon_greedy": ["method.epsilon=0.4"], "linucb": [],
    "divfl": [], "fedcor": ["method.warm=2", "method.every=3", "method.history=2"],
}
SMALL = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=240", "dataset.test_count=40",
         "dataset.classes=4", "model=mlp", "model.hidden=[9]", "training.batch_size=8", "total_clients=12",
         "clients_per_round=4", "rounds=6", "federate.checkpoint_every_rounds=1", "memory.timing=false",
         "partition=dirichlet", "partition.alpha=0.5"]


class Methods(Case):
    def federate(self, run, method, *words, **kind):
        return self.brim("federate", f"run.dir={run}", *SMALL, f"method={method}", *METHODS[method], *words, **kind)

    def choices(self, run):
        return [(line["round"], line["client"]) for line in self.records(run, "participants.jsonl")]

    def test_no_other_methods_exist(self):
        listed = self.brim("federate", "--list-methods").out.split()
        self.assertLessEqual(set(METHODS), set(listed))
        plugins = pathlib.Path(__file__).parents[2] / "plugins" / "selector"
        self.assertLessEqual({entry.name for entry in os.scandir(plugins)}, set(METHODS))
        self.assertEqual(len(METHODS), 17)

    def whole(self, method):
        """Returns the folder of an undisturbed run in which clients train one after another."""
        run = self.shared / method
        if not run.exists():
            self.federate(run, method, "parallel_clients=1")
        return run

    def test_neither_clients_at_a_time_nor_a_stop_in_any_round_change_a_choice_or_a_bit(self):
        for number, method in some_of(enumerate(METHODS), 4):
            with self.subTest(method):
                words, cut = ["parallel_clients=2"], 2 + number % 5
                self.federate(method, method, *words, status=NO_FIT, env={"BRIM_FAULT": attempts(cut, 12)})
                self.assertEqual(max(self.steps(method)), cut - 1)
                self.brim("federate", "--resume", method)
                choices = self.choices(self.whole(method))
                self.assertEqual([number for number, _ in choices], list(range(1, 7)))
                self.assertTrue(all(len(set(clients)) == 4 for _, clients in choices))
                self.assertEqual(choices, self.choices(method))
                self.assert_same_checkpoint(self.whole(method), method, 6)

    def test_the_accuracy_of_clients_is_that_of_their_training(self):
        self.federate("run", "tifl", "clients_per_round=1", "rounds=4", "federate.local_epochs=2",
                      "training.keep_checkpoints=9", "observe.log_every_steps=1")
        known = {}
        for number, clients in self.choices("run"):
            trained = [r for r in self.records("run", "metrics.jsonl") if r["split"] == "train" and r["step"] == number]
            known[clients[0]] = trained[0]["accuracy"]
            column = tensors.read(self.checkpoint("run", number) / "optimizer.safetensors")[0]["clients.accuracy"][2]
            self.assertEqual({k for k, accuracy in enumerate(column) if not math.isnan(accuracy)}, set(known))
            for k, accuracy in known.items():
                self.assertEqual(column[k], struct.unpack("f", struct.pack("f", accuracy))[0])

    @plain
    def test_methods_differ(self):
        choices = {}
        for method in METHODS:
            choices.setdefault(str(self.choices(self.whole(method))), []).append(method)
        self.assertEqual([same for same in choices.values() if len(same) > 1], [])


if __name__ == "__main__":
    main()
