"""Compares brim eval with lm-eval and transformers, question by question.

    python3 -m venv ENV
    ENV/bin/pip install torch transformers==5.23.0 lm-eval==0.4.13
    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb WORDNET
    ENV/bin/python scripts/bench/choices.py BRIM MODEL TEXT WORDNET/usr/share/wordnet [FOLDER]

MODEL is a model's folder as Hugging Face has it, TEXT a file of text, whose perplexity is compared too. lm-eval answers
the 282 questions of MMLU that it brings, in tasks/mmlu/flan_cot_fewshot, by its template for MMLU, and 1,000 questions
made of WordNet, for the meaning of a noun, by its template for ARC; all in fp32. FOLDER keeps questions and reference,
so that a second run reads them from there."""

import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
CONTEXT, STRIDE, WORDS = 512, 384, 1000
LETTERS = "ABCDE"
METRICS = [{"metric": "acc", "aggregation": "mean"}, {"metric": "acc_norm", "aggregation": "mean"}]
TASKS = {
    # the template of tasks/mmlu/default, for any number of choices, because one question has five
    "mmlu": {"description": "The following are multiple choice questions (with answers) about "
                            "{{subject.replace('_', ' ')}}.\n\n",
             "doc_to_text": "{{question.strip()}}{% for choice in choices %}\n{{'ABCDE'[loop.index0]}}. {{choice}}"
                            "{% endfor %}\nAnswer:",
             "doc_to_choice": "{{['A', 'B', 'C', 'D', 'E'][:choices|length]}}", "doc_to_target": "answer"},
    # tasks/arc/arc_easy
    "wordnet": {"doc_to_text": "Question: {{question}}\nAnswer:", "doc_to_choice": "{{choices}}",
                "doc_to_target": "answer"}}


def read_mmlu(package):
    """Returns the questions of MMLU with subject, choices and the index of the answer."""
    prompts = json.loads((package / "tasks/mmlu/flan_cot_fewshot/_cot_prompts.json").read_text(encoding="utf-8"))
    for subject, text in prompts.items():
        for part in re.split(r"\n\nQ: ", text)[1:]:
            question, _, reasoning = part.partition("\nA: ")
            text, *rest = re.split(r"\s*\(([A-E])\)\s*", question)
            answer = re.search(r"answer is \(([A-E])\)", reasoning)
            if answer and "".join(rest[::2]) in ("ABCD", "ABCDE"):
                yield {"subject": subject, "question": text, "choices": rest[1::2],
                       "answer": LETTERS.index(answer[1])}


def read_wordnet(folder):
    """Returns questions for the meaning of a noun. The wrong answers are meanings of other nouns of the same field."""
    fields = {}
    for line in (folder / "data.noun").read_text(encoding="utf-8").splitlines():
        head, _, meaning = line.partition(" | ")
        words = head.split(" ")
        meaning = meaning.split(";")[0].strip()
        if not line.startswith(" ") and "_" not in words[4] and 8 <= len(meaning) <= 50:
            fields.setdefault(words[1], []).append((words[4], meaning))
    draw = random.Random(29)
    while True:
        field = draw.choice(sorted(name for name, members in fields.items() if len(members) >= 100))
        some, answer = draw.sample(fields[field], 4), draw.randrange(4)
        if len({meaning for _, meaning in some}) == 4:
            yield {"question": f"What does the word {some[answer][0]} mean?", "choices": [m for _, m in some],
                   "answer": answer}


class Reference:
    def __init__(self, folder):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        self.torch, self.folder = torch, folder
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def log_likelihoods(self, tokens):
        """Returns the log-likelihood of each token after the first."""
        torch = self.torch
        with torch.no_grad():
            logits = self.model(torch.tensor([tokens[:-1]])).logits[0].double()
        return torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]

    def perplexity(self, text):
        """Computes the perplexity as https://huggingface.co/docs/transformers/perplexity, with every scored token
        weighted equally."""
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
                "perplexity": math.exp(total / scored), "bits_per_byte": total / math.log(2) / len(text.encode())}

    def answers(self, name, file):
        """Returns lm-eval's scores of each question, and its accuracies."""
        import lm_eval
        from lm_eval.models.huggingface import HFLM
        model = HFLM(pretrained=self.model, tokenizer=self.tokenizer, batch_size=8, device="cpu")
        task = {"task": f"brim_{name}", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}},
                "test_split": "test", "output_type": "multiple_choice", "metric_list": METRICS, **TASKS[name]}
        result = lm_eval.simple_evaluate(model, tasks=[task], num_fewshot=0, log_samples=True, bootstrap_iters=0)
        samples = sorted(result["samples"][task["task"]], key=lambda sample: sample["doc_id"])
        figures = result["results"][task["task"]]
        return {"accuracy": figures["acc,none"], "accuracy_norm": figures["acc_norm,none"],
                "log_likelihood": [[score[0] for score in sample["filtered_resps"]] for sample in samples],
                "right": [sample["acc"] for sample in samples],
                "right_norm": [sample["acc_norm"] for sample in samples]}


def compare_answers(docs, got, want):
    """Compares the scores of each question, and whether it counts as right."""
    for key, prediction in ("right", "prediction"), ("right_norm", "prediction_norm"):
        same = sum((row[prediction] == doc["answer"]) == bool(right)
                   for row, doc, right in zip(got["scores"], docs, want[key]))
        print(f"  {prediction}: judged alike {same} of {len(docs)}; right by lm-eval {sum(want[key]):.0f}")
    best = sum(row["prediction"] == scores.index(max(scores))
               for row, scores in zip(got["scores"], want["log_likelihood"]))
    print(f"  the same choice {best} of {len(docs)}")
    for key in "accuracy", "accuracy_norm":
        print(f"  {key}: {got[key]:.6f} and {want[key]:.6f}")
    print("  largest difference of a log-likelihood: {:.1e}".format(
        max(abs(x - y) for a, b in zip(got["scores"], want["log_likelihood"]) for x, y in zip(a["log_likelihood"], b))))


def main(brim, model, text, wordnet, folder=None):
    folder = pathlib.Path(folder or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    reference = []

    def kept(name, work):
        path = folder / f"{name}.json"
        if not path.exists():
            if not reference:
                reference.append(Reference(model))
            path.write_text(json.dumps(work(reference[0])))
        return json.loads(path.read_text())

    def evaluate(*words):
        return json.loads(subprocess.run([brim, "eval", model, *words, "--json"], check=True, text=True,
                                         stdout=subprocess.PIPE).stdout)

    for name in TASKS:
        file = folder / f"{name}.jsonl"
        if not file.exists():
            import lm_eval
            made = read_wordnet(pathlib.Path(wordnet))
            docs = ([next(made) for _ in range(WORDS)] if name == "wordnet"
                    else read_mmlu(pathlib.Path(lm_eval.__file__).parent))
            file.write_text("".join(json.dumps(doc) + "\n" for doc in docs), encoding="utf-8")
        docs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        print(f"{name}: {len(docs)} questions", flush=True)
        want = kept(f"{name}-reference", lambda reference: reference.answers(name, file))
        compare_answers(docs, evaluate("--choices", str(file)), want)
    want = kept("text", lambda reference: reference.perplexity(pathlib.Path(text).read_text(encoding="utf-8")))
    got = evaluate("--text", text, "--context", str(CONTEXT), "--stride", str(STRIDE))
    for key, value in want.items():
        print(f"{key}: {got[key]} and {value}, relative difference {abs(got[key] / value - 1):.1e}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
