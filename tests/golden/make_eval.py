#!/usr/bin/env python3
"""Makes the folder eval/: a drawn language model, questions, a text, and transformers' results for them.

    python3 tests/golden/make_eval.py           # needs transformers 5 and torch; writes into this folder

eval/model has config.json and model.safetensors; its tokenizer is tokenizers/llama3.json, which puts a token before
each text. questions.jsonl has the keys of MMLU, ARC, HellaSwag, and question, choices and answer; shots.jsonl has
examples.
answers.json: for each question the log-likelihoods of its choices without examples (`scores`) and the first question's
with two (`shots`), and for text.txt the mean over tokens in windows (`windows`). Prompts and scores follow
lm-evaluation-harness 0.4.13 (tasks arc, hellaswag, mmlu; HFLM.loglikelihood), windows
https://huggingface.co/docs/transformers/perplexity. All in double precision.
"""
import json
import pathlib
import re
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1] / "scripts" / "bench")]
import choices  # noqa: E402
import make_decoder  # noqa: E402

TEXT = ("A window moves over this text. Each token is scored once; the others are context. "
        "Naïve? Perhaps: ∑ 1/n. ") * 3
WINDOWS = [(64, 32), (64, 63), (24, 5), (600, 100)]
SHOTS = [
    {"subject": "high_school_geography", "question": "Where is the Rhine?", "choices": ["Europe", "Asia"], "answer": 0},
    {"subject": "anatomy", "question": "How many hearts?", "choices": ["one", "two", "three"], "answer": "A"},
    {"subject": "high_school_geography", "question": "The capital of Spain?", "choices": ["Rome", "Madrid"],
     "answer": "1"},
]
QUESTIONS = [
    {"subject": "high_school_geography", "question": " The capital of France?\n", "answer": 1,
     "choices": ["Rome", "Paris", "Bonn", "Oslo"]},
    {"id": "x", "question": "Which animal barks?", "answerKey": "3",
     "choices": {"text": ["a cat", "a dog — it does", "fish"], "label": ["1", "2", "3"]}},
    {"ind": 4, "activity_label": "Cooking", "ctx_a": "He opens  a fridge.", "ctx_b": "éCOLE and [x] ", "label": "0",
     "endings": ["eggs out. [title] He cooks.", "the moon [step] away  now.", "bread"]},
    {"question": "Two and two is", "choices": ["three", "four, naïvely", "∑"], "answer": "B"},
    {"activity_label": "Ends in a space", "ctx_a": "He", "ctx_b": "x [step]", "label": 1, "endings": ["goes", "is"]},
]


def clean(text):
    text = re.sub("\\[.*?\\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def prompt(doc):
    """Returns the text before the answers, and the answers."""
    if "endings" in doc:
        context = doc["activity_label"] + ": " + doc["ctx_a"] + " " + doc["ctx_b"].capitalize()
        return clean(context), [" " + clean(ending) for ending in doc["endings"]]
    if "answerKey" in doc:
        return f"Question: {doc['question']}\nAnswer:", [" " + text for text in doc["choices"]["text"]]
    return choices.prompts_of(doc)


class Double(choices.Reference):
    def __init__(self, tokenizer, model):
        self.torch, self.tokenizer, self.model, self.last = torch, tokenizer, model, (None, None)


def lines(path, docs):
    path.write_text("".join(json.dumps(doc, ensure_ascii=False) + "\n" for doc in docs), encoding="utf-8")


def main():
    out = FOLDER / "eval"
    shutil.rmtree(out, ignore_errors=True)
    (out / "model").mkdir(parents=True)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(FOLDER / "tokenizers" / "llama3.json"))
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, hidden_size=8, head_dim=6,
        intermediate_size=12, vocab_size=402, max_position_embeddings=768, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=None, pad_token_id=None)
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.8 + (parameter.dim() == 1))
    config.architectures = ["LlamaForCausalLM"]
    (out / "model" / "config.json").write_text(config.to_json_string())
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items() if name != "lm_head.weight"},
              out / "model" / "model.safetensors", metadata={"format": "pt"})
    reference = Double(tokenizer, make_decoder.in_double(model).eval())
    lines(out / "questions.jsonl", QUESTIONS)
    lines(out / "shots.jsonl", SHOTS)
    (out / "text.txt").write_text(TEXT, encoding="utf-8")
    answers = {"scores": [[reference.score(context, answer) for answer in continuations]
                          for context, continuations in map(prompt, QUESTIONS)], "windows": []}
    head = "The following are multiple choice questions (with answers) about high school geography.\n\n"
    examples = "".join(body.removeprefix(head) + " " + "ABC"[int(doc["answer"])] + "\n\n"
                       for doc in SHOTS if doc["subject"] == "high_school_geography" for body, _ in [prompt(doc)])
    body, continuations = prompt(QUESTIONS[0])
    answers["shots"] = [reference.score(head + examples + body.removeprefix(head), c) for c in continuations]
    for choices.CONTEXT, choices.STRIDE in WINDOWS:
        found = reference.perplexity(TEXT)
        answers["windows"].append({"context": choices.CONTEXT, "stride": choices.STRIDE, **found})
    (out / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
