#!/usr/bin/env python3
"""Rounds of a federation beside a plain PyTorch loop: the same clients, first weights, cohorts, batches and rates.

    python3 scripts/bench/federate.py build/release/bin/brim [--rounds 5] [--only CASE]

A Python that has PyTorch is found as by speed.py. brim deals the samples and writes who has which (partition.csv); the
loop trains the clients of a round one after another with all threads, averages their weights by their samples, and
begins with brim's first weights. Cohorts come in turn (method=round_robin). The order of samples within a client is
each program's own, so losses at the end agree only to some percent: all are printed. Turn by turn; prints the median of
seconds a round and the ratio. Memory is the peak of the process."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

CASES = {
    "logistic regression": ["model=mlp", "model.hidden=[]", "total_clients=1000", "optimizer.lr=0.03"],
    "fedavg_cnn": ["model=fedavg_cnn", "total_clients=100", "optimizer.lr=0.03"],
}
COMMON = ["clients_per_round=10", "method=round_robin", "training.batch_size=10", "memory.timing=false",
          "observe.report=false", "federate.checkpoint_every_rounds=1000000"]
FOLDER = os.environ.get("BRIM_FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
PEER = pathlib.Path(__file__).with_name("federate_torch.py")


def run_brim(brim, folder, words, rounds):
    subprocess.run([brim, "--quiet", "federate", f"run.dir={folder}", *COMMON, *words, f"rounds={rounds}",
                    f"federate.eval_every_rounds={max(rounds, 1)}", f"observe.log_every_steps={max(rounds, 1)}"],
                   check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "summary.json").read_text())


def measure_brim(brim, folder, words, rounds):
    summary = run_brim(brim, folder, words, rounds)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seconds = sum(r["seconds"] for r in records if r["split"] == "train") / rounds
    return {"seconds": seconds, "loss": summary["test_loss"], "bytes": summary["rss_peak_bytes"]}


def measure_torch(python, start, words, rounds):
    values = dict(word.split("=", 1) for word in [*COMMON, *words])
    out = subprocess.run([python, PEER, FOLDER, start, values["model"], values["optimizer.lr"],
                          values["training.batch_size"], values["clients_per_round"], str(rounds)],
                         check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.stdout)


def torch_python():
    script = pathlib.Path(__file__).with_name("torch_python.sh")
    return subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brim")
    parser.add_argument("--rounds", type=int, default=5, help="of the measurement")
    parser.add_argument("--only", help="a case")
    options = parser.parse_args()
    brim, python = os.path.abspath(options.brim), torch_python()
    for case, words in CASES.items():
        if options.only and options.only != case:
            continue
        federated = 300 if case == "logistic regression" else 20
        ours, theirs = [], []
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            run_brim(brim, folder / "start", words, 0)
            for turn in range(options.rounds):
                ours.append(measure_brim(brim, folder / f"run{turn}", words, federated))
                theirs.append(measure_torch(python, folder / "start", words, federated))
        ratios = sorted(t["seconds"] / o["seconds"] for o, t in zip(ours, theirs))
        print(f"{case}, {federated} rounds of 10 clients:")
        for who, all_of in ("brim", ours), ("PyTorch", theirs):
            losses = ", ".join(f"{m['loss']:.4f}" for m in all_of)
            print(f"  {who:8} {1000 * statistics.median(m['seconds'] for m in all_of):9.2f} ms a round, "
                  f"test loss {losses}, {max(m['bytes'] for m in all_of) / 2 ** 20:.0f} MiB")
        print(f"  PyTorch takes {statistics.median(ratios):.2f} times as long ({ratios[0]:.2f} to {ratios[-1]:.2f})",
              flush=True)


if __name__ == "__main__":
    main()
