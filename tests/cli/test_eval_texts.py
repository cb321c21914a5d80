"""Tests brim eval --text and --choices: perplexity and multiple choice of language models, against transformers'
numbers."""

import json
import pathlib
import shutil

from support import LOAD, USAGE, Case, main, plain

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
EXACT = ["backend=reference"]


class EvalTexts(Case):
    def setUp(self):
        super().setUp()
        shutil.copytree(GOLDEN / "eval", self.folder, dirs_exist_ok=True)
        shutil.copy(GOLDEN / "tokenizers/llama3.json", self.folder / "model/tokenizer.json")
        self.answers = json.loads((GOLDEN / "eval/answers.json").read_text())

    def evaluate(self, *words):
        return self.brim("eval", *words, "--json").json

    def assert_scores(self, got, want, relative=1e-9):
        self.assertEqual([len(row["log_likelihood"]) for row in got], [len(row) for row in want])
        for row, scores in zip(got, want):
            for a, b in zip(row["log_likelihood"], scores):
                self.assertAlmostEqual(a, b, delta=relative * abs(b))

    def write(self, *rows):
        text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
        (self.folder / "bad.jsonl").write_text(text + "\n")

    def refused(self, status, *parts, words=()):
        result = self.brim("eval", "model", "--choices", "bad.jsonl", *words, status=status)
        for part in parts:
            self.assertIn(part, result.err)


class Text(EvalTexts):
    def test_windows_have_the_perplexity_of_transformers(self):
        for want in self.answers["windows"]:
            with self.subTest(want):
                words = ["--text", "text.txt", "--context", str(want["context"]), "--stride", str(want["stride"])]
                got = self.evaluate("model", *words, *EXACT)
                for key in "tokens", "scored", "context", "stride":
                    self.assertEqual(got[key], want[key], key)
                for key in "nats_per_token", "bits_per_byte":
                    self.assertAlmostEqual(got[key], want[key], delta=1e-9 * want[key])
                cpu = self.evaluate("model", *words)
                self.assertAlmostEqual(cpu["nats_per_token"], want["nats_per_token"], delta=1e-5)

    @plain
    def test_by_default_half_of_a_window_is_context(self):
        got = self.evaluate("model", "--text", "text.txt", "dataset.context=64")
        self.assertEqual((got["context"], got["stride"], got["windows"]), (64, 32, 7))
        self.assertEqual(got, self.evaluate("model", "--text", "text.txt", "--context", "64"))
        self.assertEqual(self.evaluate("model", "--text", "text.txt")["context"], 768)
        out = self.brim("eval", "model", "--text", "text.txt", "--context", "64").out
        self.assertIn(f"perplexity {got['perplexity']:.4f}, {got['nats_per_token']:.4f} nats per token, ", out)
        self.assertIn("253 tokens in 7 windows of 64, a new one every 32", out)

    @plain
    def test_batches_do_not_change_the_bits(self):
        words = ["model", "--text", "text.txt", "--context", "24", "--stride", "5"]
        one, many = (self.evaluate(*words, f"training.eval_batch_size={n}") for n in (1, 7))
        self.assertGreater(many.pop("device_peak_bytes"), one.pop("device_peak_bytes"))
        self.assertEqual(one, many)

    def test_a_run_is_evaluated_in_windows_of_any_length(self):
        """A run that began with a model and was not trained has the figures of that model."""
        self.train("run", "model=hf", "model.weights=model", "dataset=text", "dataset.path=text.txt",
                   "dataset.tokens=hf", "dataset.tokenizer=model", "dataset.context=16", "training.epochs=0",
                   "memory.timing=false")
        (self.folder / "text.txt").rename(self.folder / "moved.txt")
        for words in (["--context", "24"], ["--context", "64"], ["dataset.context=12"],
                      ["--context", "9", "--stride", "2"]):
            with self.subTest(words):
                run, model = (self.evaluate(name, "--text", "moved.txt", *words, *EXACT) for name in ("run", "model"))
                self.assertEqual(*([got[key] for key in ("context", "stride", "windows", "nats_per_token")]
                                   for got in (run, model)))
        run, model = (self.evaluate(name, "--choices", "questions.jsonl", "--context", "600", *EXACT)
                      for name in ("run", "model"))
        self.assertEqual((run["context"], run["accuracy"]), (600, model["accuracy"]))

    @plain
    def test_a_run_is_evaluated_in_windows_of_its_samples(self):
        (self.folder / "a.txt").write_text("the memory of a step is known. " * 40)
        self.train("run", "model=gpt2_tiny", "dataset=text", "dataset.path=a.txt", "dataset.context=16",
                   "training.steps=3", "training.batch_size=4", "loss.label_smoothing=0.2", "memory.timing=false")
        got = self.evaluate("run", "--text", "a.txt", "--stride", "8")
        self.assertEqual((got["run"], got["context"], got["tokens"]), ("run", 16, 31 * 40))
        self.assertIn("/run/checkpoints/", got["checkpoint"])
        self.assertEqual(got["scored"], got["tokens"] - 1)

    def test_options_that_do_not_belong_together(self):
        for words, part in ((["--stride", "3"], "--stride is for --text"), (["--shots", "1"], "are for --choices"),
                            (["--context", "9"], "--context is for"),
                            (["--text", "text.txt", "--choices", "questions.jsonl"], "exclude each other"),
                            (["--choices", "questions.jsonl", "--shots", "1"], "need each other"),
                            (["--text", "text.txt", "--split", "test"], "--split"),
                            (["--text", "text.txt", "--stride", "0"], "--stride must be a whole number"),
                            (["--text", "text.txt", "--stride", "64", "--context", "64"], "must be less than"),
                            (["--text", "text.txt", "--checkpoint", "last"], "--checkpoint is for runs")):
            with self.subTest(words):
                self.assertIn(part, self.brim("eval", "model", *words, status=USAGE).err)
        self.assertIn("cannot open 'none.txt'", self.brim("eval", "model", "--text", "none.txt", status=LOAD).err)
        (self.folder / "empty.txt").write_text("")
        self.assertIn("needs at least 2", self.brim("eval", "model", "--text", "empty.txt", status=LOAD).err)


