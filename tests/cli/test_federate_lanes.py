"""Less memory for a federation means fewer clients that train at a time: while another run waits (policy=elastic),
under memory pressure, and when memory runs out. No bit of the results changes. The device is a share of the host with a
limit; the tests wait for events, not for times."""

import math
import re

from elastic_runs import ELASTIC, WAIT, ElasticCase, device_of
from support import main

# Peaks for 1, 2, 3 and 4 clients at a time: 1.4, 2.4, 3.4 and 4.4 MiB.
LANES = ["model=lightcnn", "model.width=16", "dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=240",
         "dataset.test_count=16", "dataset.classes=4", "total_clients=12", "clients_per_round=5",
         "training.batch_size=16", "backend=cpu", "backend.threads=1", "memory.timing=false", "parallel_clients=4"]
ENDLESS = ["rounds=100000", "federate.eval_every_rounds=10", "federate.checkpoint_every_rounds=10",
           "training.keep_checkpoints=1000000"]
MIB = 2**20


class Lanes(ElasticCase):
    command = "federate"

    def test_the_second_gets_the_memory_it_needs_and_the_first_takes_it_back(self):
        for name, mebibytes, lanes, given in (("one", 6, 2, "1.0 MiB given back: 4 -> 3"),
                                              ("three", 6, 4, "3.0 MiB given back: 4 -> 1")):
            with self.subTest(name):
                first, second = f"first {name}", f"second {name}"
                process = self.begin(first, *LANES, *device_of(mebibytes), *ELASTIC, *ENDLESS)
                waiting = self.start("federate", f"run.dir={second}", *LANES, *device_of(mebibytes), *WAIT, "rounds=5",
                                     f"parallel_clients={lanes}")
                waited = self.finish(waiting, 0)
                self.assertIn("waiting: 1st in line", waited.err)
                step = self.until_taken(first, process)
                result = self.end(process)
                self.brim("federate", f"run.dir={second}-alone", *LANES, "rounds=5")
                self.assert_same_checkpoint(second, f"{second}-alone", 5)
                self.assert_as_alone(first, step, *LANES, *ENDLESS)
                decisions = self.decisions(first)
                self.assertRegex(result.err, rf"policy.elastic: {given} clients at a time, as a run waits for cpu:0\n")
                self.assertRegex(decisions[-1][2], "^[123] -> 4 clients at a time, as no run waits for cpu:0$")

    def test_pressure_lowers_the_clients_at_a_time_and_its_end_raises_them(self):
        neighbour = ["model=mlp", "model.hidden=[80000]", "dataset=synthetic", "dataset.shape=[1,8,8]",
                     "dataset.train_count=64", "dataset.test_count=0", "training.batch_size=1", "training.grain=1",
                     "optimizer=sgd", "training.checkpoint_every_steps=1000000000", "backend.threads=1",
                     "memory.timing=false", "memory.warn_percent=0", "memory.critical_percent=0"]
        self.train("small", *neighbour, "training.steps=1")
        self.brim("federate", "run.dir=large", *LANES, "rounds=1")
        beside, own = (self.summary(run)["device_bytes"] for run in ("small", "large"))
        share = ["backend.devices=1", f"backend.memory_mb={math.ceil((own + beside / 0.99) / MIB)}"]
        watch = ["memory.check_interval_seconds=0.01", "memory.warn_percent=0", "memory.critical_percent=94"]
        run = self.begin("run", *LANES, *share, *watch, *ENDLESS)
        other = self.start("train", "run.dir=other", *neighbour, *share, "training.steps=1000000000")
        self.until(lambda: self.changes("run"), run, other)
        other.terminate()
        self.finish(other)
        self.until(lambda: "4 clients at a time" in self.changes("run")[-1][1], run)
        step = self.changes("run")[-1][0]
        self.until(lambda: self.steps("run")[-1] > step, run)
        step = self.steps("run")[-1]
        result = self.end(run)
        self.assertRegex(result.err, r"recovery: [12] clients? at a time, micro-batch 16.*, a plan of [\d.]+ MiB "
                                     r"instead of 4.4 MiB: memory pressure\n")
        self.assertRegex(result.err, r"recovery: [12] -> 4 clients at a time, a plan of 4.4 MiB instead of [\d.]+ MiB: "
                                     r"memory is free again\n")
        self.assertEqual({action for _, _, action in self.changes("run")}, {"lanes"})
        self.assertEqual(self.summary("run")["retries"], 0)
        self.assert_as_alone("run", step, *LANES, *ENDLESS)

    def changes(self, run):
        """Returns [(step, choice, action)] of the decisions by recovery so far."""
        return self.decisions(run, "recovery", "action")

    def test_a_lack_of_memory_in_any_client_changes_no_bit(self):
        words = [*LANES, "rounds=3", "memory.recompute=none"]
        self.brim("federate", "run.dir=whole", *words)
        for client in range(1, 6):
            faults = ",".join(f"step:2:{point}" for point in (f"client:{client}", "begin:2", "begin:3", "begin:4"))
            with self.subTest(client=client):
                run = f"faulty {client}"
                self.brim("federate", f"run.dir={run}", *words, env={"BRIM_FAULT": faults})
                self.assert_same_checkpoint("whole", run, 3)
                self.assertIn("2 clients at a time instead of 4", [choice for _, choice, _ in self.changes(run)])

    def test_the_plan_has_the_memory_of_each_number(self):
        text = self.brim("--config-name", "federate", "plan", *LANES, "backend.threads=4").out
        peaks = re.findall(r"^\*? +(\d+) +([\d.]+ [KM]iB) ", text, re.M)
        self.assertEqual([int(lanes) for lanes, _ in peaks], [1, 2, 4])
        self.assertRegex(text, r"peak \S+ MiB, exactly \d+ bytes, with 4 clients at a time")


if __name__ == "__main__":
    main()
