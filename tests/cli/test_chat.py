"""Tests dataset=chat and brim data: conversations as JSON lines, the tokens that count, packed rows, kept tokens."""

import json
import pathlib
import random
import re
import shutil

from support import LOAD, USAGE, Case, main, plain, some_of

TOKENIZER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizers" / "llama3.json"
BEGIN, END = "<|begin|>", "<|end_of_text|>"
PLAIN = ("{% for m in messages %}{{ '<|begin|>' + m['role'] + '\\n' + m['content'] + '<|end_of_text|>\\n' }}"
         "{% endfor %}{% if add_generation_prompt %}{{ '<|begin|>assistant\\n' }}{% endif %}")
MARKED = ("{% for m in messages %}{{ '<|begin|>' + m['role'] + '\\n' }}{% if m['role'] == 'assistant' %}"
          "{% generation %}{{ m['content'] + '<|end_of_text|>' }}{% endgeneration %}{% else %}"
          "{{ m['content'] + '<|end_of_text|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|begin|>assistant\\n' }}{% endif %}")
# Drops the thoughts of earlier answers, as Qwen3's does.
FORGETFUL = ("{% for m in messages %}{{ '<|begin|>' + m['role'] + '\\n' }}"
             "{% if m['role'] == 'assistant' and not loop.last %}{{ m['content'].split('</think>')[-1] }}"
             "{% else %}{{ m['content'] }}{% endif %}{{ '<|end_of_text|>\\n' }}"
             "{% endfor %}{% if add_generation_prompt %}{{ '<|begin|>assistant\\n' }}{% endif %}")
MODEL = ["model=decoder", "model.layers=1", "model.heads=2", "model.width=16", "model.mlp_width=24",
         "model.context=96", "memory.timing=false", "optimizer.lr=1e-2"]
DATA = ["dataset=chat", "dataset.tokenizer=tok", "dataset.path=a.jsonl", "dataset.context=96"]
WORDS = "the memory of a step is known before it begins and no sample sees another one".split()


def messages(*contents, system=None):
    roles = ["user", "assistant"] * len(contents)
    rows = [{"role": role, "content": content} for role, content in zip(roles, contents)]
    return {"messages": ([{"role": "system", "content": system}] if system else []) + rows}


class Chat(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "tok").mkdir()
        shutil.copy(TOKENIZER, self.folder / "tok" / "tokenizer.json")
        config = {"eos_token": END, "bos_token": {"content": BEGIN}, "chat_template": PLAIN}
        (self.folder / "tok" / "tokenizer_config.json").write_text(json.dumps(config))

    def template(self, text):
        (self.folder / "tok" / "chat_template.jinja").write_text(text)

    def write(self, *rows, name="a.jsonl"):
        (self.folder / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

    def data(self, *words, **more):
        """Returns the report of `brim data`, with all samples."""
        words = ["model=decoder", *DATA, *words]
        return self.brim("data", "--samples", 1000, "--json", *words, **more).json

    def marked(self, *words):
        """Returns the text of the first sample, with the tokens that count between brackets."""
        return self.marks(self.data(*words)["samples"][0])

    @staticmethod
    def marks(sample):
        return "".join(f"[{part['text']}]" if part["counts"] else part["text"] for part in sample["parts"])

    def drawn(self, count, most, seed=1):
        draw = random.Random(seed)
        def text(length):
            return " ".join(draw.choice(WORDS) for _ in range(length))
        return [messages(text(draw.randint(1, 4)), text(draw.randint(1, most))) for _ in range(count)]


class Forms(Chat):
    def test_one_conversation_in_all_forms_has_the_same_tokens(self):
        question, answer = "the sum of 2 and 3\n\nas é €", "it is 5"
        forms = [messages(question, answer, system="be brief"),
                 {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}],
                  "system": "be brief"},
                 {"conversations": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}],
                  "system": "be brief"},
                 {"instruction": "the sum of 2 and 3", "input": "as é €", "output": answer, "system": "be brief"},
                 {"prompt": messages(question, answer, system="be brief")["messages"][:2],
                  "completion": [{"role": "assistant", "content": answer}]}]
        samples = []
        for form in forms:
            self.write(form)
            samples.append(self.data()["samples"][0])
        for sample in samples[1:]:
            self.assertEqual(sample, samples[0])
        self.assertEqual(self.marks(samples[0]), f"{BEGIN}system\nbe brief{END}\n{BEGIN}user\n{question}{END}\n"
                                                 f"{BEGIN}assistant\n[{answer}{END}]")

    @plain
    def test_texts_need_no_template(self):
        self.write({"prompt": "2 + 2 =", "completion": " 4"}, {"prompt": "", "completion": "more"})
        self.assertEqual(self.marked("dataset.packing=false"), f"{BEGIN}2 + 2 =[ 4{END}]")
        self.write({"text": "a text"})
        sample = self.data()["samples"][0]
        self.assertTrue(all(sample["counts"][1:]))
        self.assertEqual("".join(part["text"] for part in sample["parts"]), f"{BEGIN}a text{END}")

    @plain
    def test_several_files_and_blank_lines(self):
        self.write(*self.drawn(3, 4))
        rows = [json.dumps({"text": text}) for text in ("one", "two")]
        (self.folder / "b.jsonl").write_text(f"\n{rows[0]}\r\n\n{rows[1]}")
        report = self.data("dataset.path=[a.jsonl,b.jsonl]")["splits"]["train"]
        self.assertEqual((report["documents"], report["report"]["conversations"]), (5, 5))


