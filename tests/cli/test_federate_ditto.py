"""Compares Ditto (Li et al., 2021, algorithm 1) with plain loops in double precision, over five rounds. The global
model has the bits of a federation without personal models."""

import random
import statistics

import states
import tensors
from drawn import ROUNDS, DrawnCase, zeros
from support import FAILED, USAGE, main
from test_federate import KINDS, MLP, STATE, float_of

DITTO = ["federate.personal=ditto", "federate.personal_lambda=0.5", "federate.personal_epochs=2"]


class Ditto(DrawnCase):
    def test_personal_models_are_those_of_plain_loops(self):
        """Personal models begin as the global model of the client's first round. FedProx does not pull them."""
        draw = random.Random(37)
        for number in range(6):
            name, pull, epochs = f"ditto {number}", draw.choice([0, draw.uniform(0.1, 2)]), draw.randint(1, 3)
            words, mu = [], 0
            if number % 2:
                mu = draw.uniform(0.1, 1)
                words = ["federate.local=fedprox", f"federate.mu={mu}"]
            words += ["federate.personal=ditto", f"federate.personal_lambda={pull}",
                      f"federate.personal_epochs={epochs}"]
            case, parts, model = self.draw(draw, name, *words, mu=mu)
            own, moved = {}, zeros(model)
            for step in range(ROUNDS):
                total, weight = zeros(model), sum(len(parts[c]) for c in case.chosen(step))
                for c in case.chosen(step):
                    own[c] = case.train(own.get(c, model), rows=parts[c], near=model, mu=pull, epochs=epochs)
                    total += (case.train(model, rows=parts[c]) - model) * (len(parts[c]) / weight)
                moved = moved * case.momentum + total
                model += moved * case.server_rate
                self.assert_close(self.model(name, step + 1), model, (name, step))
            kept = states.read(self.folder / name, self.checkpoint(name, ROUNDS), "d")
            self.assertEqual(kept.keys(), own.keys())
            for c, values in kept.items():
                self.assert_close(values, own[c], (name, c))

    def test_the_global_model_has_the_bits_of_one_without_personal_models(self):
        """Clients may also keep states for the global model. With dropout, both trainings have separate random
        numbers."""
        for name in ("mlp", "batch norm", "dirichlet", "fedprox", "kept norms", "scaffold", "feddyn", "qfedavg",
                     "quantized"):
            words = [word for word in KINDS[name] if not word.startswith("federate.local_parameters")]
            with self.subTest(name):
                self.federate(f"{name} alone", *words)
                self.federate(f"{name} beside", *words, *DITTO)
                models = [(self.checkpoint(f"{name} {run}", 4) / "model.safetensors").read_bytes()
                          for run in ("alone", "beside")]
                self.assertEqual(*models)
                for before, after in zip(self.records(f"{name} alone"), self.records(f"{name} beside"), strict=True):
                    for key in "loss", "accuracy", "samples":
                        self.assertEqual(before.get(key), after.get(key))

    def test_updates_in_the_backward_pass_change_no_bit(self):
        words = [*KINDS["kept norms"], *DITTO, "optimizer=sgd"]
        self.federate("step", *words)
        self.federate("backward", *words, "optimizer.update=fused_backward")
        self.assert_same_checkpoint("step", "backward", 4, STATE)
        both = [states.read(self.folder / run, self.checkpoint(run, 4), "f") for run in ("step", "backward")]
        self.assertEqual(*both)

    def write_classes(self, classes, features, draw):
        """Writes a dataset=csv of classes around different means. Returns the rows; row k has class k % classes."""
        rows = [[float_of(draw.gauss(k % classes == f, 1.2)) for f in range(features)] for k in range(150)]
        folder = self.folder / "data"
        folder.mkdir()
        for file in "train.csv", "test.csv":
            (folder / file).write_text(",".join([*(f"x{f}" for f in range(features)), "y"]) + "\n" + "".join(
                ",".join([*map(repr, row), f"class {k % classes}"]) + "\n" for k, row in enumerate(rows)))
        return rows

    @staticmethod
    def accuracy(model, samples, rows, classes):
        """Returns the accuracy of a linear model, given as its weights followed by its biases."""
        features, right = len(rows[0]), 0
        for i in samples:
            logits = [sum(model[k * features + f] * rows[i][f] for f in range(features)) +
                      model[classes * features + k] for k in range(classes)]
            right += logits.index(max(logits)) == i % classes
        return right / len(samples)

    def test_records_have_the_accuracy_of_personal_models_by_round(self):
        """The accuracy is that of the clients that have trained, each measured during the last training of its model.
        With one pass and one batch that is the model before the round: the global model for a new client, and the model
        of its last round for others."""
        rows = self.write_classes(3, 4, random.Random(5))
        words = ["dataset=csv", f"dataset.path={self.folder / 'data'}", "dataset.label=y", "dataset.standardise=false",
                 "model=mlp", "model.hidden=[]", "backend=reference", "total_clients=4", "clients_per_round=2",
                 "method=round_robin", "partition=dirichlet", "partition.alpha=0.5", "training.batch_size=150",
                 "optimizer.lr=0.5", "federate.personal=ditto", "federate.checkpoint_every_rounds=1"]
        known, before = {}, []
        for step in range(6):
            run = f"run {step}"
            self.federate(run, *words, f"rounds={step}")
            kept = states.read(self.folder / run, self.checkpoint(run, step), "d") if step else {}
            before.append((kept, self.model(run, step)))
        records = [record for record in self.records("run 5") if record["split"] == "train"]
        lines = self.records("run 5", "participants.jsonl")
        self.assertEqual(len(records), 5)
        parts = self.partition("run 5")
        for (kept, shared), record, line in zip(before, records, lines):
            for client in line["client"]:
                known[client] = self.accuracy(kept.get(client, shared), parts[client], rows, 3)
            self.assertAlmostEqual(record["personal_accuracy"], statistics.fmean(known.values()), places=6)
        self.assertEqual(len(known), 4)
        self.assertIn("own models", self.read("run 5", "report.html"))

    def test_clients_accuracy_is_that_of_their_personal_models(self):
        """A client that has not trained counts with the global model. Malicious clients train on wrong labels, but
        count with the true ones."""
        classes, features = 3, 4
        rows = self.write_classes(classes, features, random.Random(3))
        folder = self.folder / "data"
        words = ["dataset=csv", f"dataset.path={folder}", "dataset.label=y", "dataset.standardise=false", "model=mlp",
                 "model.hidden=[]", "backend=reference", "total_clients=9", "clients_per_round=2", "rounds=3",
                 "method=round_robin", "partition=dirichlet", "partition.alpha=0.5", "training.batch_size=8",
                 "optimizer.lr=0.3", "federate.local_epochs=2", "federate.personal=ditto", "attack.kind=label_flip",
                 "attack.clients=[1]"]
        self.federate("run", *words)
        values, _ = tensors.read(self.checkpoint("run", 3) / "model.safetensors")
        self.assertEqual(sorted(shape for _, shape, _ in values.values()), sorted([[classes], [classes, features]]))
        shared = [number for kind in ("weight", "bias") for name, (_, _, numbers) in values.items()
                  if name.endswith(kind) for number in numbers]
        kept = states.read(self.folder / "run", self.checkpoint("run", 3), "d")
        self.assertEqual(len(kept), 6)
        accuracy = []
        for client, samples in sorted(self.partition("run").items()):
            accuracy.append(self.accuracy(kept.get(client, shared), samples, rows, classes))
        summary = self.summary("run")
        self.assertAlmostEqual(summary["client_accuracy_mean"], statistics.fmean(accuracy), places=12)
        self.assertAlmostEqual(summary["client_accuracy_variance"], statistics.pvariance(accuracy), places=12)
        self.assertIn("by its personal model: mean", self.brim("federate", "run.dir=again", *words).out)

    def test_personal_models_are_states_that_the_plan_counts(self):
        plans = [self.brim("--config-name", "federate", "plan", "--json", *MLP, *words).json
                 for words in ([], DITTO, [*DITTO, "federate.compression=sign", "federate.error_feedback=true"])]
        each = 4 * (64 * 9 + 9 + 9 * 4 + 4)
        self.assertEqual([plan["client_kept_bytes"] for plan in plans], [0, each, 2 * each])
        self.assertGreater(plans[1]["states_bytes"], 12 * each)

    def test_what_ditto_cannot_do_is_refused(self):
        for more, parts in ((["federate.personal=ditto", "federate.local_parameters=fc2.*"],
                             ["'federate.local_parameters' cannot be combined with federate.personal=ditto"]),
                            (["federate.personal_lambda=1"], ["has no effect with federate.personal=none", "argument"]),
                            (["federate.personal_epochs=2"], ["has no effect with federate.personal=none"]),
                            (["federate.personal=dito"], ["none|ditto, got dito"])):
            self.assert_error(self.federate("run", *MLP, *more, status=USAGE), *parts)
            self.assertFalse((self.folder / "run").exists())

    def test_a_client_whose_personal_model_is_not_finite_has_diverged(self):
        result = self.federate("run", *MLP, *DITTO, "federate.personal_lambda=1e38", "federate.personal_epochs=9",
                               status=FAILED)
        self.assert_error(result, "have diverged", "its personal model's parameter", "lower federate.personal_lambda")


if __name__ == "__main__":
    main()
