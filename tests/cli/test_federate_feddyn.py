"""Compares FedDyn (Acar et al., 2021, algorithm 1) with plain loops in double precision, over five rounds."""

import collections
import random

import states
import tensors
from drawn import ROUNDS, DrawnCase, zeros
from support import FAILED, USAGE, main
from test_federate import SMALL

MODEL = [*SMALL, "model=mlp", "model.hidden=[9]"]
FEDDYN = ["federate.local=feddyn", "federate.alpha=0.1"]


class FedDyn(DrawnCase):
    def test_feddyn_is_that_of_plain_loops(self):
        """Compares with the paper's formulas. In odd cases clients count alike, in others they are weighted by
        samples."""
        draw = random.Random(29)
        for number in range(6):
            name, alpha = f"feddyn {number}", draw.uniform(0.05, 1)
            uniform = number % 2 == 1
            words = ["federate.local=feddyn", f"federate.alpha={alpha}",
                     f"aggregator={'uniform' if uniform else 'fedavg'}", "optimizer=sgd", "optimizer.momentum=0"]
            case, parts, model = self.draw(draw, name, *words, mu=alpha, server_rate=1, momentum=0)
            h, own = zeros(model), collections.defaultdict(lambda: zeros(model))
            for step in range(ROUNDS):
                total, moved = zeros(model), zeros(model)
                chosen = case.chosen(step)
                weight = len(chosen) if uniform else sum(len(parts[c]) for c in chosen)
                for c in chosen:
                    trained = case.train(model, control=own[c] * -1, rows=parts[c])
                    own[c] -= (trained - model) * alpha
                    moved += trained - model
                    total += trained * ((1 if uniform else len(parts[c])) / weight)
                h -= moved * (alpha / case.clients)
                model = total - h * (1 / alpha)
                self.assert_close(self.model(name, step + 1), model, (name, step))
            got, _ = tensors.read(self.checkpoint(name, ROUNDS) / "optimizer.safetensors")
            got = sorted((key.endswith("bias.control"), list(numbers)) for key, (_, _, numbers) in got.items()
                         if key.endswith(".control"))
            self.assert_close(sum((numbers for _, numbers in got), []), h, name)
            kept = states.read(self.folder / name, self.checkpoint(name, ROUNDS), "d")
            self.assertEqual(kept.keys(), own.keys())
            for c, values in kept.items():
                self.assert_close(sorted(values), sorted(own[c]), (name, c))

    def test_clients_may_have_any_optimizer(self):
        """In the first round clients train as with FedProx, whose mu is alpha; all controls are 0."""
        words = [*MODEL, "optimizer=adamw", "aggregator=uniform", "rounds=1", "clients_per_round=12"]
        self.federate("prox", *words, "federate.local=fedprox", "federate.mu=0.1")
        self.federate("dyn", *words, *FEDDYN)
        self.federate("start", *words, "rounds=0")
        prox, dyn, start = (tensors.read(self.checkpoint(run, step) / "model.safetensors")[0]
                            for run, step in (("prox", 1), ("dyn", 1), ("start", 0)))
        for name, (_, _, before) in start.items():
            for x, w, got in zip(before, prox[name][2], dyn[name][2], strict=True):
                # All updates arrived, so h is -alpha times their mean, which moves the model a second time.
                self.assertAlmostEqual(got, w + (w - x), places=5)

    def test_clients_send_no_controls(self):
        words = [*MODEL, "world.simulate=true", "observe.log_every_steps=1"]
        self.federate("fedavg", *words)
        self.federate("feddyn", *words, *FEDDYN)
        for before, after in zip(self.records("fedavg"), self.records("feddyn"), strict=True):
            if before["split"] == "train":
                self.assertEqual(after["bytes"], before["bytes"])
        shown = self.brim("--config-name", "federate", "plan", "--json", *words, *FEDDYN).json
        self.assertEqual(shown["client_kept_bytes"], 4 * (64 * 9 + 9 + 9 * 4 + 4))

    def test_what_feddyn_cannot_do_is_refused(self):
        for more, parts in ((["server_optimizer=adam"], ["'federate.local'", "not server_optimizer=adam", "argument"]),
                            (["server_optimizer.lr=0.5"], ["server_optimizer.lr=1", "with these values"]),
                            (["server_optimizer.momentum=0.9"], ["momentum=0"]),
                            (["federate.mu=1"], ["'federate.mu' has no effect with federate.local=feddyn", "fedprox"]),
                            (["federate.compression=sign"], ["cannot be combined with federate.compression"]),
                            (["aggregator=median"], ["but aggregator=median compares", "aggregator=uniform"]),
                            (["aggregator=qfedavg"], ["but aggregator=qfedavg rescales", "aggregator=uniform"]),
                            (["federate.alpha=0"], ["federate.alpha"]),
                            (["privacy.clip_norm=1"],
                             ["cannot be combined with privacy.clip_norm", "adds up updates"])):
            result = self.federate("run", *MODEL, *FEDDYN, *more, status=USAGE)
            self.assert_error(result, *parts)
            self.assertFalse((self.folder / "run").exists())
        self.assert_error(self.federate("run", *MODEL, "federate.alpha=1", status=USAGE),
                          "'federate.alpha' has no effect with federate.local=fedavg", "partition.alpha")

    def test_a_client_that_would_move_its_control_too_far_is_left_out(self):
        words = [*MODEL, "optimizer=sgd", "optimizer.momentum=0", "optimizer.lr=1e-6", "optimizer.weight_decay=1e5"]
        result = self.federate("run", *words, "federate.local=feddyn", "federate.alpha=1e5", status=FAILED)
        self.assert_error(result, "have diverged", "update times federate.alpha", "lower federate.alpha")


if __name__ == "__main__":
    main()