class Learn(Chat):
    turns = messages("one", "first", "two", "second")

    def test_answers_are_found_by_rendering_and_by_marks_alike(self):
        self.write(self.turns)
        for learn, first, second in [("answers", True, True), ("last", False, True)]:
            want = (f"{BEGIN}user\none{END}\n{BEGIN}assistant\n" + (f"[first{END}]" if first else f"first{END}") +
                    f"\n{BEGIN}user\ntwo{END}\n{BEGIN}assistant\n[second{END}]")
            for template in (PLAIN, MARKED):
                self.template(template)
                self.assertEqual(self.marked(f"dataset.learn={learn}"), want)
        self.write({"prompt": self.turns["messages"][:3], "completion": self.turns["messages"][3:]})
        for template in (PLAIN, MARKED):  # the first answer belongs to the prompt, so it does not count
            self.template(template)
            self.assertEqual(self.marked(), want)
        whole = "{{ m['content'] + '<|end_of_text|>' }}{% endgeneration %}"
        self.template(MARKED.replace(whole, "{{ m['content'] }}{% endgeneration %}: {% generation %}"
                                            "{{ '<|end_of_text|>' }}{% endgeneration %}"))
        self.assertEqual(self.marked(), want.replace("first", "first: ").replace(f"second{END}", f"second]: [{END}"))
        for template in (PLAIN, MARKED):
            self.template(template)
            self.assertTrue(all(self.data("dataset.learn=all")["samples"][0]["counts"][1:]))

    @plain
    def test_a_template_that_rewrites_earlier_turns_is_for_last_answers_only(self):
        self.template(FORGETFUL)
        self.write(messages("one", "<think>a</think>first", "two", "<think>b</think>second"))
        for learn in ("answers", "all"):
            result = self.brim("data", "model=decoder", *DATA, f"dataset.learn={learn}", status=LOAD)
            self.assert_error(result, "a.jsonl:1: the template renders message 2 in another way", "dataset.learn=last")
        self.assertIn(f"first{END}\n", self.marked("dataset.learn=last"))
        self.assertTrue(self.marked("dataset.learn=last").endswith(f"[<think>b</think>second{END}]"))

    @plain
    def test_a_token_that_has_a_part_of_an_answer_counts(self):
        """The template puts a space before the answer, and the tokenizer joins it with the first word. The joint token
        counts, as in transformers."""
        self.template("{% for m in messages %}{{ m['role'] }}:{% if m['role'] == 'assistant' %}{{ ' ' }}"
                      "{% generation %}{{ m['content'] + '<|end_of_text|>' }}{% endgeneration %}{% else %}"
                      "{{ m['content'] }}{% endif %}{% endfor %}")
        self.write(messages("a", "the end"))
        self.assertEqual(self.marked(), f"user:aassistant:[ the end{END}]")

    def test_messages_after_the_last_answer_are_left_out_and_counted(self):
        self.write(messages("one", "first", "two"))
        data = self.data()
        self.assertTrue(self.marks(data["samples"][0]).endswith(f"[first{END}]"))
        self.assertEqual(data["splits"]["train"]["report"]["left out"]["conversations without a last answer"], 1)


