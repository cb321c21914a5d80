"""Helpers for the tests of federations."""

import collections

import tensors
from support import Case


class FederationCase(Case):
    def partition(self, run):
        """Returns the samples of each client, in the client's order."""
        clients = collections.defaultdict(list)
        for line in self.read(run, "partition.csv").splitlines()[1:]:
            client, sample = map(int, line.split(",")[:2])
            clients[client].append(sample)
        return clients

    def model(self, run, step):
        """Returns the weights of the only layer, followed by its bias."""
        values, _ = tensors.read(self.checkpoint(run, step) / "model.safetensors")
        return [number for kind in ("weight", "bias") for name, (_, _, numbers) in values.items()
                if name.endswith(kind) for number in numbers]

    def write_data(self, folder, data):
        """Writes a dataset=csv whose last column is the target, with the same samples for training and test."""
        folder.mkdir(exist_ok=True)
        for file in "train.csv", "test.csv":
            (folder / file).write_text(",".join([*(f"x{k}" for k in range(len(data[0]) - 1)), "y"]) + "\n" +
                                       "".join(",".join(map(repr, row)) + "\n" for row in data))
