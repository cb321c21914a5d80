"""Draws federations of linear regression, and trains them by plain loops in double precision."""

import math

from federations import FederationCase
from test_federate import float_of

ROUNDS = 5


class Vector(tuple):
    """A vector: + and - work element by element, * scales."""

    def __add__(self, other):
        return Vector(a + b for a, b in zip(self, other, strict=True))

    def __sub__(self, other):
        return Vector(a - b for a, b in zip(self, other, strict=True))

    def __mul__(self, factor):
        return Vector(a * factor for a in self)

    def dot(self, other):
        return sum(a * b for a, b in zip(self, other, strict=True))


def zeros(like):
    return Vector(0.0 for _ in like)


class Drawn:
    """A drawn federation of linear regression in which each client's samples are one batch."""

    def __init__(self, draw, folder, write_data, **fixed):
        self.rows, features = draw.randint(23, 60), draw.randint(1, 4)
        self.clients, self.selected, self.epochs = draw.randint(3, 7), draw.randint(1, 3), draw.randint(1, 3)
        self.rate, self.server_rate = draw.uniform(0.01, 0.1), draw.uniform(0.5, 1)
        self.momentum = draw.choice([0, 0.9])
        self.clip, self.decay, self.mu = draw.choice([0, 0.5]), draw.choice([0, 0.3]), 0.0
        vars(self).update(fixed)
        data = [[draw.uniform(-1, 1) for _ in range(features + 1)] for _ in range(self.rows)]
        write_data(folder, data)
        self.data = [[float_of(value) for value in row] for row in data]
        self.words = ["dataset=csv", f"dataset.path={folder}", "dataset.targets=[y]", "loss=mse",
                      "dataset.standardise=false", "model=mlp", "model.hidden=[]", "backend=reference",
                      f"total_clients={self.clients}", f"clients_per_round={self.selected}", "method=round_robin",
                      f"training.batch_size={self.rows}", f"optimizer.lr={self.rate}",
                      f"optimizer.weight_decay={self.decay}", f"training.clip_norm={self.clip}",
                      f"federate.local_epochs={self.epochs}", f"server_optimizer.lr={self.server_rate}",
                      f"server_optimizer.momentum={self.momentum}", "federate.checkpoint_every_rounds=1",
                      "training.keep_checkpoints=9", "observe.report=false"]

    def chosen(self, step):
        return [(step * self.selected + k) % self.clients for k in range(self.selected)]

    def gradient(self, model, rows):
        """Returns the gradient of the mean squared error; the bias is the last value."""
        total = zeros(model)
        for i in rows:
            x = Vector([*self.data[i][:-1], 1.0])
            total += x * (2 * (x.dot(model) - self.data[i][-1]) / len(rows))
        return total

    def train(self, start, pulled=None, control=None, rows=(), rate=None, near=None, mu=None, epochs=None):
        """Trains a client's epochs from `start`. mu pulls the first `pulled` values (default: all) towards those of
        `near` (default: `start`), and `control` is added to each gradient."""
        w, pulled, near = start, len(start) if pulled is None else pulled, near or start
        for _ in range(epochs or self.epochs):
            pull = Vector([*(w - near)[:pulled], *zeros(w)[pulled:]]) * (self.mu if mu is None else mu)
            g = self.gradient(w, rows) + pull
            g += control or zeros(w)
            factor = min(1, self.clip / (math.sqrt(g.dot(g)) + 1e-6)) if self.clip else 1
            w -= (g * factor + w * self.decay) * (self.rate if rate is None else rate)
        return w


class DrawnCase(FederationCase):
    def model(self, run, step):
        return Vector(super().model(run, step))

    def draw(self, draw, name, *words, **fixed):
        """Runs a drawn federation; returns it, each client's samples and the first model."""
        case = Drawn(draw, self.folder / f"data of {name}", self.write_data, **fixed)
        self.federate(f"{name} start", *case.words, *words, "rounds=0")
        self.federate(name, *case.words, *words, f"rounds={ROUNDS}")
        return case, self.partition(name), self.model(f"{name} start", 0)

    def assert_close(self, got, wanted, what):
        for a, b in zip(got, wanted, strict=True):
            self.assertTrue(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9), (what, a, b))
