"""Compares each algorithm with client states with plain loops in double precision, over five rounds."""

import collections
import random

import states
import tensors
from drawn import ROUNDS, DrawnCase, Vector, zeros
from support import FAILED, USAGE, main
from test_federate import SMALL, STATE, float_of

SGD = ["optimizer=sgd", "optimizer.momentum=0"]


class State(DrawnCase):
    # ---- parameters that stay with the client ----

    def test_local_parameters_are_those_of_plain_loops(self):
        """The bias stays with each client; FedProx does not pull it."""
        draw = random.Random(17)
        for number in range(4):
            name, mu = f"local {number}", draw.choice([0, 0.5])
            case, parts, model = self.draw(draw, name, "federate.local_parameters=*.bias", "federate.local=fedprox",
                                           f"federate.mu={mu}", mu=mu)
            own, moved, first = {}, zeros(model), model[-1]
            for step in range(ROUNDS):
                total, weight = zeros(model), sum(len(parts[c]) for c in case.chosen(step))
                for c in case.chosen(step):
                    start = Vector([*model[:-1], own.get(c, first)])
                    trained = case.train(start, pulled=len(model) - 1, rows=parts[c])
                    own[c] = trained[-1]
                    total += (trained - start) * (len(parts[c]) / weight)
                moved = moved * case.momentum + total
                model = Vector([*(model + moved * case.server_rate)[:-1], first])
            self.assertEqual(self.model(name, ROUNDS)[-1], first)
            self.assert_close(self.model(name, ROUNDS), model, name)
            kept = states.read(self.folder / name, self.checkpoint(name, ROUNDS), "d")
            self.assertEqual(kept.keys(), own.keys())
            for c, values in kept.items():
                self.assert_close(values, [own[c]], (name, c))

    def test_local_parameters_are_not_sent(self):
        """The simulated world counts the bytes of the other parameters, both ways, for each client that arrives."""
        words = [*SMALL, "model=mlp", "model.hidden=[9]", "world.simulate=true", "observe.log_every_steps=1"]
        self.federate("all", *words)
        self.federate("some", *words, "federate.local_parameters=fc2.*")
        of_layer = 4 * (9 * 4 + 4)
        for before, after in zip(self.records("all"), self.records("some"), strict=True):
            if before["split"] == "train":
                self.assertEqual(before["bytes"] - after["bytes"], 5 * 2 * of_layer)
        shown = self.brim("--config-name", "federate", "plan", "--json", *words,
                          "federate.local_parameters=fc2.*").json
        self.assertEqual(shown["client_kept_bytes"], of_layer)

    def test_local_parameters_have_the_accuracy_of_each_clients_last_training(self):
        words = [*SMALL, "model=mlp", "model.hidden=[9]", "federate.local_parameters=fc2.*", "clients_per_round=1",
                 "rounds=9", "observe.log_every_steps=1", "method=random"]
        self.federate("run", *words)
        known = {}
        trained = [record for record in self.records("run") if record["split"] == "train"]
        for record, line in zip(trained, self.records("run", "participants.jsonl"), strict=True):
            known[line["client"][0]] = float_of(record["accuracy"])
            self.assertAlmostEqual(record["personal_accuracy"], sum(known.values()) / len(known), places=9)
        self.assertAlmostEqual(self.summary("run")["client_accuracy_mean"], sum(known.values()) / len(known), places=9)

    def test_all_parameters_of_a_norm_may_be_local(self):
        """FedBN keeps the norm's running statistics local too, so those of the global model never change."""
        words = [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch"]
        self.federate("run", *words, "federate.local_parameters='norm*'")
        self.federate("start", *words, "rounds=0")
        ends = [tensors.read(self.checkpoint(*where) / "model.safetensors")[0] for where in (("start", 0), ("run", 4))]
        same = {name for name in ends[0] if ends[0][name] == ends[1][name]}
        self.assertEqual(same, {name for name in ends[0] if name.startswith("norm")})

    def test_patterns_that_name_no_parameter_are_refused_with_the_nearest(self):
        words = [*SMALL, "model=mlp", "model.hidden=[9]"]
        for pattern, parts in (("fc3.*", ["'fc3.*' matches no parameter that model=mlp trains", "argument", "'fc"]),
                               ("*", ["leaves no parameter of model=mlp for the global model"]),
                               ("fc1.* fcc2.weight", ["'fcc2.weight' matches no", "nearest: 'fc2.weight'"])):
            result = self.federate("run", *words, f"federate.local_parameters='{pattern}'", status=USAGE)
            self.assert_error(result, *parts)
            self.assertFalse((self.folder / "run").exists())

    def test_without_local_parameters_nothing_changes(self):
        words = [*SMALL, "model=mlp", "model.hidden=[9]"]
        self.federate("plain", *words)
        self.federate("none", *words, "federate.local_parameters=''")
        self.assert_same_checkpoint("plain", "none", 4, STATE)

    # ---- SCAFFOLD ----

    def test_scaffold_is_that_of_plain_loops(self):
        """Option II of Karimireddy et al. (2020), with FedProx in half of the cases. Limits of norms and weight decay
        act on corrected gradients."""
        draw = random.Random(23)
        for number in range(6):
            name, mu = f"scaffold {number}", draw.uniform(0.1, 1) if number % 2 else 0
            words = ["federate.local=scaffold"]
            if mu:
                words = ["federate.local=scaffold_fedprox", f"federate.mu={mu}"]
            case, parts, model = self.draw(draw, name, *words, mu=mu)
            control, own = zeros(model), collections.defaultdict(lambda: zeros(model))
            moved = zeros(model)
            for step in range(ROUNDS):
                total, change = zeros(model), zeros(model)
                weight = sum(len(parts[c]) for c in case.chosen(step))
                for c in case.chosen(step):
                    trained = case.train(model, control=control - own[c], rows=parts[c])
                    after = own[c] - control + (model - trained) * (1 / (case.epochs * case.rate))
                    change += after - own[c]
                    own[c] = after
                    total += (trained - model) * (len(parts[c]) / weight)
                control += change * (1 / case.clients)
                moved = moved * case.momentum + total
                model += moved * case.server_rate
                self.assert_close(self.model(name, step + 1), model, (name, step))
            got, _ = tensors.read(self.checkpoint(name, ROUNDS) / "optimizer.safetensors")
            got = sorted((key.endswith("bias.control"), list(numbers)) for key, (_, _, numbers) in got.items()
                         if key.endswith(".control"))
            self.assert_close(sum((numbers for _, numbers in got), []), control, name)
            kept = states.read(self.folder / name, self.checkpoint(name, ROUNDS), "d")
            self.assertEqual(kept.keys(), own.keys())
            for c, values in kept.items():
                self.assert_close(sorted(values), sorted(own[c]), (name, c))

    def test_scaffold_begins_as_fedavg(self):
        """In the first round all controls are 0, so the round has the bits of FedAvg; later rounds differ."""
        words = [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "loss.class_weights=[1,2,3,4]",
                 "partition=dirichlet", "partition.alpha=0.3", "training.batch_size=8", "optimizer=sgd",
                 "optimizer.momentum=0", "federate.checkpoint_every_rounds=1", "training.keep_checkpoints=9"]
        self.federate("fedavg", *words)
        self.federate("scaffold", *words, "federate.local=scaffold")
        self.federate("backward", *words, "federate.local=scaffold", "optimizer.update=fused_backward")
        models = [[(self.checkpoint(run, step) / "model.safetensors").read_bytes() for step in range(1, 5)]
                  for run in ("fedavg", "scaffold", "backward")]
        self.assertEqual([a == b for a, b in zip(models[0], models[1])], [True, False, False, False])
        self.assertEqual(models[1], models[2])

    def test_class_weights_do_not_scale_the_correction(self):
        """Equal weights of all classes change the scale of the sums of gradients, but not the mean gradients."""
        words = [*SMALL, "model=mlp", "model.hidden=[9]", "backend=reference", "federate.local=scaffold", *SGD,
                 "partition=dirichlet", "partition.alpha=0.3", "training.batch_size=8", "federate.local_epochs=3"]
        self.federate("plain", *words)
        self.federate("weighted", *words, "loss.class_weights=[3,3,3,3]")
        plain, weighted = (tensors.read(self.checkpoint(run, 4) / "model.safetensors")[0]
                           for run in ("plain", "weighted"))
        for name in plain:
            self.assert_close(weighted[name][2], plain[name][2], name)

    def test_scaffold_sends_twice_as_much(self):
        words = [*SMALL, "model=mlp", "model.hidden=[9]", "world.simulate=true", "observe.log_every_steps=1",
                 *SGD]
        self.federate("fedavg", *words)
        self.federate("scaffold", *words, "federate.local=scaffold")
        for before, after in zip(self.records("fedavg"), self.records("scaffold"), strict=True):
            if before["split"] == "train":
                self.assertEqual(after["bytes"], 2 * before["bytes"])
        shown = self.brim("--config-name", "federate", "plan", "--json", *words,
                          "federate.local=scaffold").json
        self.assertEqual(shown["client_kept_bytes"], 4 * (64 * 9 + 9 + 9 * 4 + 4))

    def test_local_parameters_have_no_control(self):
        words = [*SMALL, "model=mlp", "model.hidden=[9]", *SGD,
                 "federate.local=scaffold", "federate.local_parameters=fc2.*"]
        self.federate("run", *words)
        kept, _ = tensors.read(self.checkpoint("run", 4) / "optimizer.safetensors")
        self.assertEqual({name for name in kept if name.endswith(".control")},
                         {"fc1.weight.control", "fc1.bias.control"})

    def test_what_scaffold_cannot_do_is_refused(self):
        words = [*SMALL, "model=mlp", "model.hidden=[9]", "federate.local=scaffold"]
        for more, parts in ((["optimizer=adamw"], ["'federate.local'", "optimizer=sgd", "not optimizer=adamw"]),
                            (["optimizer=sgd", "optimizer.momentum=0.9"], ["optimizer.momentum=0", "argument"]),
                            ([*SGD, "federate.mu=1"],
                             ["'federate.mu' has no effect with federate.local=scaffold", "scaffold_fedprox"]),
                            ([*SGD, "federate.compression=sign"],
                             ["cannot be combined with federate.compression", "argument"]),
                            ([*SGD, "aggregator=median"], ["but aggregator=median compares", "argument"]),
                            ([*SGD, "privacy.clip_norm=1"],
                             ["cannot be combined with privacy.clip_norm", "its control variates"])):
            result = self.federate("run", *words, *more, status=USAGE)
            self.assert_error(result, *parts)
            self.assertFalse((self.folder / "run").exists())

    def test_a_client_with_huge_gradients_is_left_out(self):
        """The client's mean gradient exceeds the limit of exact sums, although its weights have changed little."""
        words = [*SMALL, "model=mlp", "model.hidden=[9]", *SGD,
                 "optimizer.lr=1e-6", "optimizer.weight_decay=1e5", "federate.local=scaffold"]
        result = self.federate("run", *words, status=FAILED)
        self.assert_error(result, "have diverged", "mean gradient")


if __name__ == "__main__":
    main()
