#!/usr/bin/env python3
"""Compares LoRA of a language model on the processor with transformers and PEFT: the same model, rank and shapes.

    python3 -m venv ENV
    ENV/bin/pip install torch transformers==5.23.0 peft
    ENV/bin/python scripts/bench/lora.py FOLDER [--rounds 3] [--steps 3] [--cases all,half] [--modes eager,compile]

FOLDER: a model as Hugging Face stores it, for example SmolLM2-135M. Rank 16 on all linear layers, AdamW, 4 samples of
512 tokens in a step, fp32. In the case `all` every token counts in the loss, in `half` the second half of a sample.
The programs run in turn. Prints the medians of:

- tokens/s, and the processor time of a step, which depends less on other load. brim's is that of the process from its
  first step to its end
- the time from the start of the process to the start of the first step: imports, loading, compilation, but no step
- peak resident memory

brim runs as 4 x 1, 2 x 2 and 1 x 4 (micro-batch x accumulation), which give the same bits.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

BATCH, CONTEXT, VOCABULARY = 4, 512, 49152
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WORDS = [" the", " of", " and", " to", " in", " is", " that", " for"]  # each is one token
BRIM = {"brim 4 x 1": (4, 1), "brim 2 x 2": (2, 2), "brim 1 x 4": (1, 4)}


# ---- transformers and PEFT, in a process of its own ----

def peer(options):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    from torch_cnn import peak_rss_bytes, process_start

    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32)
    model.config.use_cache = False
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0, target_modules=LAYERS,
                                             task_type="CAUSAL_LM"))
    run = torch.compile(model) if options.peer == "compile" else model
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    tokens = torch.randint(VOCABULARY, (options.steps + 1, BATCH, CONTEXT), generator=torch.manual_seed(1))
    labels = tokens.clone()
    if options.cases == "half":
        labels[:, :, :CONTEXT // 2] = -100
    walls, processor, start = [], [], time.time() - process_start()
    for x, y in zip(tokens, labels):
        wall, used = time.time(), time.process_time()
        run(input_ids=x, labels=y).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        walls.append(time.time() - wall)
        processor.append(time.process_time() - used)
    step = statistics.median(walls[1:])  # the first one compiles
    print(json.dumps({"tokens": BATCH * CONTEXT / step, "processor": statistics.median(processor[1:]),
                      "start": start + walls[0] - step, "memory": peak_rss_bytes()}))


def run_peer(options, case, mode):
    argv = [sys.executable, __file__, options.folder, "--peer", mode, "--cases", case, "--steps", str(options.steps),
            "--threads", str(options.threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "PYTHONWARNINGS": "ignore"}
    out = subprocess.run(argv, check=True, stdout=subprocess.PIPE, env=environment, text=True).stdout
    return json.loads(out.splitlines()[-1])


# ---- brim ----

def words_of(case, folder):
    """Writes the data into a folder, and returns brim's overrides for them."""
    draw = random.Random(1)
    if case == "all":
        values = b"".join(draw.randrange(VOCABULARY).to_bytes(2, "little") for _ in range(64 * (CONTEXT + 1)))
        (folder / "train.bin").write_bytes(values)
        return ["dataset=tokens", f"dataset.path={folder}", f"dataset.vocabulary={VOCABULARY}",
                f"dataset.context={CONTEXT}", "dataset.validation="]
    with open(folder / "half.jsonl", "w", encoding="utf-8") as out:
        for _ in range(64):
            text = ["".join(draw.choice(WORDS) for _ in range(CONTEXT // 2 - 20)) for _ in range(2)]
            out.write(json.dumps({"messages": [{"role": "user", "content": text[0]},
                                               {"role": "assistant", "content": text[1]}]}) + "\n")
    return ["dataset=chat", f"dataset.path={folder}/half.jsonl", f"dataset.context={CONTEXT}",
            f"dataset.cache={folder}/cache"]


def processor_seconds(pid):
    """Returns the processor time that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def train(options, words, micro_batch, accumulation, steps):
    """Trains, and returns the run's summary and the processor time from its first step to its end."""
    with tempfile.TemporaryDirectory(prefix="brim-bench-") as name:
        argv = [options.brim, "--quiet", "train", "model=hf_lora", f"model.weights={options.folder}", *words,
                "backend=cpu", f"backend.threads={options.threads}", f"training.batch_size={micro_batch}",
                f"training.gradient_accumulation_steps={accumulation}", "optimizer.lr=1e-4",
                "training.eval_every_steps=1000000", "training.checkpoint_every_steps=1000000",
                f"training.steps={steps}", f"run.dir={name}/run"]
        events = pathlib.Path(name, "run/events.jsonl")
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        while process.poll() is None and not events.exists():  # brim writes the first event when the first step starts
            time.sleep(0.01)
        if process.returncode is not None:
            raise subprocess.CalledProcessError(process.returncode, argv)
        used = processor_seconds(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, argv)
        return json.loads(pathlib.Path(name, "run/summary.json").read_text()), usage.ru_utime + usage.ru_stime - used


def run_brim(options, words, micro_batch, accumulation):
    summary, used = train(options, words, micro_batch, accumulation, 1 + options.steps)
    step = BATCH * CONTEXT / summary["tokens_per_second"]
    return {"tokens": summary["tokens_per_second"], "processor": used / (1 + options.steps),
            "start": summary["first_step_seconds"] - step, "memory": summary["rss_peak_bytes"]}


# ---- output ----

def print_case(case, results):
    rows = {name: {key: statistics.median(r[key] for r in runs) for key in runs[0]} for name, runs in results.items()}
    print(f"{case}: load of the machine {os.getloadavg()[0]:.1f}")
    print(f"  {'':12} {'tokens/s':>9} {'processor s/step':>17} {'start, s':>9} {'memory, GiB':>12}")
    for name, row in rows.items():
        print(f"  {name:12} {row['tokens']:9.1f} {row['processor']:17.2f} {row['start']:9.2f}"
              f" {row['memory'] / 2**30:12.2f}")
    for name in (name for name in rows if name in BRIM):
        for other in (other for other in rows if other not in BRIM):
            a, b = rows[name], rows[other]
            print(f"  {name} to {other}: {a['tokens'] / b['tokens']:.2f} x tokens/s,"
                  f" {b['processor'] / a['processor']:.2f} x by processor time,"
                  f" {a['memory'] / b['memory']:.2f} x memory")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", default="all,half")
    parser.add_argument("--modes", default="eager,compile")
    parser.add_argument("--brim", default=os.environ.get("BRIM_BINARY", "build/release/bin/brim"))
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer(options)
        return
    for case in options.cases.split(","):
        with tempfile.TemporaryDirectory(prefix="brim-bench-") as name:
            words = words_of(case, pathlib.Path(name))
            contenders = {mode: lambda mode=mode: run_peer(options, case, mode) for mode in options.modes.split(",")
                          if mode}
            for brim, sizes in BRIM.items():
                contenders[brim] = lambda sizes=sizes: run_brim(options, words, *sizes)
            train(options, words, *BRIM["brim 4 x 1"], 1)  # not counted: it brings the model's file into memory
            results = {contender: [] for contender in contenders}
            for turn in range(options.rounds):
                # every second round goes in reverse order, so that no program always comes second
                for contender in list(contenders)[::1 if turn % 2 == 0 else -1]:
                    results[contender].append(contenders[contender]())
                    print(f"{case}: round {turn + 1}/{options.rounds} {contender}: {results[contender][-1]}",
                          file=sys.stderr)
            print_case(case, results)


if __name__ == "__main__":
    main()
