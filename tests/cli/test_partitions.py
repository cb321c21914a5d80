"""Tests the assignment of samples to clients: every kind of partition, as `brim federate --export-partition` writes it
and as a run records it."""

import collections
import json
import math
import pathlib

from support import FASHION, LOAD, NO_FIT, USAGE, Case, main, plain

BPE = pathlib.Path(__file__).resolve().parents[1] / "golden" / "bpe"

SMALL = ["dataset=synthetic", "dataset.shape=[6]", "dataset.test_count=40", "model=mlp", "model.hidden=[9]",
         "clients_per_round=2", "rounds=2", "federate.checkpoint_every_rounds=1", "memory.timing=false"]
# Quantiles of chi-square at 0.999, by degrees of freedom.
CHI_SQUARE = {9: 27.9, 19: 43.8}


def data(count, classes=4):
    """Writes data in which sample i has class i mod classes."""
    return [*SMALL, f"dataset.train_count={count}", f"dataset.classes={classes}"]


class Partitions(Case):
    def partition(self, *words):
        """Returns the samples of each client, in the client's order."""
        self.brim("federate", *words, "--export-partition", "out.csv", "--force")
        return self.clients("out.csv")

    def clients(self, name):
        clients = collections.defaultdict(list)
        lines = (self.folder / name).read_text().splitlines()
        self.assertIn(lines[0], ("client,sample", "client,sample,class"))
        for line in lines[1:]:
            client, sample = map(int, line.split(",")[:2])
            clients[client].append(sample)
        return clients

    def assert_each_once(self, parts, count, clients):
        self.assertEqual(sorted(parts), list(range(clients)))
        self.assertEqual(sorted(sum(parts.values(), [])), list(range(count)))

    # ---- kinds ----

    def test_each_sample_has_one_client_and_each_client_the_least(self):
        for words in (["iid"], ["iid", "partition.sizes=lognormal", "partition.sigma=2"],
                      ["iid", "partition.sizes=power_law", "partition.exponent=3"],
                      ["dirichlet", "partition.alpha=0.05"], ["dirichlet", "partition.alpha=1e-6"], ["shards"],
                      ["classes", "partition.classes_per_client=3"]):
            for least in 1, 9:
                with self.subTest(words, least=least):
                    parts = self.partition(*data(240), f"partition={words[0]}", *words[1:], "total_clients=12",
                                           f"partition.min_samples={least}")
                    self.assert_each_once(parts, 240, 12)
                    self.assertGreaterEqual(min(map(len, parts.values())), least)

    def test_clients_have_the_given_number_of_classes_all_equally_often(self):
        for classes, each, clients in (4, 1, 12), (7, 3, 10), (10, 10, 5), (5, 4, 3):
            with self.subTest(classes=classes, each=each):
                parts = self.partition(*data(1000, classes), "partition=classes", f"total_clients={clients}",
                                       f"partition.classes_per_client={each}")
                self.assert_each_once(parts, 1000, clients)
                held = [{sample % classes for sample in samples} for samples in parts.values()]
                self.assertEqual({len(one) for one in held}, {each})
                holders = collections.Counter(c for one in held for c in one)
                self.assertLessEqual(max(holders.values()) - min(holders.values()), 1)

    def test_a_small_alpha_gives_a_client_one_class_and_a_large_one_all_alike(self):
        for kind in "dirichlet", "dirichlet_each":
            words = [*data(4000), f"partition={kind}", "total_clients=10"]
            with self.subTest(kind):
                counts = [collections.Counter(s % 4 for s in samples)
                          for samples in self.partition(*words, "partition.alpha=1e6", "seed=2").values()]
                for count in counts:
                    for label in range(4):  # 100 of each class; the standard deviation of a random count is below 9
                        self.assertAlmostEqual(count[label], 100, delta=1 if kind == "dirichlet" else 45)
        each = self.partition(*words, "partition.alpha=1e-4")
        self.assertEqual({len({s % 4 for s in samples}) for samples in each.values()}, {1})
        whole = self.partition(*data(4000), "partition=dirichlet", "total_clients=10", "partition.alpha=1e-4")
        owners = [{c for c, samples in whole.items() for s in samples if s % 4 == label} for label in range(4)]
        self.assertTrue(all(len(one) < 10 for one in owners))
        largest = sorted(map(len, whole.values()))[-4:]
        self.assertGreater(sum(largest), 3900)  # the other clients have the minimum

    def assert_uniform(self, shares):
        """Asserts a uniform distribution on [0, 1], by chi-square over ten intervals."""
        counts = collections.Counter(min(int(10 * share), 9) for share in shares)
        wanted = len(shares) / 10
        self.assertLess(sum((counts[k] - wanted) ** 2 / wanted for k in range(10)), CHI_SQUARE[9])

    @plain
    def test_shares_are_those_of_a_dirichlet_distribution(self):
        """With two clients and alpha=1 the distribution of a share is uniform."""
        parts = self.partition(*data(100000, 500), "partition=dirichlet", "partition.alpha=1", "total_clients=2")
        counts = collections.Counter(sample % 500 for sample in parts[0])
        self.assert_uniform([counts[label] / 200 for label in range(500)])
        parts = self.partition(*data(1000, 2), "partition=dirichlet_each", "partition.alpha=1", "total_clients=1000",
                               "partition.samples=200")
        self.assert_uniform([sum(s % 2 for s in samples) / len(samples) for samples in parts.values()])

    def test_drawn_samples_of_a_class_are_as_likely_as_each_other(self):
        parts = self.partition(*data(40, 2), "partition=dirichlet_each", "partition.alpha=1e6", "total_clients=50",
                               "partition.samples=80")
        counts = collections.Counter(sum(parts.values(), []))
        self.assertEqual(sum(counts.values()), 4000)
        for label in 0, 1:
            ours = [counts[s] for s in range(label, 40, 2)]
            wanted = sum(ours) / 20
            self.assertLess(sum((n - wanted) ** 2 / wanted for n in ours), CHI_SQUARE[19])

    @plain
    def test_sizes_are_the_requested_ones(self):
        words = ["total_clients=1000", *data(100000)]
        for kind in "iid", "dirichlet_each":
            with self.subTest(kind):
                parts = self.partition(*words, f"partition={kind}", "partition.sizes=power_law",
                                       "partition.exponent=0.5")
                sizes = sorted(map(len, parts.values()), reverse=True)
                total = sum((k + 1) ** -0.5 for k in range(1000))
                for k in 0, 9, 99, 999:
                    self.assertAlmostEqual(sizes[k], 100000 * (k + 1) ** -0.5 / total, delta=1.01)
                parts = self.partition(*words, f"partition={kind}", "partition.sizes=lognormal", "partition.sigma=0.5")
                logs = [math.log(len(samples)) for samples in parts.values()]
                mean = sum(logs) / 1000
                spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / 1000)
                self.assertAlmostEqual(spread, 0.5, delta=0.05)  # its standard error is 0.011
                self.assertAlmostEqual(sum(map(len, parts.values())), 100000, delta=500)

    @plain
    def test_a_million_clients_draw_from_few_samples(self):
        out = self.brim("federate", *data(240), "partition=dirichlet_each", "total_clients=1000000",
                        "partition.samples=5", "rounds=1", "run.dir=run").out
        self.assertIn("5000000 samples for 1000000 clients (dirichlet_each, 5 each)", out)
        self.assertEqual(len(self.read("run", "partition.csv").splitlines()), 5000001)

    # ---- clients of the dataset ----

    def table(self, clients):
        """Writes a CSV file in which row i belongs to the client with the name clients[i]."""
        rows = [f"{i % 7},{name},{(i * 5) % 3},c{i % 3}" for i, name in enumerate(clients)]
        (self.folder / "table.csv").write_text("\n".join(["x,who,y,class", *rows]) + "\n")
        return ["dataset=csv", "dataset.path=table.csv", "dataset.label=class", "dataset.test_fraction=0.2",
                "model=mlp", "model.hidden=[4]", "clients_per_round=1", "rounds=1", "partition=natural",
                "memory.timing=false"]

    def test_a_column_assigns_rows_to_clients(self):
        names = [["12", "3", "100"][i % 3 if i % 5 else 0] for i in range(100)]
        words = [*self.table(names), "dataset.client=who"]
        parts = self.partition(*words, "total_clients=3")
        for k, name in enumerate(["3", "12", "100"]):  # names that are numbers are sorted as numbers
            self.assertEqual(sorted(parts[k]), [i for i in range(80) if names[i] == name])
        fewer = self.partition(*words, "total_clients=2")
        self.assertEqual(sorted(fewer[0]), sorted(parts[0] + parts[2]))
        self.assertEqual(fewer[1], parts[1])
        out = self.brim("federate", *words, "total_clients=3", "run.dir=run").out
        self.assertIn("2 features (x, y)", out)  # the client column is not a feature
        self.assertEqual(self.clients("run/partition.csv"), parts)
        if FASHION.is_dir():
            self.assert_error(self.brim("federate", "partition=natural", "model=mlp", status=USAGE),
                              "'idx' does not say which client a sample belongs to", "partition=file")
        for more, *text in ((["total_clients=4"], "'total_clients' is 4", "belong to 3 clients", "total_clients=3"),
                            (["total_clients=3", "partition.min_samples=24"], "moves no samples"),
                            (["total_clients=3", "dataset.client="], "'dataset.client' is empty"),
                            (["total_clients=3", "dataset.client=whom"], "'whom', which dataset.client names")):
            with self.subTest(more):
                self.assert_error(self.brim("federate", *words, *more, status=USAGE), *text)
        self.table([*names[:6], "", *names[7:]])
        result = self.brim("federate", *words, "total_clients=3", status=LOAD)
        self.assert_error(result, "line 8, column 2 'who': the client is missing")

    def test_a_file_of_text_is_a_client(self):
        """The files have 60, 4 and 25 bytes. The last tenth of each is test data, and a sample takes 5 consecutive
        bytes."""
        folder = self.folder / "texts"
        folder.mkdir()
        for name, size in ("a.txt", 60), ("b.txt", 4), ("c.txt", 25):
            (folder / name).write_bytes(bytes(97 + i % 26 for i in range(size)))
        words = ["dataset=text", "dataset.path=texts", "dataset.context=4", "model=gpt2", "model.layers=1",
                 "model.width=8", "model.heads=1", "model.context=4", "partition=natural", "clients_per_round=1",
                 "rounds=1", "memory.timing=false"]
        parts = self.partition(*words, "dataset.client=file", "total_clients=2")
        # 13 samples begin in the 54 bytes of a.txt, 5 in the 22 of c.txt; b.txt is too short for one.
        self.assertEqual([sorted(samples) for _, samples in sorted(parts.items())],
                         [list(range(13)), list(range(13, 18))])
        result = self.brim("federate", *words, "dataset.client=file", "total_clients=2", "run.dir=run")
        self.assertIn("b.txt' is not a client: 4 tokens are too few", result.err)
        for more, *text in ((["total_clients=3", "dataset.client=file"], "belong to 2 clients", "total_clients=2"),
                            (["total_clients=2"], "but dataset.client=none", "dataset.client=file")):
            with self.subTest(more):
                self.assert_error(self.brim("federate", *words, *more, status=USAGE), *text)

    @plain
    def test_a_file_of_gpt2_tokens_is_a_client(self):
        """The client has as many samples as the file alone would give."""
        folder = self.folder / "texts"
        folder.mkdir()
        for name, times in ("a.txt", 40), ("b.txt", 15), ("c.txt", 70):
            (folder / name).write_text("the memory of a step is known before that step begins. " * times)
        words = ["dataset=text", "dataset.tokens=gpt2", f"dataset.tokenizer={BPE}", "dataset.context=8", "model=gpt2",
                 "model.layers=1", "model.width=8", "model.heads=1", "model.context=8", "clients_per_round=1",
                 "rounds=1", "memory.timing=false"]
        parts = self.partition(*words, "dataset.path=texts", "partition=natural", "dataset.client=file",
                               "total_clients=3")
        alone = [sum(map(len, self.partition(*words, f"dataset.path=texts/{name}.txt", "partition=iid",
                                             "total_clients=1").values())) for name in "abc"]
        self.assertEqual([len(parts[k]) for k in range(3)], alone)
        self.assertEqual([s for k in range(3) for s in sorted(parts[k])], list(range(sum(alone))))

    def test_made_up_clients_have_their_own_samples(self):
        words = ["dataset=synthetic_leaf", "partition=natural", "model=mlp", "model.hidden=[]", "memory.timing=false",
                 "clients_per_round=10", "rounds=30", "optimizer.lr=0.01"]
        parts = self.partition(*words, "total_clients=30")
        self.assert_each_once(parts, 9000, 30)
        self.assertEqual([s for k in range(30) for s in sorted(parts[k])], list(range(9000)))
        self.brim("federate", *words, "total_clients=30", "dataset.alpha=0", "dataset.beta=0", "run.dir=run")
        self.assertGreater(self.summary("run")["test_accuracy"], 0.5)
        for more, *text in ((["dataset.shape=[1,8,8]"], "dataset.clients=30 needs", "dataset.shape=[60]"),
                            (["dataset.train_count=29"], "dataset.train_count is 29", "30"),
                            (["dataset.clients=0"], "'dataset.clients' is 0"),
                            (["dataset.clients=1000000", "dataset.train_count=1000000", "dataset.classes=1000000"],
                             "bytes, but at most")):
            with self.subTest(more):
                self.assert_error(self.brim("federate", *words, "total_clients=30", *more, status=USAGE), *text)

    # ---- repeatability ----

    @plain
    def test_a_partition_depends_only_on_seed_clients_and_labels(self):
        for words in ["iid", "partition.sizes=lognormal"], ["dirichlet"], ["dirichlet_each"], ["shards"], ["classes"]:
            with self.subTest(words):
                words = [*data(240), f"partition={words[0]}", *words[1:], "total_clients=12"]
                one = self.partition(*words)
                self.assertEqual(one, self.partition(*words, "backend=reference", "model.hidden=[3,3]",
                                                     "optimizer=adam", "training.batch_size=3", "clients_per_round=7"))
                self.assertEqual(one, self.partition(*words, "backend.threads=1", "model.hidden=[20]", "rounds=9",
                                                     "parallel_clients=1"))
                self.brim("federate", *words, "run.dir=run", "parallel_clients=2")
                self.assertEqual(one, self.clients("run/partition.csv"))
                self.brim("federate", "--from", "run", "--export-partition", "again.csv")
                self.assertEqual(one, self.clients("again.csv"))
                self.assertNotEqual(one, self.partition(*words, "seed=2"))
                (self.folder / "again.csv").unlink()
                self.remove("run")

    def remove(self, run):
        (self.folder / run).rename(self.folder / f"{run} {len(list(self.folder.iterdir()))}")

    def test_a_file_gives_the_same_partition_and_the_same_bits(self):
        words = [*data(240), "dataset.validation_fraction=0.1", "total_clients=12"]
        self.brim("federate", *words, "partition=dirichlet", "run.dir=first")
        self.brim("federate", *words, "partition=file", "partition.path=first/partition.csv", "run.dir=second")
        records = [json.loads(self.read(run, "partition.json")) for run in ("first", "second")]
        self.assertEqual(records[0]["hash"], records[1]["hash"])
        self.assertEqual([record["kind"] for record in records], ["dirichlet", "file"])
        self.assertEqual(records[0]["samples"], 216)
        self.assert_same_checkpoint("first", "second", 2, ["model.safetensors"])

    def test_a_run_is_not_resumed_with_other_clients(self):
        words = [*data(240), "total_clients=12", "partition=file", "partition.path=clients.csv", "run.dir=run"]
        self.brim("federate", *data(240), "total_clients=12", "--export-partition", "clients.csv")
        faults = ",".join(f"step:2:begin:{n}" for n in range(1, 13))
        self.brim("federate", *words, status=NO_FIT, env={"BRIM_FAULT": faults})
        path = self.folder / "clients.csv"
        text = path.read_text()
        lines = text.splitlines()
        path.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
        hashed = json.loads(self.read("run", "partition.json"))["hash"]
        result = self.brim("federate", "--resume", "run", status=LOAD)
        self.assert_error(result, "clients have other samples than when 'run' began", hashed)
        path.write_text(text)
        self.brim("federate", "--resume", "run")

    # ---- bad input ----

    def test_a_file_without_a_partition_is_refused_with_its_place(self):
        header = "client,sample\n"
        for text, *parts in (
                ("sample,client\n", "line 1, column 1", "header line 'client,sample'"),
                (header + "0,1\nx,2\n", "line 3, column 1", "'x,2'", "number of a client"),
                (header + "0,1\n12,2\n", "line 3, column 1", "no client 12", "'total_clients' is 2"),
                ("client,sample,class\n0,1,2\n1,2,0\n1,2,0\n", "line 4, column 3", "sample 2 is also on line 3"),
                (header + "0,1\n1,2,0\n", "line 3, column 3", "'2,0' is not the number of a sample"),
                (header + "0,1\n1,2x\n", "line 3, column 3", "'2x' is not the number of a sample"),
                (header + "0,1\n1,\n", "line 3, column 3", "'' is not the number"),
                (header + "0,1\n1,240\n", "line 3, column 3", "no sample 240", "has 240"),
                (header + "0,1\n1,99999999999999999999\n", "line 3, column 3", "is not the number of a sample"),
                (header + "0,1\n1,2\n1,1\n", "line 4, column 3", "sample 1 is also on line 2"),
                (header + "1,1\n1,2\n", "line 3", "without a sample for client 0", "total_clients=1"),
                ("", "line 1, column 1", "header line 'client,sample' is missing"),
                (header, "line 2, column 1", "a first sample is missing")):
            with self.subTest(text):
                (self.folder / "bad.csv").write_text(text)
                result = self.brim("federate", *data(240), "total_clients=2", "partition=file",
                                   "partition.path=bad.csv", "run.dir=run", status=USAGE)
                self.assert_error(result, "bad.csv'", *parts)
                self.assertFalse((self.folder / "run").exists())
        self.assert_error(self.brim("federate", *data(240), "partition=file", "partition.path=none.csv", status=USAGE),
                          "none.csv")
        (self.folder / "bad.csv").write_text(header + "".join(f"{k % 2},{k}\n" for k in range(240)))
        result = self.brim("federate", *data(240), "total_clients=2", "partition=file", "partition.path=bad.csv",
                           "dataset.validation_fraction=0.1", status=USAGE)
        self.assert_error(result, "is not for training")

    @plain
    def test_conflicting_options_are_refused(self):
        for words, *parts in (
                (["partition=shards", "partition.sizes=lognormal"], "'partition.sizes' applies only to partition=iid"),
                (["partition=dirichlet", "partition.samples=5"], "'partition.samples' applies only to"),
                (["partition=iid", "partition.path=x.csv"], "'partition.path' applies only to partition=file"),
                (["partition=file"], "'partition.path' is empty"),
                (["partition=natural"], "'dataset.clients' is 0", "dataset=synthetic_leaf"),
                (["partition=classes", "partition.classes_per_client=5"], "partition.classes_per_client=4 at most"),
                (["partition=classes", "partition.classes_per_client=1", "total_clients=3"],
                 "1 of the 4 classes would have no client", "partition.classes_per_client=2 at least"),
                (["partition=dirichlet_each", "total_clients=241"], "partition.samples=N"),
                (["partition=dirichlet_each", "partition.samples=5", "partition.min_samples=6"],
                 "'partition.samples' is 5")):
            with self.subTest(words):
                self.assert_error(self.brim("federate", *data(240), "total_clients=12", *words, status=USAGE), *parts)

    def test_an_export_replaces_no_file_and_excludes_training_options(self):
        (self.folder / "out.csv").write_text("mine")
        words = ["federate", *data(240), "total_clients=12", "--export-partition", "out.csv"]
        self.assert_error(self.brim(*words, status=USAGE), "out.csv", "--force")
        self.assertEqual((self.folder / "out.csv").read_text(), "mine")
        self.assert_error(self.brim(*words, "--force", "-m", status=USAGE), "leave out -m")
        self.assert_error(self.brim("federate", *data(240), "--force", status=USAGE), "--export-partition FILE")
        self.assertEqual(self.brim(*words, "--force").out.count("\n"), 1)
        self.assertEqual({path.name for path in self.folder.iterdir()} - {"claims"}, {"out.csv"})


if __name__ == "__main__":
    main()
