#!/usr/bin/env python3
"""Compares the rounds of a federation with Flower, pfl-research, BlazeFL, FedLab and a plain PyTorch loop, in one run.

    python3 scripts/bench/federate.py build/release/bin/brim --python VENV/bin/python [--blazefl VENV2/bin/python]
    python3 scripts/bench/federate.py build/release/bin/brim --python VENV/bin/python --check

--python is a Python with torch, flwr[simulation], pfl and, for SCAFFOLD, fedlab; BlazeFL needs Python 3.12 or newer, so
it may have its own.
A peer that cannot be imported is left out with a message. Without --python, PyTorch is found as by speed.py.

brim partitions the samples (partition.csv) and initialises the weights; clients are selected in turn
(method=round_robin). Peers read both, and use brim's order of a client's samples, so that all train on the same
batches. Each peer runs as its documentation recommends, with one worker and with one for each core ("workers x threads
of each"); the better result counts. Programs take turns. Seconds exclude the first --warm rounds of the peers, but
include those of brim. Memory is the peak of the sum of PSS over all processes of a run, sampled every 0.2 s, so a
shared page counts once. If a final test loss differs from brim's by more than 1 %, no ratio is printed.

--check compares weights instead, after 3 rounds of 3 local epochs with whole clients of unequal sizes as batches:
FedAvg, FedProx and FedAdam, each with the peers that implement it. FedAdam is compared in two forms: the paper's, with
Flower, and with Adam's bias correction, with pfl; the PyTorch loop has both. brim trains in fp32; peers train the
convolutional network in double precision, as PyTorch's own fp32 result differs from that by more than 1e-5; --dtype
sets their precision. The exit status is 1 if any weight differs by more than 1e-5.

SCAFFOLD, FedDyn, Ditto, aggregators of all updates and adaptive clipping are compared with 15 clients in batches of
500, of which 10 train in each of 3 rounds, so each trains twice, with 4 to 14 steps. `scaffold` weights clients alike,
as the paper and peers do, `scaffold_samples` by their samples. Ditto is compared by the personal models of all clients.
`scaffold_pfl`, `feddyn_fedlab` and `clipped_flower` show how far programs that deviate from the papers end up; they
have no limit."""

import argparse
import array
import json
import os
import pathlib
import secrets
import statistics
import struct
import subprocess
import sys
import tempfile
import threading

CASES = {
    "logistic regression": {"words": ["experiment=flute_lr"], "rounds": 300, "check": "float32"},
    "fedavg_cnn": {"words": ["experiment=fedavg_mnist"], "rounds": 20, "check": "float64"},
    # Cases without "rounds" are only for the check.
    "mlp": {"words": ["experiment=flute_lr", "model.hidden=[64]"], "check": "float32"},
}
COMMON = ["clients_per_round=10", "method=round_robin", "training.batch_size=10", "optimizer.lr=0.03", "seed=1",
          "optimizer.momentum=0", "memory.timing=false", "observe.report=false",
          "federate.checkpoint_every_rounds=1000000", "federate.client_accuracy=false"]
CHECKED = ["partition=dirichlet", "partition.alpha=0.5", "total_clients=1000", "training.batch_size=1000",
           "federate.local_epochs=3"]
CHECKED_TWICE = ["partition=dirichlet", "partition.alpha=0.5", "total_clients=15", "training.batch_size=500",
                 "federate.local_epochs=1"]
