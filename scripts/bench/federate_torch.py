"""Federated averaging as a plain PyTorch loop, for federate.py.

    federate_torch.py DATA START MODEL RATE BATCH CLIENTS ROUNDS

START is a run of brim without rounds: its first weights and its partition. Images are normalised once, which takes
least time. Prints one JSON object: seconds a round, the test loss at the end, and the peak of the process."""

import csv
import json
import pathlib
import struct
import sys
import time

import torch
from torch import nn
from torch.nn import functional

from torch_cnn import MEAN, STD, peak_rss_bytes, read_split


def first_weights(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]]),
                                   dtype=torch.float32).reshape(e["shape"]) for name, e in header.items()}


class FedAvgCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
        self.fc1, self.fc2 = nn.Linear(3136, 512), nn.Linear(512, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


class Logistic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 10)

    def forward(self, x):
        return self.fc1(x.flatten(1))


def main():
    data, start, name, rate, batch, cohort, rounds = sys.argv[1:8]
    rate, batch, cohort, rounds = float(rate), int(batch), int(cohort), int(rounds)
    images, labels = read_split(pathlib.Path(data), "train")
    images = (images.float() / 255 - MEAN) / STD
    clients = {}
    with open(f"{start}/partition.csv", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            clients.setdefault(int(row["client"]), []).append(int(row["sample"]))
    model = FedAvgCnn() if name == "fedavg_cnn" else Logistic()
    parameters = list(model.parameters())
    start = first_weights(pathlib.Path(start) / "checkpoints" / "last" / "model.safetensors")
    with torch.no_grad():
        for parameter, value in zip(parameters, start.values()):
            assert parameter.shape == value.shape, (parameter.shape, value.shape)
            parameter.copy_(value)
    begin = time.perf_counter()
    for step in range(rounds):
        chosen = [(step * cohort + k) % len(clients) for k in range(cohort)]
        total = sum(len(clients[c]) for c in chosen)
        anchor = [p.detach().clone() for p in parameters]
        mean = [torch.zeros_like(p) for p in parameters]
        for client in chosen:
            own = torch.tensor(clients[client])
            with torch.no_grad():
                for parameter, value in zip(parameters, anchor):
                    parameter.copy_(value)
            optimizer = torch.optim.SGD(parameters, lr=rate)
            for part in own[torch.randperm(len(own))].split(batch):
                optimizer.zero_grad()
                functional.cross_entropy(model(images[part]), labels[part]).backward()
                optimizer.step()
            with torch.no_grad():
                for m, parameter in zip(mean, parameters):
                    m.add_(parameter, alpha=len(own) / total)
        with torch.no_grad():
            for parameter, value in zip(parameters, mean):
                parameter.copy_(value)
    seconds = (time.perf_counter() - begin) / rounds
    images, labels = read_split(pathlib.Path(data), "t10k")
    with torch.no_grad():
        loss = sum(functional.cross_entropy(model((x.float() / 255 - MEAN) / STD), y, reduction="sum").item()
                   for x, y in zip(images.split(500), labels.split(500))) / len(labels)
    print(json.dumps({"seconds": seconds, "loss": loss, "bytes": peak_rss_bytes()}))


if __name__ == "__main__":
    main()
