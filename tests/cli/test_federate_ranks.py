"""Tests federations of several ranks: clients are distributed over them, and the result has the bits of one rank's."""

import random

from federations import FederationCase
from ranks import Ranks
from support import FAILED, FULL, HANG_SECONDS, USAGE, fewer_of, main
from test_federate import KINDS
from test_federate_processes import ALIKE, PROCESSES, TABLE
from test_federate_processes import SMALL as THREE_CLIENTS
from test_federate_runs import SMALL

CHECKPOINT = ["model.safetensors", "optimizer.safetensors", "state.json"]


class FederateRanks(Ranks, FederationCase):
    def federate(self, ranks, run, *overrides, status=0, env=None):
        process = self.start_ranks(ranks, "federate", f"run.dir={run}", *overrides, env=env)
        out, err = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, status, out + err)
        return err

    def whole(self, name):
        self.brim("federate", "run.dir=whole", *KINDS[name])

    def test_ranks_change_no_bit(self):
        for number, (name, words) in enumerate(KINDS.items()):
            if name in ALIKE and not FULL:
                continue
            self.brim("federate", f"run.dir={name} one", *words, "parallel_clients=2")
            for ranks in fewer_of((2, 3), 2, number % 2):
                with self.subTest(name, ranks=ranks):
                    self.federate(ranks, f"{name} {ranks}", *words)
                    self.assert_same_checkpoint(f"{name} one", f"{name} {ranks}", 4, CHECKPOINT)
                    self.assert_same_rounds(f"{name} one", f"{name} {ranks}")

    def test_evaluations_have_the_same_bits(self):
        """The test uses double precision, in which another order of additions nearly always changes a sum."""
        draw = random.Random(5)
        rows = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(230)]
        self.write_data(self.folder / "data", [[*row, sum(row) + draw.gauss(0, 1)] for row in rows])
        small = ["model=mlp", "model.hidden=[5]", "backend=reference", "total_clients=6", "clients_per_round=3",
                 "rounds=2", "training.batch_size=4"]
        cases = {"classes": ["dataset=synthetic", "dataset.shape=[1,2,2]", "dataset.train_count=60",
                             "dataset.test_count=333", "dataset.noise=4",
                             "loss.class_weights=[0.3,1,1,2,0.7,1,1,1,1,3]"],
                 "values": ["dataset=csv", "dataset.path=data", "dataset.targets=[y]", "loss=mse"]}
        for name, words in cases.items():
            self.brim("federate", f"run.dir={name} one", *small, *words)
            for ranks in 2, 3:
                self.federate(ranks, f"{name} {ranks}", *small, *words)
                self.assert_same_rounds(f"{name} one", f"{name} {ranks}")
        # The batches of an evaluation do not matter, as long as they divide a unit.
        for name, words in cases.items():
            self.brim("federate", f"run.dir={name} cut", *small, *words, "training.batch_size=2",
                      "training.gradient_accumulation_steps=2")
            self.assert_same_rounds(f"{name} one", f"{name} cut")

    def assert_same_rounds(self, run, other):
        """Asserts that two runs have the same outcomes of clients, which all ranks know."""
        def of(name):
            return [(r["split"], r["step"], r["loss"], r.get("accuracy"), r.get("mae"), r.get("clients"))
                    for r in self.records(name)]
        self.assertEqual(of(run), of(other))
        self.assertEqual(self.client_accuracy(run), self.client_accuracy(other))

    def client_accuracy(self, run):
        return [self.summary(run).get(f"client_accuracy_{key}") for key in ("mean", "variance", "gini")]

    def test_a_rank_or_a_client_that_fails_is_made_up_for(self):
        self.whole("kept norms")
        # In the first round no rank is known to be slower, and the second has two clients.
        for fault in "rank:1:step:1:client:2", "rank:0:step:2:begin", "rank:1:step:3:begin", "rank:1:step:3:update", \
                     "step:1:client:1,step:1:client:2":
            with self.subTest(fault):
                run = fault.replace(":", " ").replace(",", " ")
                self.federate(2, run, *KINDS["kept norms"], env={"BRIM_FAULT": fault})
                self.assert_same_checkpoint("whole", run, 4, CHECKPOINT)
                self.assertGreater(self.summary(run)["retries"], 0)

    def test_any_number_of_ranks_resumes(self):
        for name in "dirichlet", "kept norms", "async":
            with self.subTest(name):
                whole, run = f"whole {name}", f"run {name}"
                self.brim("federate", f"run.dir={whole}", *KINDS[name])
                err = self.federate(3, run, *KINDS[name], status=4, env={"BRIM_FAULT": "rank:2:step:4:begin:1+"})
                self.assertEqual(err.count("error: "), 1, err)
                self.assertEqual(max(self.steps(run)), 3)
                process = self.start_ranks(2, "federate", "--resume", run)
                out, err = process.communicate(timeout=HANG_SECONDS)
                self.assertEqual(process.returncode, 0, out + err)
                self.assert_same_checkpoint(whole, run, 4, CHECKPOINT)
                self.assertEqual(self.client_accuracy(whole), self.client_accuracy(run))

    def test_clients_that_all_diverge_end_all_ranks_with_one_message(self):
        err = self.federate(2, "run", *KINDS["mlp"], "optimizer.lr=1e30", status=FAILED)
        self.assertEqual(err.count("error: "), 1, err)
        self.assertIn("all 5 clients of round 1 have diverged", err)
        err = self.federate(2, "first", *KINDS["mlp"], "optimizer.lr=1e30", "federate.on_divergence=fail",
                            status=FAILED)
        self.assertIn("has diverged", err)

    def test_rules_that_end_a_run_and_participants_do_not_know_of_ranks(self):
        words = [*SMALL, "rounds=30", "optimizer.lr=0.02", "federate.convergence_threshold=0.05",
                 "federate.checkpoint_every_rounds=2"]
        self.brim("federate", "run.dir=whole", *words)
        end = self.summary("whole")["steps"]
        self.assertLess(end, 30)
        for fault in None, "rank:1:step:5:update", "rank:0:step:4:begin":
            with self.subTest(fault):
                run = f"run {fault}".replace(":", " ")
                self.federate(2, run, *words, env={"BRIM_FAULT": fault} if fault else None)
                self.assertEqual(self.summary(run)["steps"], end)
                self.assert_same_checkpoint("whole", run, end, CHECKPOINT)
                self.assertEqual(self.read(run, "participants.jsonl"), self.read("whole", "participants.jsonl"))

    def test_ranks_without_clients_are_reported(self):
        err = self.federate(3, "run", *KINDS["mlp"], "clients_per_round=2")
        self.assertIn("1 of 3 ranks have nothing to do: a round has 2 clients", err)

    def test_mpirun_starts_the_processes_of_clients(self):
        self.brim("federate", "run.dir=simulated", *THREE_CLIENTS)
        self.federate(4, "apart", *THREE_CLIENTS, *TABLE, PROCESSES)
        self.assert_same_checkpoint("simulated", "apart", 4, CHECKPOINT)
        self.assert_same_rounds("simulated", "apart")
        err = self.federate(3, "three", *THREE_CLIENTS, PROCESSES, status=USAGE)
        self.assertIn("dist.ranks is 4, but 3 ranks were started", err)


if __name__ == "__main__":
    main()
