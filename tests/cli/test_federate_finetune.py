"""Compares evaluation after local steps (federate.finetune_epochs) with plain loops in double precision. The figures
are the same for any number of parallel clients, ranks and processes."""

import math
import random
import statistics

import states
from ranks import Ranks
from support import NO_FIT, USAGE, main, plain
from test_federate import KINDS, MLP, FederationCase, attempts, float_of

CLASSES, FEATURES = 3, 4


def logits_of(model, row):
    return [sum(model[k * FEATURES + f] * row[f] for f in range(FEATURES)) + model[CLASSES * FEATURES + k]
            for k in range(CLASSES)]


def train(model, rows, labels, rate, epochs):
    """Trains a linear model by plain gradient descent on the mean cross-entropy."""
    model = list(model)
    for _ in range(epochs):
        gradient = [0.0] * len(model)
        for row, label in zip(rows, labels, strict=True):
            logits = logits_of(model, row)
            total = math.fsum(math.exp(x - max(logits)) for x in logits)
            for k in range(CLASSES):
                slope = (math.exp(logits[k] - max(logits)) / total - (k == label)) / len(rows)
                for f in range(FEATURES):
                    gradient[k * FEATURES + f] += slope * row[f]
                gradient[CLASSES * FEATURES + k] += slope
        model = [w - rate * g for w, g in zip(model, gradient, strict=True)]
    return model


class FineTuned(Ranks, FederationCase):
    def figures(self, run):
        return [self.summary(run)[f"finetuned_accuracy_{key}"] for key in ("mean", "variance", "gini")]

    @plain
    def test_it_is_that_of_plain_loops(self):
        draw = random.Random(11)
        for number in range(5):
            name, rate, epochs = f"drawn {number}", draw.uniform(0.2, 1), draw.randint(1, 4)
            rows = [[float_of(draw.gauss(k % CLASSES == f, 1.3)) for f in range(FEATURES)] for k in range(120)]
            folder = self.folder / f"data {number}"
            folder.mkdir()
            for file in "train.csv", "test.csv":
                (folder / file).write_text(",".join([*(f"x{f}" for f in range(FEATURES)), "y"]) + "\n" + "".join(
                    ",".join([*map(repr, row), f"class {k % CLASSES}"]) + "\n" for k, row in enumerate(rows)))
            words = ["dataset=csv", f"dataset.path={folder}", "dataset.label=y", "dataset.standardise=false",
                     "model=mlp", "model.hidden=[]", "backend=reference", "total_clients=6", "clients_per_round=2",
                     "rounds=2", "partition=dirichlet", "partition.alpha=0.4", "training.batch_size=120",
                     f"optimizer.lr={rate}", "optimizer.momentum=0", f"federate.finetune_epochs={epochs}"]
            local = ["federate.local_parameters=*.bias"] if number == 4 else []
            result = self.federate(name, *words, *local, *(["federate.local=fedprox", "federate.mu=9"] * (number % 2)))
            model = self.model(name, 2)
            own = states.read(self.folder / name, self.checkpoint(name, 2), "d") if local else {}
            accuracies = []
            for client, samples in sorted(self.partition(name).items()):
                start = [*model[:CLASSES * FEATURES], *own.get(client, model[CLASSES * FEATURES:])]
                labels = [i % CLASSES for i in samples]
                trained = train(start, [rows[i] for i in samples], labels, rate, epochs)
                right = [logits_of(trained, rows[i]) for i in samples]
                accuracies.append(statistics.fmean(x.index(max(x)) == y for x, y in zip(right, labels, strict=True)))
            mean, variance, _ = self.figures(name)
            self.assertAlmostEqual(mean, statistics.fmean(accuracies), places=12)
            self.assertAlmostEqual(variance, statistics.pvariance(accuracies), places=12)
            self.assertIn(f"after fine-tuning on them: mean {100 * mean:.2f} %", result.out)

    @plain
    def test_it_changes_nothing_else_and_depends_on_nothing_else(self):
        for kind in "batch norm", "ditto", "scaffold", "edge rounds", "async":
            words = [*KINDS[kind], "federate.finetune_epochs=2"]
            self.federate(f"{kind} without", *KINDS[kind])
            self.federate(f"{kind} one", *words, "parallel_clients=1")
            self.federate(f"{kind} two", *words, "parallel_clients=2", "backend.threads=2")
            self.federate(f"{kind} cut", *words, status=NO_FIT, env={"BRIM_FAULT": attempts(4, 12)})
            self.brim("federate", "--resume", f"{kind} cut")
            process = self.start_ranks(2, "federate", f"run.dir={kind} ranks", *words)
            self.assertEqual(process.wait(), 0, process.communicate())
            self.assert_same_checkpoint(f"{kind} without", f"{kind} one", 4, ["model.safetensors"])
            for other in "two", "cut", "ranks":
                self.assertEqual(self.figures(f"{kind} one"), self.figures(f"{kind} {other}"), (kind, other))

    def test_clients_in_processes_of_their_own_have_the_same(self):
        words = [*MLP, "training.batch_size=8", "total_clients=3", "clients_per_round=2", "federate.finetune_epochs=1"]
        self.federate("simulated", *words)
        self.federate("apart", *words, "federate.mode=processes", "backend.threads=1")
        self.assertEqual(self.figures("simulated"), self.figures("apart"))

    def test_where_it_has_no_effect_it_is_refused(self):
        result = self.federate("run", *MLP, "federate.finetune_epochs=1", "federate.train=false", status=USAGE)
        self.assert_error(result, "'federate.finetune_epochs' has no effect", "federate.train=false")
        self.write_data(self.folder / "data", [[k / 9, k % 4] for k in range(20)])
        self.assert_error(self.federate("run", "dataset=csv", f"dataset.path={self.folder / 'data'}",
                                        "dataset.targets=[y]", "loss=mse", "model=mlp", "total_clients=2",
                                        "clients_per_round=1", "federate.finetune_epochs=1", status=USAGE),
                          "federate.finetune_epochs", "classes")


if __name__ == "__main__":
    main()
