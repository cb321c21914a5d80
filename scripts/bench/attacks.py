#!/usr/bin/env python3
"""The accuracy of aggregators under attacks, on Fashion-MNIST, as a table: `attacks.py [BRIM [ROUNDS]]`. A fifth of 50
clients is malicious; ten train in a round, of which the robust aggregators tolerate three. $BRIM_FASHION_MNIST is the
folder of the data; the default is that of Debian's package dataset-fashion-mnist."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BRIM = sys.argv[1] if len(sys.argv) > 1 else "brim"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 60
FOLDER = os.environ.get("BRIM_FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
WORDS = ["dataset=fashion_mnist", f"dataset.path={FOLDER}", "model=mlp", "model.hidden=[64]", "total_clients=50",
         "clients_per_round=10", "partition=dirichlet", "partition.alpha=1", f"rounds={ROUNDS}", "optimizer.lr=0.05",
         "training.batch_size=32", f"federate.eval_every_rounds={ROUNDS}", "federate.client_accuracy=false",
         "observe.report=false", "memory.timing=false"]
AGGREGATORS = {"fedavg": [], "median": [], "trimmed_mean": ["aggregator.byzantine=3"],
               "krum": ["aggregator.byzantine=3"], "multi_krum": ["aggregator.byzantine=3"]}
ATTACKS = {"none": [], "sign_flip": ["attack.scale=5"], "noise": ["attack.scale=0.1"], "label_flip": []}


def accuracy(folder, aggregator, attack):
    run = pathlib.Path(folder, f"{aggregator}-{attack}")
    words = ["attack.share=0.2", f"attack.kind={attack}", *ATTACKS[attack]] if attack != "none" else []
    subprocess.run([BRIM, "federate", f"run.dir={run}", *WORDS, f"aggregator={aggregator}", *AGGREGATORS[aggregator],
                    *words], check=True, capture_output=True)
    return 100 * json.loads((run / "summary.json").read_text(encoding="utf-8"))["test_accuracy"]


def main():
    heads = [" ".join([attack, *(word.split(".", 1)[1] for word in words)]) for attack, words in ATTACKS.items()]
    print(f"| aggregator | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    with tempfile.TemporaryDirectory() as folder:
        for aggregator in AGGREGATORS:
            cells = [f"{accuracy(folder, aggregator, attack):.1f}" for attack in ATTACKS]
            print(f"| {aggregator} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
