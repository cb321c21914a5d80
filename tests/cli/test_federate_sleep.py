"""Tests network.sleep=true: clients wait in real time for their simulated transfers, and nothing else changes."""

import signal

from federations import FederationCase
from support import INTERRUPTED, USAGE, main
from test_federate import MLP

LINE = ["network.latency_ms=[100]", "network.jitter_ms=[0]", "network.bandwidth_mbit=[1e9]",
        "network.loss_percent=[0]"]


class Sleep(FederationCase):
    def test_it_takes_time_and_changes_no_bit(self):
        """In each of four rounds, five clients wait twice for 0.1 s, one after another."""
        words = [*MLP, *LINE, "training.batch_size=8", "parallel_clients=1"]
        self.federate("simulated", *words)
        self.federate("real", *words, "network.sleep=true")
        self.assert_same_checkpoint("simulated", "real", 4)
        for a, b in zip(self.records("simulated"), self.records("real"), strict=True):
            for key in "loss", "simulated_seconds", "joules", "bytes":
                self.assertEqual(a.get(key), b.get(key))
        self.assertGreaterEqual(self.summary("real")["wall_seconds"], 4 * 5 * 2 * 0.1)

    def test_rounds_of_an_edge_wait_as_long_in_all(self):
        words = [*MLP, *LINE, "training.batch_size=8", "parallel_clients=1", "federate.edges=2",
                 "federate.edge_rounds=2", "rounds=1", *(word.replace("network", "edge_network") for word in LINE)]
        self.federate("real", *words, "edge_network.sleep=true", "network.sleep=true")
        self.assertGreaterEqual(self.summary("real")["wall_seconds"], 5 * (2 * 2 * 0.1 + 2 * 0.1))

    def test_processes_wait_too(self):
        words = [*MLP, *LINE, "training.batch_size=8", "total_clients=2", "clients_per_round=2", "backend.threads=1"]
        self.federate("simulated", *words)
        self.federate("apart", *words, "network.sleep=true", "federate.mode=processes")
        self.assert_same_checkpoint("simulated", "apart", 4, ["model.safetensors", "optimizer.safetensors"])
        self.assertGreaterEqual(self.summary("apart")["wall_seconds"], 4 * 2 * 0.1)
        result = self.federate("long", *words, "network.latency_ms=[3e5]", "network.sleep=true",
                               "federate.mode=processes", status=USAGE)
        self.assert_error(result, "a rank may wait 600 seconds for transfers in a round", "dist.timeout_seconds")

    def test_a_signal_ends_the_wait(self):
        process = self.start("federate", "run.dir=run", *MLP, *LINE, "network.latency_ms=[1e7]", "network.sleep=true")
        self.until(lambda: (self.folder / "run" / "metrics.jsonl").exists(), process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process).status, INTERRUPTED)

    def test_where_it_has_no_effect_it_is_refused(self):
        for words, part in ((["network.sleep=true"], "cannot be combined with network=none: no transfer takes time"),
                            (["network=good", "network.sleep=true", "federate.async=true"], "federate.async=true"),
                            (["network=good", "network.sleep=true", "federate.train=false"], "nothing trains"),
                            (["federate.edges=2", "edge_network.sleep=true"], "edge_network=none")):
            self.assert_error(self.federate("run", *MLP, *words, status=USAGE), part)


if __name__ == "__main__":
    main()
