"""The memory of a federation does not grow with the number of rounds, and hardly with the number of clients."""

import statistics

from support import FULL, SANITIZED, Case, main, write_idx_dataset

MIB = 1 << 20
WORDS = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.test_count=40", "dataset.classes=4",
         "clients_per_round=4", "parallel_clients=2", "partition.min_samples=1", "memory.timing=false",
         "observe.report=false"]
CNN = [*WORDS, "dataset.train_count=240", "total_clients=40", "model=lightcnn", "model.width=4"]
# The number of samples, and of clients in the largest federation: one sample each.
MANY = 1_000_000 if FULL else 100_000
MLP = [*WORDS, f"dataset.train_count={MANY}", "model=mlp", "model.hidden=[9]", "rounds=3",
       "training.batch_size=1", "federate.local_epochs=1"]


class Memory(Case):
    def resident(self, run, *words):
        self.brim("federate", f"run.dir={run}", *words)
        return self.summary(run)["rss_bytes"]

    def peak(self, run, *words):
        self.brim("federate", f"run.dir={run}", *words)
        return self.summary(run)["rss_peak_bytes"]

    def plan(self, *words):
        return self.brim("--config-name", "federate", "plan", "--json", *words).json

    def test_a_plan_counts_the_order_of_the_largest_clients_samples(self):
        """A plan counts 8 bytes for each sample and a table of the permutation. The table has 8 rounds of 4 bytes for
        each value of half of an index's bits. An index has 8 bits for 100 samples and 6 for 50."""
        words = [*WORDS, "dataset.train_count=1200", "model=mlp", "backend.devices=2", "backend.memory_mb=1024"]
        few = self.plan(*words, "total_clients=12")["host"]["loader_bytes"]
        many = self.plan(*words, "total_clients=24")["host"]["loader_bytes"]
        self.assertEqual(few - many, 2 * (8 * (100 - 50) + 4 * 8 * (16 - 8)))

    def test_the_arena_does_not_depend_on_clients_and_rounds(self):
        planned = {self.plan(*MLP, f"total_clients={clients}", f"rounds={rounds}")["peak_bytes"]
                   for clients in (100, 10_000, MANY) for rounds in (1, 1000)}
        self.assertEqual(len(planned), 1, planned)

    def test_lanes_share_a_frozen_backbone_and_send_only_changes(self):
        """Federated LoRA: a lane adds trained parameters and activations; the backbone exists once and is not sent."""
        words = [*WORDS, "dataset.shape=[1,16,16]", "dataset.train_count=240", "backend=cpu", "backend.threads=1"]
        vit = {"depth": 2, "width": 32, "heads": 2}
        self.brim("train", *[w for w in words if "dataset" in w or "backend" in w], "model=vit",
                  *[f"model.{k}={v}" for k, v in vit.items()], "training.steps=1", "run.dir=vit")
        words += ["total_clients=24", "model=lora", "backbone=vit", *[f"backbone.{k}={v}" for k, v in vit.items()],
                  "model.lora_r=2", "model.weights=vit/checkpoints/last/model.safetensors"]
        one, four = (self.plan(*words, f"parallel_clients={lanes}") for lanes in (1, 4))
        self.assertEqual(one["client_bytes"], four["client_bytes"])
        self.assertLessEqual(four["peak_bytes"], one["peak_bytes"] + 3 * one["client_bytes"])
        self.assertGreater(one["server_bytes"], one["frozen_bytes"])
        added = four["classes"]["parameters"] - one["classes"]["parameters"]
        self.assertGreaterEqual(added, 3 * 4 * one["trained_parameters"])
        self.assertLess(added, one["frozen_bytes"] // 4)
        self.brim("federate", *words, "run.dir=run", "rounds=1", "network=good")
        train = self.records("run")[0]
        self.assertEqual(train["bytes"], 2 * 4 * train["clients"] * one["trained_parameters"])

    def test_the_process_does_not_grow_with_rounds(self):
        if SANITIZED:
            self.skipTest("a sanitizer keeps freed memory")
        few, many = (self.resident(f"{rounds}", *CNN, f"rounds={rounds}") for rounds in (10, 100))
        self.assertLess(many, few + max(few // 100, MIB), (few, many))

    def test_the_process_hardly_grows_with_clients(self):
        if SANITIZED:
            self.skipTest("a sanitizer keeps freed memory")
        few = self.peak("few", *MLP, "total_clients=100", "training.batch_size=10", "clients_per_round=1")
        some = self.peak("some", *MLP, "total_clients=10000")
        many = self.peak("many", *MLP, f"total_clients={MANY}")
        drawn = self.peak("drawn", *MLP, f"total_clients={MANY}", "partition=dirichlet", "partition.alpha=0.5")
        self.assertLess(some, few + max(few // 100, MIB), (few, some))
        self.assertLess(many, few + 64 * MIB, (few, many))
        self.assertLess(drawn, few + 64 * MIB, (few, drawn))

    def test_scaffold_takes_the_memory_of_fedavg(self):
        """Each of 4,000 clients trains and keeps a control, which takes 26 MiB in the run's folder. The test compares
        medians of three runs, because the system counts pages of libraries in steps of 64 KiB, in an order that depends
        on the threads."""
        if SANITIZED:
            self.skipTest("a sanitizer keeps freed memory")
        folder = write_idx_dataset(self.folder / "data", train=4000, rows=28)
        words = ["dataset=mnist", f"dataset.path={folder}", "total_clients=4000", "clients_per_round=1000",
                 "rounds=4", "parallel_clients=1", "method=round_robin", "model=lightcnn", "model.width=4",
                 "training.batch_size=1", "optimizer=sgd", "optimizer.momentum=0", "federate.eval_every_rounds=4",
                 "memory.timing=false", "federate.client_accuracy=false", "observe.report=false"]
        plain = statistics.median(self.peak(f"fedavg {i}", *words) for i in range(3))
        scaffold = statistics.median(self.peak(f"scaffold {i}", *words, "federate.local=scaffold") for i in range(3))
        kept = (self.folder / "scaffold 0" / "states.bin").stat().st_blocks * 512
        self.assertGreater(kept, 4000 * 4 * self.plan(*words)["trained_parameters"])
        self.assertLess(scaffold, plain * 1.02, (plain, scaffold))

    def test_all_updates_of_a_round_are_never_in_memory(self):
        """The updates of forty clients with 1.66 million values each take 253 MiB; the run reads them in blocks of 16
        MiB."""
        words = ["dataset=synthetic", "dataset.shape=[1,28,28]", "dataset.test_count=20", "dataset.classes=10",
                 "model=mlp", "model.hidden=[1024,816]", "dataset.train_count=40", "total_clients=40", "rounds=1",
                 "clients_per_round=40", "training.batch_size=1", "memory.timing=false", "observe.report=false",
                 "parallel_clients=2", "federate.client_accuracy=false"]
        for aggregator in "median", "krum":
            host = self.plan(*words, f"aggregator={aggregator}")["host"]
            self.assertLess(host["updates_bytes"], 64 * MIB)
            if not SANITIZED:
                self.assertLess(self.peak(aggregator, *words, f"aggregator={aggregator}"),
                                host["total_bytes"] + 8 * MIB)


if __name__ == "__main__":
    main()
