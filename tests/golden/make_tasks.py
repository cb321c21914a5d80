#!/usr/bin/env python3
"""Makes tasks.json: PyTorch's results, in double precision, for the trainings of tests/cli/test_tasks.py: language
models with ignored tokens, regressions, and both regressions and classes under mixup.

    BRIM_BINARY=build/dev/bin/brim python3 tests/golden/make_tasks.py        # needs torch; writes into this folder

The data of the synthetic dataset is computed again here; a step takes all samples, so that their order does not matter.
Partners and shares of mixup are computed again too, and applied like timm's Mixup in mode "elem", in single precision;
a step is an epoch. The initial weights are brim's, from a checkpoint of one step with a learning rate of 0.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from tasks import GOLDEN, STEPS, words_of  # noqa: E402  pylint: disable=wrong-import-position

MASK = 0xFFFFFFFF
PATTERN, TRAIN, TEST, WEIGHT, SUCCESSOR, ANSWER = 1, 2, 3, 4, 5, 16  # streams of plugins/dataset/synthetic
SPLIT, AUGMENT, DATA, MIXUP = 3, 4, 6, 8  # random streams
OWN_SHARE = 29  # the block of this random number, see core/data/transform.h


def random4(seed, stream, item, block, use=DATA):
    """Does the same as brim_random4 of core/include/brim/random.h."""
    c = [block & MASK, item & MASK, item >> 32, use << 24 | stream]
    k0, k1 = seed & MASK, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & MASK, p0 >> 32 ^ c[3] ^ k1, p0 & MASK]
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return c


def numbers(stream, item):
    block = 0
    while True:
        yield from random4(1, stream, item, block)
        block += 1


def uniform(x):
    return x / 2**32


def noise(x):
    """Returns noise, rounded like the plugin's floats."""
    total = sum(x >> shift & 255 for shift in (0, 8, 16, 24)) - 510
    return (torch.tensor(float(total), dtype=torch.float32) * torch.tensor(0.00676590, dtype=torch.float32)).double()


def tokens_of(case, stream, count):
    """Returns tokens and labels; ignored labels are -100."""
    size, length = case["vocabulary"], case["length"]
    successor = [random4(1, SUCCESSOR, token, 0)[0] * size >> 32 for token in range(size)]
    samples, labels = [], []
    for i in range(count):
        draw = numbers(stream, i)
        token, sample, label = next(draw) * size >> 32, [], []
        for _ in range(length):
            sample.append(token)
            surprises = uniform(next(draw)) < 0.1
            anything = next(draw) * size >> 32
            counts = uniform(next(draw)) >= case["ignored"]
            token = anything if surprises else successor[token]
            label.append(token if counts else -100)
        samples.append(sample)
        labels.append(label)
    return torch.tensor(samples), torch.tensor(labels)


def values_of(case, stream, count):
    shape, targets = case["shape"], case["targets"]
    elements = shape[0] * shape[1]
    weight = torch.tensor([[2 * uniform(random4(1, WEIGHT, k, i >> 2)[i & 3]) - 1 for i in range(elements)]
                           for k in range(targets)])
    samples, answers = [], []
    for i in range(count):
        draw, error = numbers(stream, i), numbers(ANSWER + stream, i)
        x = torch.stack([noise(next(draw)) for _ in range(elements)])
        samples.append(x)
        answers.append(torch.stack([(weight[k] * x).sum() / elements**0.5 + case["noise"] * noise(next(error))
                                    for k in range(targets)]).float().double())
    return torch.stack(samples).reshape(count, *shape), torch.stack(answers)


def classes_of(case, stream, count):
    samples = []
    for i in range(count):
        pattern, draw = numbers(PATTERN, i % case["classes"]), numbers(stream, i)
        pattern = torch.tensor([2 * uniform(next(pattern)) - 1 for _ in range(case["shape"][0])]).float()
        samples.append((pattern + torch.stack([noise(next(draw)) for _ in pattern]).float()).double())
    return torch.stack(samples), F.one_hot(torch.arange(count) % case["classes"]).double()


def permuted(use, item, count, i):
    """Does the same as brim_permutation_at of core/base/permutation.c, with seed 1."""
    half = 0
    while 4**half < count:
        half += 1
    mask = 2**half - 1
    while True:
        left, right = i >> half, i & mask
        for turn in range(8):
            left, right = right, left ^ random4(1, turn, item, right, use)[0] & mask
        i = left << half | right
        if i < count:
            return i


def own_share(alpha, epoch, sample):
    """Returns a sample's own share, by Student's t distribution, as in core/data/mixup.c."""
    u, v = random4(1, epoch, sample, OWN_SHARE, AUGMENT)[:2]
    q, c = uniform(u)**(1 / alpha), math.cos(2 * math.pi * uniform(v))
    return 0.5 + 0.5 * c / math.sqrt(q / (1 - q) + c * c)