SERVER = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3}
MU = 0.5
ALPHA = 0.1
LAMBDA = 0.5
BYZANTINE = 2
CLIP = {"norm": 0.3, "quantile": 0.5, "rate": 0.2}
LIMIT = 1e-5
FOLDER = os.environ.get("BRIM_FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "cli"))
import states  # noqa: E402, as it is in another folder
CORES = len(os.sched_getaffinity(0))
MARK = "BRIM_BENCH_FEDERATE"

# Module to import; script; pairs of workers and threads to try; implemented algorithms.
PEERS = {
    "PyTorch": ("torch", "federate_torch.py", [(1, 1), (1, CORES)],
                ["fedavg", "fedprox", "fedadam", "fedadam_corrected", "scaffold", "scaffold_samples"]),
    "Flower": ("flwr", "federate_flower.py", [(1, CORES), (CORES, 1)],
               ["fedavg", "fedprox", "fedadam", "median", "trimmed_mean", "krum", "multi_krum", "clipped",
                "clipped_flower"]),
    "pfl": ("pfl", "federate_pfl.py", [(1, 1), (1, CORES), (CORES, 1)],
            ["fedavg", "fedprox", "fedadam_corrected", "scaffold", "scaffold_pfl", "clipped"]),
    "FedLab": ("fedlab.contrib.algorithm.scaffold", "federate_fedlab.py", [(1, 1)],
               ["scaffold", "feddyn", "feddyn_fedlab", "ditto"]),
    "BlazeFL": ("blazefl.contrib", "federate_blazefl.py", [(CORES, 1)], ["fedavg"]),
}


# ---- memory ----

def marked_processes(mark):
    """Finds all processes with the mark in their environment. Children inherit it, even if their parent has ended."""
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark in (process / "environ").read_bytes():
                yield process
        except OSError:
            pass  # the process has ended, or belongs to another user


def pss_bytes(process):
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run_watched(command):
    """Runs a command to its end; returns its output and the peak of its processes' total memory."""
    mark, peak, ended = secrets.token_hex(16), 0, threading.Event()

    def watch():
        nonlocal peak
        while not ended.wait(0.2):
            peak = max(peak, sum(map(pss_bytes, marked_processes(mark.encode()))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=said, text=True, cwd=tempfile.gettempdir(),
                                  env={**os.environ, MARK: mark}, check=False)
            if done.returncode != 0:
                said.seek(0)
                sys.exit(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n{said.read()[-4000:]}")
    finally:
        ended.set()
        watcher.join()
    return done.stdout, peak


# ---- programs ----

def configuration(run):
    """Returns a run's configuration from its config.yaml, with keys such as `training.batch_size`."""
    values, section = {}, ""
    for line in (run / "config.yaml").read_text().splitlines():
        key, _, value = line.strip().partition(": ")
        if not line.startswith(" "):
            section = key.rstrip(":") + "."
        values[section + key if line.startswith(" ") else key] = value
    return values


def run_brim(brim, folder, words, rounds):
    return run_watched([brim, "--quiet", "federate", f"run.dir={folder}", *words, f"rounds={rounds}",
                        f"federate.eval_every_rounds={max(rounds, 1)}", f"observe.log_every_steps={max(rounds, 1)}"])


def measure_brim(brim, folder, words, rounds):
    """Runs brim. The peak is the larger one of the sampled peak and that of summary.json, because sampling can miss the
    last moments."""
    _, peak = run_brim(brim, folder, words, rounds)
    summary = json.loads((folder / "summary.json").read_text())
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seconds = sum(r["seconds"] for r in records if r["split"] == "train") / rounds
    return {"seconds": seconds, "loss": summary["test_loss"], "bytes": max(peak, summary["rss_peak_bytes"])}


def write_job(folder, start, rounds, warm, algorithm="fedavg", dtype="float32"):
    """Writes a job that is configured like the run `start`, which has the initial weights."""
    path, c = folder / f"{algorithm}.json", configuration(start)
    path.write_text(json.dumps({
        "data": FOLDER, "start": str(start), "images": str(folder.parent / "images.f32"),
        "order": str(folder / "order.pt"), "weights": str(folder / "weights.f32"), "model": c["model.id"],
        "hidden": json.loads(c.get("model.hidden", "[]")),
        "clients": int(c["total_clients"]), "cohort": int(c["clients_per_round"]),
        "batch": int(c["training.batch_size"]), "rate": float(c["optimizer.lr"]),
        "epochs": int(c["federate.local_epochs"]), "seed": int(c["seed"]),
        "mu": MU if algorithm == "fedprox" else 0.0, "server": SERVER, "clip": CLIP,
        "alpha": ALPHA, "lambda": LAMBDA, "byzantine": BYZANTINE,
        "algorithm": algorithm.removesuffix("_corrected"), "corrected": algorithm.endswith("_corrected"),
        "equal": algorithm in TWICE and algorithm != "scaffold_samples",
        "rounds": rounds, "warm": warm, "dtype": dtype}))
    return path


def run_peer(python, peer, job, workers):
    out, peak = run_watched([python, HERE / PEERS[peer][1], job, *map(str, workers)])
    return {**json.loads(out.splitlines()[-1]), "bytes": peak}


def importable(python, module):
    return python and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def torch_python():
    return subprocess.run([HERE / "torch_python.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def find_peers(options):
    """Finds the Python of each peer that is available."""
    found = {}
    for peer, (module, *_) in PEERS.items():
        if options.peers and peer not in options.peers.split(","):
            continue
        pythons = [options.blazefl, options.python] if peer == "BlazeFL" else [options.python]
        python = next((p for p in pythons if importable(p, module)), None)
        if python:
            found[peer] = python
        else:
            print(f"{peer} is left out: none of the given Pythons can import {module}")
    return found


# ---- the measurement ----

def print_case(case, rounds, ours, theirs):
    def show(name, runs, more=""):
        losses = ", ".join(f"{loss:.4f}" for loss in sorted({round(m["loss"], 4) for m in runs}))
        print(f"  {name:20} {1e3 * statistics.median(m['seconds'] for m in runs):9.2f} ms a round, test loss {losses}, "
              f"{max(m['bytes'] for m in runs) / 2 ** 20:6.0f} MiB{more}")

    print(f"{case}, {rounds} rounds of 10 clients, {len(ours)} turns on {CORES} cores:")
    show("brim", ours)
    least = max(m["bytes"] for m in ours)
    for peer, by_workers in theirs.items():
        best = min(by_workers, key=lambda w: statistics.median(m["seconds"] for m in by_workers[w]))
        for workers, runs in by_workers.items():
            more = ""
            apart = max(abs(m["loss"] / o["loss"] - 1) for m, o in zip(runs, ours))
            if workers == best and apart > 0.01:
                more = f"; no ratio: losses differ by {100 * apart:.1f} %"
            elif workers == best:
                ratios = sorted(m["seconds"] / o["seconds"] for m, o in zip(runs, ours))
                more = (f"; {statistics.median(ratios):.2f} times brim's ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
                        f"memory {max(m['bytes'] for m in runs) / least:.1f} times")
            show(f"{peer}, {workers[0]} x {workers[1]}", runs, more)
    sys.stdout.flush()


def measure(options, peers):
    peers = {peer: python for peer, python in peers.items() if "fedavg" in PEERS[peer][3]}
    with tempfile.TemporaryDirectory() as name:
        for case, settings in CASES.items():
            if options.only and options.only != case or "rounds" not in settings:
                continue
            rounds, words = options.rounds or settings["rounds"], [*COMMON, *settings["words"]]
            folder = pathlib.Path(name) / case.replace(" ", "_")
            folder.mkdir()
            run_brim(options.brim, folder / "start", words, 0)
            job = write_job(folder, folder / "start", rounds, options.warm)
            subprocess.run([options.python, HERE / "federate_peer.py", job], check=True)
            ours, theirs = [], {peer: {workers: [] for workers in PEERS[peer][2]} for peer in peers}
            for turn in range(options.turns):
                ours.append(measure_brim(options.brim, folder / f"run{turn}", words, rounds + options.warm))
                for peer, python in peers.items():
                    for workers, runs in theirs[peer].items():
                        runs.append(run_peer(python, peer, job, workers))
            print_case(case, rounds, ours, theirs)


# ---- the check ----

def brim_weights(folder):
    data = (folder / "checkpoints" / "last" / "model.safetensors").read_bytes()
    return array.array("f", data[8 + struct.unpack("<Q", data[:8])[0]:])


def adam(corrected):
    return ["server_optimizer=adam", *(f"server_optimizer.{key}={value}" for key, value in SERVER.items()),
            f"server_optimizer.bias_correction={corrected}"]


def robust(name):
    return [f"aggregator={name}"] if name == "median" else [f"aggregator={name}", f"aggregator.byzantine={BYZANTINE}"]


ONCE = {"fedavg": [], "fedprox": ["federate.local=fedprox", f"federate.mu={MU}"], "fedadam": adam("false"),
        "fedadam_corrected": adam("true")}
SCAFFOLD = ["federate.local=scaffold", "aggregator=uniform"]
CLIPPED = [f"privacy.clip_norm={CLIP['norm']}", f"privacy.target_quantile={CLIP['quantile']}",
           f"privacy.clip_norm_lr={CLIP['rate']}"]
FEDDYN = ["federate.local=feddyn", f"federate.alpha={ALPHA}", "aggregator=uniform"]
DITTO = ["federate.personal=ditto", f"federate.personal_lambda={LAMBDA}", "aggregator=uniform"]
TWICE = {"scaffold": SCAFFOLD, "scaffold_samples": SCAFFOLD[:1], "scaffold_pfl": SCAFFOLD,
         "feddyn": FEDDYN, "feddyn_fedlab": FEDDYN, "ditto": DITTO,
         **{name: robust(name) for name in ("median", "trimmed_mean", "krum", "multi_krum")},
         "clipped": CLIPPED, "clipped_flower": CLIPPED}
WITHOUT_LIMIT = ("scaffold_pfl", "feddyn_fedlab", "clipped_flower")


def check_form(options, peers, case, folder, words, algorithm):
    """Returns whether a peer's weights differ too much. The initial weights are in folder/start."""
    run_brim(options.brim, folder / algorithm, words, 3)
    first, ours = brim_weights(folder / "start"), brim_weights(folder / algorithm)
    if algorithm == "ditto":
        kept = states.read(folder / algorithm, folder / algorithm / "checkpoints" / "last", "f")
        first, ours = first * len(kept), sum((kept[client] for client in sorted(kept)), array.array("f"))
    failed, moved = False, max(abs(a - b) for a, b in zip(ours, first, strict=True))
    for dtype in options.dtype.split(",") if options.dtype else [CASES[case]["check"]]:
        job = write_job(folder, folder / "start", 2, 1, algorithm, dtype)
        subprocess.run([options.python, HERE / "federate_peer.py", job], check=True)
        for peer, python in peers.items():
            if algorithm not in PEERS[peer][3]:
                continue
            run_peer(python, peer, job, PEERS[peer][2][0 if algorithm in TWICE else -1])  # pfl's states: one process
            theirs = array.array("f", (folder / "weights.f32").read_bytes())
            apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
            too_much = not apart <= LIMIT and algorithm not in WITHOUT_LIMIT
            failed = failed or too_much
            print(f"{case}, {algorithm}: brim and {peer} in {dtype} differ by {apart:.1e} at most; weights moved by "
                  f"{moved:.2g}{': TOO MUCH' if too_much else ''}", flush=True)
    return failed


def check(options, peers):
    failed = False
    with tempfile.TemporaryDirectory() as name:
        for case, settings in CASES.items():
            if options.only and options.only != case:
                continue
            kept = [word for word in [*COMMON, *settings["words"]] if not word.startswith(("total_", "training.b"))]
            for forms, checked in ((ONCE, CHECKED), (TWICE, CHECKED_TWICE)):
                chosen = [a for a in forms if not options.algorithms or a in options.algorithms.split(",")]
                folder = pathlib.Path(name) / case.replace(" ", "_") / ("once" if forms is ONCE else "twice")
                if chosen:
                    folder.mkdir(parents=True)
                    run_brim(options.brim, folder / "start", [*kept, *checked], 0)
                for algorithm in chosen:
                    words = [*kept, *checked, *forms[algorithm]]
                    failed = check_form(options, peers, case, folder, words, algorithm) or failed
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brim", type=os.path.abspath)
    parser.add_argument("--python", help="a Python with torch, flwr, pfl and fedlab")
    parser.add_argument("--blazefl", help="a Python with BlazeFL")
    parser.add_argument("--peers", help=f"some of {','.join(PEERS)}; default: all")
    parser.add_argument("--only", help="a case")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="rounds of a run; default: by the case")
    parser.add_argument("--warm", type=int, default=3, help="warm-up rounds before them")
    parser.add_argument("--check", action="store_true", help="compare weights")
    parser.add_argument("--algorithms", help=f"for --check: of {','.join((*ONCE, *TWICE))}; default: all")
    parser.add_argument("--dtype", help="for --check: the peers' precisions, of float32,float64; default: by the case")
    options = parser.parse_args()
    options.python = options.python or torch_python()
    peers = find_peers(options)
    if options.check:
        sys.exit(check(options, peers))
    measure(options, peers)


if __name__ == "__main__":
    main()
