#!/usr/bin/env python3
"""Times aggregators that see all updates of a round: `aggregators.py [BRIM]`. A hundred clients send 1.65 million
values each. brim's times are from its own clock, printed with --verbose, and contain reading the updates from their
file; memory is the process's peak without that of aggregator=fedavg. NumPy has as many random updates in memory."""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

BRIM = sys.argv[1] if len(sys.argv) > 1 else "brim"
CLIENTS, ROUNDS, MIB = 100, 5, 1 << 20
SIZES = [784, 1024, 816, 10]
VALUES = sum((a + 1) * b for a, b in zip(SIZES, SIZES[1:]))
WORDS = ["dataset=synthetic", "dataset.shape=[1,28,28]", "dataset.classes=10", f"dataset.train_count={CLIENTS}",
         "dataset.test_count=20", "model=mlp", f"model.hidden={SIZES[1:-1]}".replace(" ", ""),
         f"total_clients={CLIENTS}", f"clients_per_round={CLIENTS}", f"rounds={ROUNDS}", "training.batch_size=1",
         "memory.timing=false", "federate.client_accuracy=false", "observe.report=false"]


def run(folder, aggregator):
    """Returns the seconds of the fastest round, and the process's peak memory."""
    process = subprocess.run([BRIM, "--verbose", "federate", f"run.dir={folder}/{aggregator}", *WORDS,
                              f"aggregator={aggregator}"], check=True, capture_output=True, text=True)
    seconds = [float(ms) / 1e3 for ms in re.findall(r"updates merged in ([\d.]+) ms", process.stderr)]
    summary = json.loads(pathlib.Path(folder, aggregator, "summary.json").read_text(encoding="utf-8"))
    return min(seconds, default=0.0), summary["rss_peak_bytes"]


def trimmed_mean(updates):
    return numpy.sort(updates, axis=0)[1:-1].mean(axis=0)


def multi_krum(updates):
    square = (updates.astype(numpy.float64) ** 2).sum(axis=1)
    distance = square[:, None] + square[None, :] - 2.0 * (updates @ updates.T)
    numpy.fill_diagonal(distance, numpy.inf)
    score = numpy.sort(distance, axis=1)[:, :CLIENTS - 3].sum(axis=1)
    return updates[numpy.argsort(score)[:CLIENTS - 1]].mean(axis=0)


PEERS = {"median": lambda updates: numpy.median(updates, axis=0), "trimmed_mean": trimmed_mean,
         "multi_krum": multi_krum}


def time_peer(function, updates):
    seconds = []
    for _ in range(2):
        start = time.monotonic()
        function(updates)
        seconds.append(time.monotonic() - start)
    return min(seconds)


def main():
    updates = numpy.random.default_rng(1).standard_normal((CLIENTS, VALUES), dtype=numpy.float32)
    with tempfile.TemporaryDirectory() as folder:
        _, least = run(folder, "fedavg")
        print(f"{CLIENTS} clients, {VALUES} values\n{'':14}{'brim':>9}{'NumPy':>9}{'ratio':>8}{'memory':>11}")
        ratios = []
        for aggregator, function in PEERS.items():
            seconds, peak = run(folder, aggregator)
            peer = time_peer(function, updates)
            ratios.append(peer / seconds)
            print(f"{aggregator:14}{seconds:7.2f} s{peer:7.2f} s{ratios[-1]:7.1f}x{(peak - least) / MIB:7.1f} MiB")
        print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.1f}x")


if __name__ == "__main__":
    main()
