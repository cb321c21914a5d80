"""Shared by the peers of federate.py: brim's clients, initial weights, and its order of samples and clients.

    federate_peer.py JOB

Writes the files that all peers of a job read: the training images, normalised once and mapped by every process, and
the order of the samples for each client of each round, equal to brim's. JOB is JSON written by federate.py. A peer
writes its final weights to job["weights"] and prints one line of JSON: seconds a round without the first `warm` rounds,
and the final test loss."""

import csv
import functools
import json
import pathlib
import struct
import sys

import torch
from torch import nn
from torch.nn import functional

from torch_cnn import MEAN, STD, read_split

MASK = 0xFFFFFFFF
SHUFFLE, CLIENT = 2, 10  # random streams, and the network's rounds: core/include/brim/random.h, permutation.c
ROUNDS = 8


class FedAvgCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
        self.fc1, self.fc2 = nn.Linear(3136, 512), nn.Linear(512, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


class Mlp(nn.Module):
    """A multilayer perceptron; without hidden layers it is a logistic regression."""

    def __init__(self, hidden=()):
        super().__init__()
        widths = [784, *hidden, 10]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        return self.layers[-1](x)


# ---- brim's order of samples ----

def philox(counter, key):
    """Returns four random numbers for each counter, as int64 tensors that hold 32 bits each."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # the products may overflow, but their low 64 bits are right
        c0, c1, c2, c3 = (p1 >> 32 & MASK) ^ c1 ^ k0, p1 & MASK, (p0 >> 32 & MASK) ^ c3 ^ k1, p0 & MASK
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return c0, c1, c2, c3


def random4(seed, use, stream, low, high, block):
    return philox((block, low, high, torch.full_like(low, use << 24 | stream)), (seed & MASK, seed >> 32))


def permutations(seed, low, high, count):
    """Returns [items, count]: the images of the numbers under a Feistel network, which is applied again until they are
    below count."""
    half = 0
    while 1 << 2 * half < count:
        half += 1
    low, high = low[:, None], high[:, None]
    at = torch.arange(count).repeat(len(low), 1)
    outside = torch.ones_like(at, dtype=torch.bool)
    while outside.any():
        left, right = at >> half, at & (1 << half) - 1
        for turn in range(ROUNDS):
            number = random4(seed, SHUFFLE, turn, low.expand_as(at), high.expand_as(at), right)[0]
            left, right = right, left ^ number & (1 << half) - 1
        at = torch.where(outside, left << half | right, at)
        outside = at >= count
    return at


def make_orders(job, clients):
    """Returns the samples that each client of each round trains on, epoch after epoch, as in brim."""
    rounds, cohort, epochs = job["warm"] + job["rounds"], job["cohort"], job["epochs"]
    turns = [(step * cohort + place) % len(clients) for step in range(rounds) for place in range(cohort)]
    order = [None] * len(turns)
    for count in {len(own) for own in clients.values()}:
        here = [i for i, client in enumerate(turns) if len(clients[client]) == count]
        if not here:
            continue
        of = torch.tensor([turns[i] for i in here]).repeat_interleave(epochs)
        epoch = torch.tensor([i // cohort * epochs + e for i in here for e in range(epochs)])
        high, low, _, _ = random4(job["seed"], CLIENT, 1, of, torch.zeros_like(of), epoch)
        places = permutations(job["seed"], low, high, count).reshape(len(here), epochs, count)
        for i, place in zip(here, places):
            order[i] = torch.tensor(clients[turns[i]])[place]
    return order


# ---- a job ----

def read_clients(start):
    clients = {}
    with open(pathlib.Path(start) / "partition.csv", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            clients.setdefault(int(row["client"]), []).append(int(row["sample"]))
    return clients


def read_weights(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return [torch.frombuffer(bytearray(data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]]),
                             dtype=torch.float32).reshape(e["shape"]) for e in header.values()]


def make_files(job):
    images, labels = read_split(pathlib.Path(job["data"]), "train")
    path = pathlib.Path(job["images"])
    if not path.exists():
        values = (images.float() / 255 - MEAN) / STD
        torch.from_file(str(path), shared=True, size=values.numel(), dtype=torch.float32).copy_(values.flatten())
    torch.save({"order": make_orders(job, read_clients(job["start"])), "labels": labels}, job["order"])


class Job:
    """A peer's settings and data."""

    def __init__(self, path):
        self.settings = json.loads(pathlib.Path(path).read_text())
        files = torch.load(self["order"])
        self.order, self.labels = files["order"], files["labels"]
        self.images = torch.from_file(self["images"], shared=True, size=len(self.labels) * 784, dtype=torch.float32)
        self.images = self.images.reshape(-1, 1, 28, 28)
        self.rounds = self["warm"] + self["rounds"]
        self.dtype = getattr(torch, self["dtype"])

    def __getitem__(self, key):
        return self.settings[key]

    def samples(self, step, place):
        """Returns the samples [epochs, samples] of the client at this position in a round."""
        return self.order[step * self["cohort"] + place]

    def client(self, step, place):
        return (step * self["cohort"] + place) % self["clients"]

    def pick(self, samples):
        return self.images[samples].to(self.dtype), self.labels[samples]

    def batches(self, step, place):
        for epoch in self.samples(step, place):
            for part in epoch.split(self["batch"]):
                yield self.pick(part)

    def new_model(self):
        model = Mlp(self["hidden"]) if self["model"] == "mlp" else FedAvgCnn()
        first = read_weights(pathlib.Path(self["start"]) / "checkpoints" / "last" / "model.safetensors")
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), first, strict=True):
                assert parameter.shape == value.shape, (parameter.shape, value.shape)
                parameter.copy_(value)
        return model.to(self.dtype)

    def train(self, model, step, place, mu=0.0, correction=()):
        """Trains in plain PyTorch, with FedProx if configured; returns the number of samples. A correction, one
        value for each parameter, is added to the gradients (SCAFFOLD)."""
        anchor = [p.detach().clone() for p in model.parameters()] if mu else []
        optimizer = torch.optim.SGD(model.parameters(), lr=self["rate"])
        for x, y in self.batches(step, place):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            if mu:
                loss = loss + mu / 2 * sum((w - a).square().sum() for w, a in zip(model.parameters(), anchor))
            loss.backward()
            for w, c in zip(model.parameters(), correction):
                w.grad.add_(c)
            optimizer.step()
        return self.samples(step, place).shape[1]

    def write_weights(self, weights):
        pathlib.Path(self["weights"]).write_bytes(struct.pack(f"<{len(weights)}f", *weights.tolist()))

    def finish(self, model, ends, **more):
        """Writes the results. `ends`: the time at which each round ended."""
        images, labels = read_split(pathlib.Path(self["data"]), "t10k")
        with torch.no_grad():
            loss = sum(functional.cross_entropy(model(((x.float() / 255 - MEAN) / STD).to(self.dtype)), y,
                                                reduction="sum").item()
                       for x, y in zip(images.split(500), labels.split(500))) / len(labels)
            weights = torch.cat([p.detach().float().flatten() for p in model.parameters()])
        self.write_weights(weights)
        seconds = (ends[-1] - ends[self["warm"] - 1]) / self["rounds"]
        print(json.dumps({"seconds": seconds, "loss": loss, **more}), flush=True)


@functools.lru_cache(maxsize=1)
def job_of(path):
    """Returns the process's job, which is made once, because it loads the data sets."""
    return Job(path)


if __name__ == "__main__":
    make_files(json.loads(pathlib.Path(sys.argv[1]).read_text()))
