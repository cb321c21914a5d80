#!/usr/bin/env python3
"""Compares the arithmetic that `brim plan --traffic` counts with PyTorch's own count of the same networks.

    $(scripts/bench/torch_python.sh) scripts/bench/flops_torch.py [--binary build/release/bin/brim] [--count N]
                                                                  [--seed S] [--golden FILE]

PyTorch's torch.utils.flop_counter counts the matrix products of a training step: products, convolutions, and those of
attention. brim's operations also count elementwise arithmetic, which is subtracted here (EXTRA). Two more
differences are known: brim counts only the pairs of query and key that causal attention computes, and in the backward
pass computes the scores again. Everything else must be equal to the last digit. Fixed networks come first, then `count`
drawn ones. --golden writes the configurations and PyTorch's figures for tests/cli/test_traffic.py.
"""
import argparse
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
from make_backbones import ResNet  # noqa: E402
from torch_speed import Gpt2, VitTiny  # noqa: E402

# Operations for an element of the result.
EXTRA = {"relu": 1, "leaky_relu": 1, "gelu": 20, "silu": 20, "sigmoid": 20, "tanh": 20}
ATTENTION = ("attention", "attention_qkv")


class Mlp(nn.Sequential):
    def __init__(self, features, hidden, classes):
        sizes = [features, *hidden]
        layers = [part for a, b in zip(sizes, hidden) for part in (nn.Linear(a, b), nn.ReLU())]
        super().__init__(nn.Flatten(), *layers, nn.Linear(sizes[-1], classes))


def images(channels, side, classes):
    return ["dataset=synthetic", f"dataset.shape=[{channels},{side},{side}]", f"dataset.classes={classes}"]


def mlp(hidden, side, classes):
    words = ["model=mlp", f"model.hidden={list(hidden)}".replace(" ", ""), *images(1, side, classes)]
    return words, lambda: Mlp(side * side, hidden, classes), (1, side, side), classes


def resnet50(side, classes):
    words = ["model=resnet50", *images(3, side, classes)]
    return words, lambda: ResNet((3, side, side), 64, (3, 4, 6, 3), True, side <= 32, classes), (3, side, side), classes


def vit(width, depth, heads, patch, side):
    words = ["model=vit", f"model.width={width}", f"model.depth={depth}", f"model.heads={heads}",
             f"model.patch={patch}", *images(3, side, 10)]
    return words, lambda: VitTiny(width, depth, heads, patch, side), (3, side, side), 10


def gpt2(width, layers, heads, context, vocabulary=50257):
    words = ["model=gpt2", f"model.width={width}", f"model.layers={layers}", f"model.heads={heads}",
             f"model.context={context}", "dataset=tokens", "dataset.path=tokens",
             f"dataset.context={context}", f"dataset.vocabulary={vocabulary}"]
    return words, lambda: Gpt2(layers, width, heads, context, vocabulary), (context,), vocabulary


def draw(rng):
    heads = rng.choice([1, 2, 4])
    width = heads * rng.choice([16, 24, 32])
    return rng.choice([
        lambda: mlp([rng.randint(3, 300) for _ in range(rng.randint(1, 4))], rng.randint(4, 40), rng.randint(2, 50)),
        lambda: resnet50(rng.choice([32, 64, 96]), rng.randint(2, 300)),
        lambda: vit(width, rng.randint(1, 5), heads, rng.choice([4, 8]), rng.choice([16, 32, 64])),
        lambda: gpt2(width, rng.randint(1, 5), heads, rng.choice([16, 50, 128, 300])),
    ])()


