#!/usr/bin/env python3
"""Compares dataset=chat with transformers: the tokens of drawn conversations, and which of them count.

    scripts/bench/chat_masks.py --brim build/release/bin/brim --templates SITE-PACKAGES/trl/chat_templates \\
        --tokenizer SmolLM2-135M/tokenizer.json

Needs transformers and jinja2, and the templates of the package trl. For templates with {% generation %} the ids and the
mask must be those of apply_chat_template(return_assistant_tokens_mask=True); for the others the ids must be equal, and
the tokens that count must contain every answer. Conversations that a template refuses are left out."""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

WORDS = ("a I the of memory don't step 12 3.5 x=1; (yes) café naïve 東京 🙂 \n\n - \t e\u0301 Ünï no. <b> {% "
         "'quoted' \"two\"").split(" ")
SPECIAL = (r"<[|｜][^<>'\"{}\s]{1,40}[|｜]>|<(?:start|end)_of_(?:turn|utterance)>|<turn\|>|<\|turn>|</s>|<eos>|"
           r"\[/?INST\]")


def text(draw):
    return (" ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 25)))).strip() or "a"


def conversation(draw):
    messages = [{"role": "system", "content": text(draw)}] if draw.random() < 0.4 else []
    for _ in range(draw.randint(1, 3)):
        messages += [{"role": "user", "content": text(draw)}, {"role": "assistant", "content": text(draw)}]
    return {"messages": messages}


def make_tokenizer(path, template, folder):
    """Returns the tokenizer with the template's special tokens."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<|im_start|>", eos_token="<|im_end|>")
    special = sorted(set(re.findall(SPECIAL, template)))
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(template)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def brim_samples(brim, folder, rows):
    """Returns the tokens of each row and the flags of those that count, or a text if brim refuses the rows."""
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["model=decoder", "dataset=chat", f"dataset.tokenizer={folder}", f"dataset.path={folder}/a.jsonl",
             "dataset.context=8192", "dataset.packing=false", f"dataset.cache={folder}"]
    run = subprocess.run([brim, "data", "--json", "--samples", str(len(rows)), *words], capture_output=True, text=True,
                         check=False)
    return json.loads(run.stdout)["samples"] if run.returncode == 0 else run.stderr


def expected(tokenizer, row, marks):
    try:
        out = tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=True,
                                            return_assistant_tokens_mask=marks)
    except Exception as problem:  # pylint: disable=broad-except
        return None, str(problem)
    return out["input_ids"], out.get("assistant_masks")


def compare(tokenizer, row, sample, marks):
    """Returns the first difference in a sample, or None."""
    ids, mask = expected(tokenizer, row, marks)
    count = len(sample["tokens"])
    if sample["tokens"] != ids[:count]:
        return f"other ids\n{sample['tokens']}\n{ids}"
    if marks:
        mask = [0, *mask[1:]]
        # if the last character of a mark has several tokens, transformers leaves out all but the first
        parts = {i for i in range(count) if "\ufffd" in tokenizer.decode([ids[i]])}
        if any(int(sample["counts"][i]) != mask[i] for i in range(count) if i not in parts) or any(mask[count:]):
            return f"another mask\n{[int(c) for c in sample['counts']]}\n{mask}"
        return None
    counted = "".join(part["text"] for part in sample["parts"] if part["counts"])
    for message in row["messages"]:
        if message["role"] == "assistant" and message["content"].strip() not in counted:
            return f"an answer does not count: {message['content']!r} in {counted!r}"
        if message["role"] == "user" and len(message["content"]) > 30 and message["content"].strip() in counted:
            return "a question counts"
    return None


def check(arguments, path):
    draw = random.Random(arguments.seed)
    template = path.read_text()
    marks = "endgeneration" in template
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokenizer = make_tokenizer(arguments.tokenizer, template, folder)
        rows = [conversation(draw) for _ in range(arguments.count)]
        rows = [row for row in rows if expected(tokenizer, row, marks)[0] is not None]
        if not rows:
            return "refused by transformers"
        samples = brim_samples(arguments.brim, folder, rows)
        if isinstance(samples, str):
            return f"refused by brim: {samples.strip()[:1000]}"
        if len(samples) != len(rows):
            return f"DIFFERS: {len(samples)} samples of {len(rows)} rows"
        for row, sample in zip(rows, samples):
            problem = compare(tokenizer, row, sample, marks)
            if problem:
                return f"DIFFERS: {problem} {row}"
    return f"{len(rows)} conversations: the same ids" + (" and masks" if marks else "; all answers count")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brim", required=True, type=os.path.abspath)
    parser.add_argument("--templates", required=True, type=pathlib.Path, help="a folder of *.jinja")
    parser.add_argument("--tokenizer", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    different = 0
    for path in sorted(arguments.templates.glob("*.jinja")):
        if arguments.only in path.name:
            result = check(arguments, path)
            different += result.startswith("DIFFERS")
            print(f"{path.name}: {result}", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
