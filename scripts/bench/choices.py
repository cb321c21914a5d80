"""Compares brim eval with transformers, question by question, as the package lm-eval scores them.

    python3 scripts/bench/choices.py BRIM MODEL LM_EVAL TEXT [FOLDER]

MODEL is a model's folder as Hugging Face has it, LM_EVAL the folder of the installed package lm_eval (0.4.13; only its
questions are read), TEXT a file of text. The questions are those of MMLU in tasks/mmlu/flan_cot_fewshot. The
log-likelihoods are computed as lm_eval's HFLM.loglikelihood does (continuation after context, whitespace at the end of
the context moved to the continuation), in fp32; accuracies by the formulas of its multiple-choice tasks. FOLDER keeps
the files, so that a second run reads the reference from them. Needs torch and transformers."""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

CONTEXT, STRIDE = 512, 256
LETTERS = "ABCDE"


def read_questions(package):
    """The questions of MMLU with subject, choices and the index of the answer."""
    prompts = json.loads((package / "tasks/mmlu/flan_cot_fewshot/_cot_prompts.json").read_text(encoding="utf-8"))
    for subject, text in prompts.items():
        for part in re.split(r"\n\nQ: ", text)[1:]:
            question, _, reasoning = part.partition("\nA: ")
            text, *rest = re.split(r"\s*\(([A-E])\)\s*", question)
            answer = re.search(r"answer is \(([A-E])\)", reasoning)
            if answer and "".join(rest[::2]) in ("ABCD", "ABCDE"):
                yield {"subject": subject, "question": text, "choices": rest[1::2],
                       "answer": LETTERS.index(answer[1])}


def prompts_of(doc):
    """The context and the continuations of lm-eval's tasks/mmlu/default, or with whole answers as those of ARC."""
    if "subject" not in doc:
        return f"Question: {doc['question']}\nAnswer:", [" " + choice for choice in doc["choices"]]
    head = f"The following are multiple choice questions (with answers) about {doc['subject'].replace('_', ' ')}.\n\n"
    lines = "".join(f"\n{letter}. {choice}" for letter, choice in zip(LETTERS, doc["choices"]))
    return f"{head}{doc['question'].strip()}{lines}\nAnswer:", [
        f" {letter}" for letter, _ in zip(LETTERS, doc["choices"])]


class Reference:
    def __init__(self, folder):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        self.torch = torch
        torch.set_num_threads(2)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.last = None, None

    def log_likelihoods(self, tokens):
        """Of each token after the first."""
        torch = self.torch
        if self.last[0] != tokens[:-1]:  # the letters of a question have the same context
            with torch.no_grad():
                logits = self.model(torch.tensor([tokens[:-1]])).logits[0].double()
            self.last = tokens[:-1], torch.log_softmax(logits, -1)
        return self.last[1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]

    def score(self, context, continuation):
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        whole, before = (self.tokenizer.encode(text) for text in (context + continuation, context))
        return float(self.log_likelihoods(whole)[len(before) - 1:].sum())

    def perplexity(self, text):
        """As https://huggingface.co/docs/transformers/perplexity, with every scored token weighted equally."""
        tokens = self.tokenizer.encode(text)
        total, scored, end = 0.0, 0, 0
        for begin in range(0, len(tokens), STRIDE):
            before, end = end, min(begin + CONTEXT, len(tokens))
            some = self.log_likelihoods(tokens[begin:end])[max(before - begin - 1, 0):]
            total -= float(some.sum())
            scored += len(some)
            if end == len(tokens):
                break
        return {"tokens": len(tokens), "scored": scored, "nats_per_token": total / scored,
                "bits_per_byte": total / math.log(2) / len(text.encode())}


def refer(model, docs, text):
    reference, rows = Reference(model), []
    for doc in docs:
        context, continuations = prompts_of(doc)
        scores = [reference.score(context, continuation) for continuation in continuations]
        lengths = [len(text) - 1 for text in continuations]
        norm = [score / length for score, length in zip(scores, lengths)]
        rows.append({"log_likelihood": scores, "prediction": scores.index(max(scores)),
                     "prediction_norm": norm.index(max(norm))})
    return {"scores": rows, "text": reference.perplexity(text)}


def main(brim, model, package, text, folder=None):
    folder = pathlib.Path(folder or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    docs = list(read_questions(pathlib.Path(package)))
    docs += [{key: doc[key] for key in ("question", "choices", "answer")} for doc in docs[::6]]
    questions, kept = folder / "questions.jsonl", folder / "reference.json"
    questions.write_text("".join(json.dumps(doc) + "\n" for doc in docs), encoding="utf-8")
    if not kept.exists():
        kept.write_text(json.dumps(refer(model, docs, pathlib.Path(text).read_text(encoding="utf-8"))))
    want = json.loads(kept.read_text())

    def evaluate(*words):
        return json.loads(subprocess.run([brim, "eval", model, *words, "--json"], check=True, text=True,
                                         stdout=subprocess.PIPE).stdout)

    got = evaluate("--text", text, "--context", str(CONTEXT), "--stride", str(STRIDE))
    for key, value in want["text"].items():
        print(f"{key}: {got[key]} and {value}, relative difference {abs(got[key] / value - 1):.1e}")
    got = evaluate("--choices", str(questions))
    for name in "prediction", "prediction_norm":
        same = sum(a[name] == b[name] for a, b in zip(got["scores"], want["scores"]))
        right = sum(row[name] == doc["answer"] for row, doc in zip(want["scores"], docs))
        print(f"{name}: {same} of {len(docs)} the same; {right} right by the reference")
    print("accuracy", got["accuracy"], "length-normalised", got["accuracy_norm"])
    print("largest difference of a log-likelihood",
          max(abs(x - y) for a, b in zip(got["scores"], want["scores"])
              for x, y in zip(a["log_likelihood"], b["log_likelihood"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