class Golden(Chat):
    def test_tokens_and_what_counts_are_those_of_transformers(self):
        golden = json.loads((TOKENIZER.parents[1] / "chat" / "cases.json").read_text())
        groups = {}
        for case in golden["cases"]:
            groups.setdefault((case["tokenizer"], case["template"]), []).append(case)
        self.assertEqual(len(groups), 12)
        for (tokenizer, template), cases in some_of(groups.items(), 4):
            with self.subTest(tokenizer=tokenizer, template=template):
                shutil.copy(TOKENIZER.parent / f"{tokenizer}.json", self.folder / "tok" / "tokenizer.json")
                begin, end = golden["tokenizers"][tokenizer]
                config = {"bos_token": begin, "eos_token": end, "chat_template": golden["templates"][template]}
                (self.folder / "tok" / "tokenizer_config.json").write_text(json.dumps(config))
                self.write(*({"messages": case["messages"]} for case in cases))
                samples = self.data("dataset.packing=false", "dataset.context=512")["samples"]
                for case, sample in zip(cases, samples, strict=True):
                    last = max(i for i, counts in enumerate(case["mask"]) if counts) + 1
                    self.assertEqual(sample["tokens"], case["ids"][:last])
                    self.assertEqual([int(counts) for counts in sample["counts"]], [0, *case["mask"][1:last]])