def torch_flops(make, shape, classes, batch):
    """Returns PyTorch's count for the products, convolutions and attention of a step."""
    with torch.device("meta"):
        model = make()
        tokens = len(shape) == 1
        x = torch.zeros((batch, *shape), dtype=torch.long) if tokens else torch.zeros((batch, *shape))
        y = torch.zeros(batch * (shape[0] if tokens else 1), dtype=torch.long)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        F.cross_entropy(model(x).reshape(-1, classes), y).backward()
    counted = {str(op): flops for op, flops in counter.get_flop_counts()["Global"].items()}
    of = {"attention": sum(flops for op, flops in counted.items() if "bmm" in op),
          "convolution": sum(flops for op, flops in counted.items() if "conv" in op)}
    return {**of, "matmul": sum(counted.values()) - sum(of.values())}


def elements_of(tensor, batch):
    count = 1
    for i, dim in enumerate(re.search(r"\[(.*)\]", tensor)[1].split(",")):
        factor = re.fullmatch(r"N(?:\*(\d+)|/(\d+))?", dim) if i == 0 else None
        count *= batch * int(factor[1] or 1) // int(factor[2] or 1) if factor else int(dim or 1)
    return count


def product_flops(row, batch):
    """Returns the operations of a row of brim's table that belong to products."""
    flops, (inputs, outputs) = row["flops"], row["signature"].split(" > ")
    first, _, second = row["op"].partition("+")
    if row["class"] == "matmul with loss":
        features = int(re.findall(r"\[[^]]*,(\d+)\]", inputs)[0])
        return flops * 2 * features // (2 * features + 5)
    if second in EXTRA:
        flops -= row["nodes"] * EXTRA[second] * elements_of(outputs.split(" ")[0], batch)
    assert first != "matmul", "PyTorch's attention is taken for all batched products"
    return flops


def brim_flops(binary, words, batch, context):
    result = subprocess.run([binary, "plan", "--traffic", "--json", "--no-timing", "backend=cpu",
                             f"training.batch_size={batch}", "training.gradient_accumulation_steps=1",
                             "memory.limit_mb=1000000", *words], capture_output=True, text=True, check=False)
    if result.returncode not in (0, 4):
        sys.exit(f"brim plan {' '.join(words)}\n{result.stderr}")
    rows = [row for row in json.loads(result.stdout)["traffic"]["operations"] if row["product"]]
    of = {"attention": 0, "convolution": 0, "matmul": 0}
    for row in rows:
        kind = "matmul" if row["class"] == "matmul with loss" else row["class"]
        flops = product_flops(row, batch)
        if kind == "attention":  # as PyTorch counts attention
            pairs = 2 * context / (context + 1) if context else 1
            flops = round(flops * pairs * (1 if row["op"] in ATTENTION else 0.8))
        of[kind] += flops
    return of


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/bin/brim")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden", help="file to write")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    cases = [(16, gpt2(768, 12, 12, 1024)), (8, vit(768, 12, 12, 16, 224)), (8, resnet50(224, 1000)),
             (32, mlp([512, 256], 28, 10)), *((rng.randint(1, 17), draw(rng)) for _ in range(arguments.count))]
    Path("tokens").mkdir(exist_ok=True)
    (Path("tokens") / "train.bin").write_bytes(b"\0" * 100000)  # uint16 token ids
    wrong, golden = 0, []
    for batch, (words, make, shape, classes) in cases:
        theirs = torch_flops(make, shape, classes, batch)
        ours = brim_flops(arguments.binary, words, batch, shape[0] if len(shape) == 1 else 0)
        wrong += ours != theirs
        golden.append({"words": words, "batch": batch, "flops": theirs})
        print("equal    " if ours == theirs else "DIFFERENT", f"batch {batch:2}", " ".join(words[:6]),
              *(f"{kind} {ours[kind]}" + (f" (PyTorch {theirs[kind]})" if ours[kind] != theirs[kind] else "")
                for kind in ours if ours[kind] or theirs[kind]), flush=True)
    (Path("tokens") / "train.bin").unlink()
    Path("tokens").rmdir()
    if arguments.golden:
        Path(arguments.golden).write_text("".join(json.dumps(case) + "\n" for case in golden))
    print(f"{len(cases)} networks, {wrong} with another count")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
