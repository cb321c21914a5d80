#!/usr/bin/env python3
"""The FedAvg paper's table of local epochs and batch sizes (McMahan et al., AISTATS 2017, section 3), on Fashion-MNIST.

    python3 scripts/bench/federate_table.py build/release/bin/brim [--target 0.8] [--rounds 300] [--epochs 600]
                                            [--seed 1] [--minutes 20]

The paper's 2NN (two layers of 200, 199,210 parameters), 100 clients, of which 10 train in a round; E local epochs in
batches of B, where E=1 with all samples of a client in one batch is FedSGD. Clients have equal random shares (IID), or
two shards of the samples sorted by class. Measures the number of rounds until the test accuracy reaches the target. As
in the paper, the best of several learning rates counts for each case, here of two or three; later ones run only for as
many rounds as they could still win in. A run ends after --rounds rounds, or when a client that is always selected would
have trained for --epochs local epochs. Prints a table in Markdown.

For a case that misses the target, the table has its rounds and its best accuracy. Cases that would begin after
--minutes are left out with a message."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

DONE, FAILED = 0, 5  # exit statuses of brim; it fails if all clients of a round diverge
CLIENTS, COHORT, EACH = 100, 10, 600
EPOCHS, BATCHES = (1, 5, 20), (EACH, 50, 10)
RATES = {EACH: (0.3, 0.1, 0.5), 50: (0.1, 0.3), 10: (0.1, 0.03)}  # rates for each batch size, the most promising first
PARTITIONS = {"IID": ["partition=iid"], "two shards": ["partition=shards", "partition.shards=2"]}


class Case:
    """A cell of the table and its results."""

    def __init__(self, partition, epochs, batch):
        self.partition, self.epochs, self.batch = partition, epochs, batch
        self.rounds, self.rate, self.accuracy, self.seconds = None, None, 0, 0

    def cap(self, options):
        return min(options.rounds, options.epochs // self.epochs)

    def text(self, options):
        if self.rate is None:
            return "not run"
        found = f"> {self.cap(options)} ({100 * self.accuracy:.1f} %)"
        return f"{self.rounds} ({self.rate:g})" if self.rounds else found


def run(brim, case, rate, rounds, options):
    """Returns the round that reached the target, or None; and the best accuracy."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "run"
        status = subprocess.run(
            [brim, "--quiet", "federate", f"run.dir={folder}", "model=mlp", "model.hidden=[200,200]",
             "dataset=fashion_mnist", *PARTITIONS[case.partition], f"total_clients={CLIENTS}",
             f"clients_per_round={COHORT}", f"federate.local_epochs={case.epochs}", f"training.batch_size={case.batch}",
             f"optimizer.lr={rate}", f"rounds={rounds}", f"seed={options.seed}", "federate.eval_every_rounds=1",
             f"federate.target_accuracy={options.target}", f"federate.checkpoint_every_rounds={rounds}",
             "memory.timing=false", "observe.report=false"], stdout=subprocess.DEVNULL, check=False).returncode
        if status not in (DONE, FAILED):
            raise SystemExit(f"brim ended with exit status {status}")
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        found = {r["step"]: r["accuracy"] for r in records if r["split"] == "test"}
        reached = min((step for step, accuracy in found.items() if accuracy >= options.target), default=None)
        return reached, max(found.values(), default=0)


def search(brim, case, options):
    """Runs a case with each rate, and keeps the best."""
    begin = time.monotonic()
    for rate in RATES[case.batch]:
        reached, accuracy = run(brim, case, rate, case.rounds - 1 if case.rounds else case.cap(options), options)
        if reached or (not case.rounds and accuracy > case.accuracy):
            case.rounds, case.rate, case.accuracy = reached, rate, accuracy
        if case.rounds == 1:
            break
    case.seconds = time.monotonic() - begin


def table(cases, options):
    """Returns rows in the paper's order: E and B, and each partition's rounds relative to FedSGD's."""
    names = list(PARTITIONS)
    lines = ["| E | B | updates a round | " + " | ".join(f"{name} | beside FedSGD" for name in names) + " |",
             "|---|---|---|" + "---|---|" * len(names)]
    for epochs in EPOCHS:
        for batch in BATCHES:
            row = [str(epochs), "all" if batch == EACH else str(batch), str(epochs * EACH // batch)]
            for name in names:
                case, sgd = cases[name, epochs, batch], cases[name, 1, EACH]
                ratio = f"{sgd.rounds / case.rounds:.1f}x" if sgd.rounds and case.rounds else ""
                row += [case.text(options), ratio]
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brim")
    parser.add_argument("--target", type=float, default=0.8, help="test accuracy")
    parser.add_argument("--rounds", type=int, default=300, help="maximum number of rounds")
    parser.add_argument("--epochs", type=int, default=600, help="maximum number of local epochs over all rounds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20, help="time after which no case begins")
    options = parser.parse_args()
    brim, begin = os.path.abspath(options.brim), time.monotonic()
    cases = {(name, epochs, batch): Case(name, epochs, batch)
             for name in PARTITIONS for epochs in EPOCHS for batch in BATCHES}
    for case in cases.values():
        if time.monotonic() - begin < 60 * options.minutes:
            search(brim, case, options)
            print(f"E={case.epochs} B={case.batch} {case.partition}: {case.text(options)}, "
                  f"{case.seconds:.0f} s", flush=True)
    print(f"\nRounds to {100 * options.target:g} % test accuracy (learning rate); seed {options.seed}\n")
    print(table(cases, options))


if __name__ == "__main__":
    main()