class Refused(Chat):
    def test_rows_that_cannot_be_learnt_are_refused_with_file_and_line(self):
        good = json.dumps(messages("a", "b"))
        cases = [('{"messages": [', "a.jsonl:2:14: not JSON"),
                 ("[1]", "a.jsonl:2: a list, but each line must be a row"),
                 ('"text"', "a.jsonl:2: the row is not an object"),
                 ('{"text": "a"}', 'a.jsonl:2: the row has no "messages"'),
                 (messages("a", " \n"), "a.jsonl:2: message 2 is an empty answer"),
                 (messages("a"), "a.jsonl:2: the conversation has no answer"),
                 ({"messages": []}, "a.jsonl:2: the conversation has no answer"),
                 ({"messages": messages("a", "b")["messages"][::-1]},
                  "a.jsonl:2: roles out of order: the first message is of 'assistant'"),
                 ({"messages": messages("a")["messages"] * 2}, "message 2 is of 'user' after one of 'user'"),
                 ({"messages": messages("a", "b")["messages"] + [{"role": "system", "content": "c"}]},
                  "message 3 is of 'system' after one of 'assistant'"),
                 ({"messages": [{"role": "owner", "content": "a"}]}, "message 1 is of the unknown role 'owner'"),
                 ({"messages": [{"role": "user"}]}, 'message 1 has no "content"'),
                 ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "a part of type 'image'"),
                 ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "a.jsonl:2:")]
        for row, text in cases:
            with self.subTest(text):
                row = row if isinstance(row, str) else json.dumps(row)
                (self.folder / "a.jsonl").write_text(f"{good}\n{row}\n")
                self.assert_error(self.brim("data", "model=decoder", *DATA, status=LOAD), text)

    def test_files_that_are_no_conversations_are_refused(self):
        cases = [("", "'a.jsonl' is empty"), ("[\n{}\n]", "a.jsonl:1: a list that spans lines"),
                 ('{"question": "a"}', 'the form of the rows is unknown: the first key is "question"'),
                 ('{"chosen": "a", "rejected": "b"}', "learning from preferences")]
        for text, message in cases:
            with self.subTest(message):
                (self.folder / "a.jsonl").write_text(text)
                self.assert_error(self.brim("data", "model=decoder", *DATA, status=LOAD), message)
        self.assert_error(self.brim("data", "model=decoder", *DATA, "dataset.path=no.jsonl", status=LOAD),
                          "cannot open 'no.jsonl'")

    @plain
    def test_an_answer_whose_end_would_not_be_learnt_is_refused(self):
        self.write(messages("a", "b"), messages("a", "b"))
        for template in (PLAIN.replace("+ '<|end_of_text|>\\n'", "+ '\\n'"),
                         MARKED.replace("{{ m['content'] + '<|end_of_text|>' }}{% endgeneration %}",
                                        "{{ m['content'] }}{% endgeneration %}{{ '<|end_of_text|>' }}")):
            self.template(template)
            result = self.brim("train", *MODEL, *DATA, "run.dir=run", status=LOAD)
            self.assert_error(result, "a.jsonl:1: the end of an answer would not be learnt",
                              "the last token that counts is 'b'")
        self.assertFalse((self.folder / "run").exists())

    def test_a_model_without_a_template_is_refused(self):
        config = {"eos_token": END}
        (self.folder / "tok" / "tokenizer_config.json").write_text(json.dumps(config))
        self.write(messages("a", "b"))
        self.assert_error(self.brim("data", "model=decoder", *DATA, status=USAGE), "chat template", "dataset.template")
        (self.folder / "own.jinja").write_text(PLAIN)
        self.assert_error(self.brim("data", "model=decoder", *DATA, "dataset.template=none.jinja", status=LOAD),
                          "these come with brim", "chatml")
        self.assertIn(f"### Response:\n[b{END}]", self.marked("dataset.template=alpaca"))
        self.assertNotIn("tokenizing", self.brim("data", "model=decoder", *DATA, "dataset.template=alpaca").err)
        self.assertIn("1 document\n", self.brim("data", "model=decoder", *DATA, "dataset.template=own.jinja").out)

    @plain
    def test_more_tokens_than_the_table_has_rows_are_refused(self):
        self.write(messages("a", "b"))
        result = self.brim("train", *MODEL, *DATA, "model.vocabulary=300", status=USAGE)
        self.assert_error(result, "402", "300")


class TooLong(Chat):
    def setUp(self):
        super().setUp()
        self.write(messages("a", "short"), messages("b", " ".join(WORDS * 14)), messages("c", "d"))

    @plain
    def test_conversations_that_are_too_long_are_refused_with_numbers(self):
        result = self.brim("train", *MODEL, *DATA, status=LOAD)
        self.assert_error(result, "1 of 3 conversations have more tokens than dataset.context=96 has room for",
                          "a.jsonl:2", "dataset.too_long=cut", "dataset.too_long=skip")
        need = int(result.err.split("dataset.context=")[2].split(",")[0])
        self.assertEqual(self.data(f"dataset.context={need}")["splits"]["train"]["documents"], 3)

    def test_they_are_cut_or_skipped_and_counted(self):
        for how, documents, counts in (("cut", 3, {"conversations cut": 1, "conversations too long": 0}),
                                       ("skip", 2, {"conversations cut": 0, "conversations too long": 1})):
            data = self.data(f"dataset.too_long={how}", "dataset.packing=false")
            split = data["splits"]["train"]
            self.assertEqual(split["documents"], documents)
            self.assertEqual(counts, {key: split["report"]["left out"][key] for key in counts})
            self.assertLessEqual(max(len(sample["tokens"]) for sample in data["samples"]), 97)