def mixed(case, x, label, epoch):
    """Returns the samples and labels of an epoch."""
    if "mixup" not in case:
        return x, label
    count = len(x)
    sample = [permuted(SPLIT, 0, count, k) for k in range(count)]
    partner = [sample[permuted(MIXUP, epoch, count, k)] for k in range(count)]
    share = torch.tensor([own_share(case["mixup"], epoch, i) for i in sample], dtype=torch.float32)

    def mix(values):
        values = values.float()
        lam = share.reshape(-1, *[1] * (values.dim() - 1))
        return (values[sample] * lam + values[partner] * (1 - lam)).double()

    return mix(x), mix(label)


class Mlp(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(features, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


class TokenLSTM(nn.Module):
    def __init__(self, vocabulary, dim):
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(vocabulary, dim), nn.LSTM(dim, dim, batch_first=True)

    def forward(self, x):
        return F.linear(self.lstm(self.tokens(x))[0], self.tokens.weight)


class TemperatureLSTM(nn.Module):
    def __init__(self, features, hidden, targets):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(features, hidden, batch_first=True), nn.Linear(hidden, targets)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


def first_weights(name):
    """Returns the weights before the first step."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.environ["BRIM_BINARY"], *words_of(name, "train"), f"run.dir={folder}/run", "optimizer.lr=0",
                        "training.steps=1", "backend=reference"], check=True, capture_output=True)
        data = pathlib.Path(folder, "run/checkpoints/last/model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    weights = {}
    for key, t in json.loads(data[8:8 + length]).items():
        if key != "__metadata__":
            first, last = t["data_offsets"]
            kind = {"F64": torch.float64, "F32": torch.float32}[t["dtype"]]
            raw = bytearray(data[8 + length + first:8 + length + last])
            weights[key] = torch.frombuffer(raw, dtype=kind).reshape(t["shape"]).double()
    return weights


def judge_tokens(case, logits, label):
    weight = torch.tensor(case["class_weights"]) if "class_weights" in case else None
    label = torch.where(label == case.get("ignore_index", -100), -100, label)
    counts = label != -100
    loss = F.cross_entropy(logits.flatten(0, 1), label.flatten(), weight=weight,
                           label_smoothing=case.get("label_smoothing", 0.0))
    right = (logits.argmax(-1) == label)[counts].double().mean()
    return {"loss": loss, "accuracy": right, "perplexity": loss.exp()}


def judge_values(case, y, t):
    loss = {"mse": F.mse_loss, "mae": F.l1_loss,
            "huber": lambda a, b: F.huber_loss(a, b, delta=case.get("delta", 1.0))}[case["loss"]](y, t)
    error = (y - t).abs()
    spread = ((t - t.mean(0))**2).sum(0)
    return {"loss": loss, "mae": error.mean(), "mape": 100 * (error / t.abs().clamp(min=1e-7)).mean(),
            "rmse": (error**2).mean().sqrt(), "r2": (1 - (error**2).sum(0) / spread).mean()}


def judge_classes(case, logits, label):
    """Computes figures of labels that are shares of the classes; the largest share is the right answer."""
    loss = F.cross_entropy(logits, label, label_smoothing=case.get("label_smoothing", 0.0))
    return {"loss": loss, "accuracy": (logits.argmax(1) == label.argmax(1)).double().mean()}


def run(name, case):
    if case["task"] == "class":
        model, data, judge = Mlp(case["shape"][0], case["hidden"], case["classes"]), classes_of, judge_classes
    elif case["task"] == "tokens":
        model, data, judge = TokenLSTM(case["vocabulary"], case["dim"]), tokens_of, judge_tokens
    else:
        model, data, judge = TemperatureLSTM(case["shape"][1], case["hidden"], case["targets"]), values_of, judge_values
    model.load_state_dict(first_weights(name))
    x, label = data(case, TRAIN, case["train_count"])
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    train = []
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs, answers = mixed(case, x, label, step)
        figures = judge(case, model(inputs), answers)
        figures["loss"].backward()
        optimizer.step()
        train.append({key: value.item() for key, value in figures.items() if key not in ("mape", "rmse", "r2")})
    with torch.no_grad():
        x, label = data(case, TEST, case["test_count"])
        test = {key: value.item() for key, value in judge(case, model(x), label).items()}
    return {"train": train, "test": test}


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    made = {name: run(name, case) for name, case in GOLDEN.items()}
    path = pathlib.Path(__file__).resolve().parent / "tasks.json"
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