class Choices(EvalTexts):
    def test_scores_are_those_of_lm_evaluation_harness(self):
        got = self.evaluate("model", "--choices", "questions.jsonl", *EXACT)
        self.assert_scores(got["scores"], self.answers["scores"])
        self.assertEqual([row["form"] for row in got["scores"]], ["mmlu", "arc", "hellaswag", "question", "hellaswag"])
        self.assertEqual([row["answer"] for row in got["scores"]], [1, 2, 0, 1, 1])
        self.assertEqual([row["line"] for row in got["scores"]], [1, 2, 3, 4, 5])
        self.assert_scores(self.evaluate("model", "--choices", "questions.jsonl")["scores"], self.answers["scores"],
                           1e-4)

    @plain
    def test_predictions_by_sum_by_characters_and_by_bytes(self):
        got = self.evaluate("model", "--choices", "questions.jsonl", *EXACT)
        choices = [["A", "B", "C", "D"], ["a cat", "a dog — it does", "fish"], None,
                   ["three", "four, naïvely", "∑"]]
        for row, texts in zip(got["scores"], choices):
            if texts:
                for key, lengths in (("", [1] * 9), ("_norm", [*map(len, texts)]),
                                     ("_bytes", [len(text.encode()) for text in texts])):
                    by_length = [score / length for score, length in zip(row["log_likelihood"], lengths)]
                    self.assertEqual(row["prediction" + key], by_length.index(max(by_length)), key)
        for key, name in (("prediction", "accuracy"), ("prediction_norm", "accuracy_norm"),
                          ("prediction_bytes", "accuracy_bytes")):
            self.assertEqual(got[name], sum(row[key] == row["answer"] for row in got["scores"]) / 5)
        out = self.brim("eval", "model", "--choices", "questions.jsonl", *EXACT).out
        self.assertIn("5 questions of questions.jsonl, 0 examples before each", out)
        self.assertRegex(out, rf"accuracy +{100 * got['accuracy']:.2f} % \+- ")

    def test_rows_with_several_choices_have_the_scores_of_rows_with_one(self):
        packed = self.evaluate("model", "--choices", "questions.jsonl", *EXACT)
        alone = self.evaluate("model", "--choices", "questions.jsonl", "dataset.documents=false", *EXACT)
        self.assert_scores(packed["scores"], [row["log_likelihood"] for row in alone["scores"]], 1e-12)
        self.assertEqual((packed["context"], alone["context"]), (512, 512))

    def test_examples_come_from_the_subject_of_the_question(self):
        (self.folder / "one.jsonl").write_text((self.folder / "questions.jsonl").read_text().split("\n")[0])
        got = self.evaluate("model", "--choices", "one.jsonl", "--shots", "2", "--shots-from", "shots.jsonl", *EXACT)
        self.assert_scores(got["scores"], [self.answers["shots"]])
        self.assertEqual(got["shots"], 2)
        result = self.brim("eval", "model", "--choices", "one.jsonl", "--shots", "3", "--shots-from", "shots.jsonl",
                           status=USAGE)
        self.assertIn("one.jsonl:1: --shots 3, but 'shots.jsonl' has 2 other questions of the subject "
                      "high_school_geography", result.err)

    def test_bad_questions_are_refused_with_file_and_line(self):
        good = {"question": "x", "choices": ["a", "b"], "answer": 0}
        for bad, part in (('{"question": "x"', "bad.jsonl:2:"),
                          ("[1]", "bad.jsonl:2: a question must be a JSON object"),
                          ({"q": 1}, "bad.jsonl:2: this is no question that brim knows"),
                          ({**good, "answer": 2}, '"answer" is 2, but the question has 2 choices, 0 to 1'),
                          ({**good, "answer": "C"}, '"answer" is 2, but'),
                          ({**good, "answer": "yes"}, '"answer" must be the index of the right choice'),
                          ({**good, "answer": None}, '"answer" must be the index'),
                          ({**good, "choices": ["a"]}, '"choices" must be a list of 2 to 26 texts'),
                          ({**good, "choices": ["a", ""]}, '"choices": item 1 must be a text that is not empty'),
                          ({"choices": ["a", "b"], "answer": 0}, 'the question has no "question"'),
                          ({"question": "x", "choices": ["a", "b"]}, 'the question has no "answer"'),
                          ({"question": "x", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "E"},
                           '"answerKey" is "E", which is not one of the labels'),
                          ({"question": "x", "choices": {"text": ["a", "b"], "label": ["A", "B", "C"]},
                            "answerKey": "A"}, '"choices" has 2 texts but 3 labels'),
                          ({"endings": ["a", "b"], "ctx_a": "a", "ctx_b": "b", "label": ""}, '"activity_label"')):
            with self.subTest(bad):
                self.write(good, bad)
                self.refused(LOAD, "bad.jsonl:2:", part)
        self.write("\ufeff", "")
        self.refused(LOAD, "'bad.jsonl' has no questions")
        self.write("\ufeff" + json.dumps(good), "", {**good, "question": "x" * 2000})
        self.refused(USAGE, "bad.jsonl:3: with choice 0 the question has", "but the model sees 768")
        self.write(good, {**good, "question": "x" * 200})
        self.refused(USAGE, "bad.jsonl:2:", "but the model sees 60", words=["--context", "60"])


if __name__ == "__main__":
    main()