@plain
class Splits(Chat):
    def test_the_test_split_is_another_file_or_an_even_share(self):
        self.write(*self.drawn(20, 8))
        self.write(*self.drawn(3, 8, seed=2), name="b.jsonl")
        splits = self.data("dataset.test=b.jsonl", "dataset.validation=b.jsonl")["splits"]
        self.assertEqual([splits[s]["documents"] for s in ("train", "validation", "test")], [20, 3, 3])
        splits = self.data("dataset.test_fraction=0.25")["splits"]
        self.assertEqual([splits[s]["documents"] for s in ("train", "test")], [15, 5])


class Kept(Chat):
    def setUp(self):
        super().setUp()
        self.write(*self.drawn(50, 8))

    def kept(self):
        return sorted((self.folder / "cache" / "brim").glob("chat-*.bin"))

    @plain
    def test_a_second_start_reads_neither_conversations_nor_tokenizer(self):
        first = self.train("a", *MODEL, *DATA, "training.steps=2")
        self.assertIn("tokenizing 'a.jsonl'", first.err)
        second = self.train("b", *MODEL, *DATA, "training.steps=2")
        self.assertNotIn("tokenizing", second.err)
        self.assertEqual(len(self.kept()), 1)
        self.assert_same_records("a", "b")

    def test_a_resumed_run_ends_like_an_uninterrupted_one(self):
        words = [*MODEL, *DATA, "training.steps=8", "training.batch_size=2", "training.checkpoint_every_steps=4"]
        self.train("whole", *words)
        shutil.copytree(self.folder / "whole", self.folder / "part", symlinks=True)
        shutil.rmtree(self.checkpoint("part", 8))
        (self.folder / "part/summary.json").unlink()
        (self.folder / "part/checkpoints/last").unlink()
        (self.folder / "part/checkpoints/last").symlink_to("step-00000004")
        shutil.rmtree(self.folder / "cache")
        self.brim("train", "--resume", "part")
        self.assert_same_checkpoint("whole", "part", 8)

    def test_a_damaged_file_is_found_and_made_again(self):
        whole = self.data()
        path, = self.kept()
        good = path.read_bytes()
        for at in (0, 40, 500, len(good) // 2, len(good) - 1):
            path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
            result = self.brim("data", "--samples", 1000, "--json", "model=decoder", *DATA)
            self.assertIn("is damaged", result.err, at)
            self.assertEqual(json.loads(result.out), whole)
            self.assertEqual(path.read_bytes(), good)
        path.write_bytes(good[:-1])
        self.assertEqual(self.data(), whole)

    @plain
    def test_other_options_other_data_and_another_template_make_other_files(self):
        self.data()
        for change in (["dataset.learn=all"], ["dataset.context=97"], ["dataset.packing=false"],
                       ["dataset.too_long=skip"]):
            count = len(self.kept())
            self.data(*change)
            self.assertEqual(len(self.kept()), count + 1, change)
        self.write(*self.drawn(51, 8))
        self.assertEqual(self.data()["splits"]["train"]["documents"], 51)
        self.template(MARKED)
        count = len(self.kept())
        self.data()
        self.assertEqual(len(self.kept()), count + 1)


@plain
class Plan(Chat):
    def test_a_plan_needs_neither_data_nor_tokenizer_and_is_that_of_the_run(self):
        words = [*MODEL, "model.vocabulary=402", "training.batch_size=4", "dataset.context=96", "training.steps=1"]
        plan = self.brim("plan", "--json", *words, "dataset=chat", "dataset.path=none.jsonl",
                         "dataset.tokenizer=nowhere").json
        self.write(*self.drawn(50, 8))
        self.train("run", *words, *DATA)
        for key in ("planned_peak_bytes", "device_peak_bytes"):
            self.assertEqual(self.summary("run")[key], plan["peak_bytes"])

    def test_without_a_vocabulary_the_plan_says_what_is_missing(self):
        self.assert_error(self.brim("plan", *MODEL, "dataset=chat", "dataset.path=none.jsonl",
                                    "dataset.tokenizer=nowhere", status=USAGE), "the vocabulary is not known")


class Numbers(Chat):
    """Answers have two tokens, or more than two hundred."""

    wide = ["dataset.context=288", "model.context=288"]

    def setUp(self):
        super().setUp()
        draw = random.Random(5)
        def text(length):
            return " ".join(draw.choice(WORDS) for _ in range(length))
        self.write(*(messages(text(4), text(90) if i % 6 == 0 else "b") for i in range(18)))

    @plain
    def test_the_loss_of_packed_rows_is_that_of_one_conversation_a_row(self):
        """Each step sees all rows, so its loss is the mean over all tokens that count."""
        for backend, delta in (("reference", 1e-12), ("cpu", 1e-6)):
            losses, rows = [], []
            for packing in ("true", "false"):
                data = [*DATA, f"dataset.packing={packing}", *self.wide]
                rows.append(self.data(*data[1:])["splits"]["train"]["rows"])
                run = f"{backend}-{packing}"
                self.train(run, *MODEL, *data, "training.steps=3", f"training.batch_size={rows[-1]}",
                           f"backend={backend}", "optimizer=sgd", "optimizer.lr=0.1")
                losses.append([r["loss"] for r in self.records(run) if r["split"] == "train"])
            self.assertLess(rows[0], rows[1] / 3)
            self.assertEqual(len(losses[0]), 3)
            self.assertNotEqual(losses[0][0], losses[0][2])
            for a, b in zip(*losses):
                self.assertAlmostEqual(a, b, delta=delta * max(1, a))

    @plain
    def test_the_micro_batch_changes_no_bit(self):
        counted = [sum(sample["counts"]) for sample in self.data("dataset.packing=false", *self.wide)["samples"]]
        self.assertGreaterEqual(max(counted), 100 * min(counted))
        for packing, micros in (("false", (1, 2, 4, 8)), ("true", (1, 8))):
            runs = []
            for micro in micros:
                runs.append(f"{packing}-{micro}")
                self.train(runs[-1], *MODEL, *DATA, *self.wide, f"dataset.packing={packing}", "training.steps=3",
                           f"training.batch_size={micro}", "training.effective_batch_size=8")
            for run in runs[1:]:
                self.assert_same_checkpoint(runs[0], run, 3, files=["model.safetensors"])
                self.assert_same_records(runs[0], run)


class Shown(Chat):
    def test_what_counts_stands_between_brackets(self):
        self.write(messages("one", "first"), messages("two", "second\x1b[2J"))
        out = self.brim("data", "model=decoder", *DATA, "--samples", 2).out
        self.assertIn("train: 1 row of 96 tokens", out)
        self.assertIn("assistant\n⟦", out)
        self.assertNotIn("\x1b", out)
        self.assertRegex(out, r"tokens: \d+, of which \d+ count \(\d+\.\d %\)")
        self.assertRegex(out, r"left out: conversations too long 0")
        self.assertNotIn("held out", out)

    def test_rows_that_are_held_out_for_validation_are_reported(self):
        self.write(*(messages("one " * 5, "first " * 5) for _ in range(20)))
        out = self.brim("data", "model=decoder", *DATA, "dataset.validation_fraction=0.25").out
        rows = int(re.search(r"train: (\d+) rows", out)[1])
        self.assertIn(f"held out for validation: {int(rows / 4 + 0.5)} of the rows", out)

    @plain
    def test_other_datasets_are_described(self):
        out = self.brim("data", "model=mlp", "dataset=synthetic").out
        self.assertRegex(out, r"train: \d+ samples of \[")
        (self.folder / "a.txt").write_text("the quick brown fox " * 50)
        out = self.brim("data", "model=gpt2_tiny", "dataset=text", "dataset.path=a.txt", "dataset.context=16").out
        self.assertRegex(out, r"train: \d+ rows of 16 tokens, 100.00 % full")

    @plain
    def test_wrong_options_are_reported(self):
        self.write(messages("one", "first"))
        for words, text in ((["--samples", "x"], "--samples must be a whole number"),
                            (["--split", "test"], "dataset 'chat' has no split 'test'")):
            self.assert_error(self.brim("data", "model=decoder", *DATA, *words, status=USAGE), text)


if __name__ == "__main__":
    main()
