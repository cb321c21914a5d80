"""Tests observe.histograms: histograms of weights, gradients and updates are those of the values that checkpoints have,
the same however the memory is used, and change nothing else. Tests observe.samples: the samples with the worst answers
are those that brim predict answers worst."""

import base64
import csv
import io
import json
import math
import random
import shutil
import struct
import zlib

import language_models
import tensors
from support import SMALL, Case, idx, main, write

RUN = [*SMALL, "training.batch_size=64", "training.steps=8", "training.eval_every_steps=4",
       "training.checkpoint_every_steps=1", "training.keep_checkpoints=20"]
FIRST, BINS = -48, 64
NAME = "histograms.jsonl"
HOSTILE = "<script>alert(1)</script>"


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def histogram(values):
    """Counts values by sign and exponent, as train/histograms.h defines it."""
    out = {"counted": len(values), "zeros": 0, "nan": 0, "infinite": 0, "negative": [0] * BINS, "positive": [0] * BINS}
    finite = [x for x in values if math.isfinite(x)]
    for x in values:
        if math.isnan(x):
            out["nan"] += 1
        elif math.isinf(x):
            out["infinite"] += 1
        elif x == 0:
            out["zeros"] += 1
        else:
            place = min(max(math.frexp(x)[1] - 1 - FIRST, 0), BINS - 1)
            out["negative" if x < 0 else "positive"][place] += 1
    out["rms"] = math.sqrt(sum(x * x for x in finite) / len(finite)) if finite else None
    out["min"], out["max"] = (min(finite), max(finite)) if finite else (None, None)
    return out


def bins(line, side):
    """Returns all bins of a line, including those that the line leaves out."""
    out = [0] * BINS
    for i, count in enumerate(line[side]):
        out[line["first"] - FIRST + i] = count
    return out


class Insight(Case):
    def lines(self, run):
        """Returns {(step, tensor, of): line}."""
        return {(line["step"], line["tensor"], line["of"]): line for line in self.records(run, NAME)}

    def values(self, run, step):
        found, _ = tensors.read(self.checkpoint(run, step) / "model.safetensors")
        return {name: list(numbers) for name, (_, _, numbers) in found.items()}

    def assert_histogram(self, line, values):
        wanted = histogram(values)
        for key in ("counted", "zeros", "nan", "infinite"):
            self.assertEqual(line[key], wanted[key], line)
        for side in ("negative", "positive"):
            self.assertEqual(bins(line, side), wanted[side], line)
        for key in ("rms", "min", "max"):
            self.assertAlmostEqual(line[key], wanted[key], delta=1e-6 * abs(wanted[key]), msg=line)

    def test_they_are_of_the_values_in_checkpoints(self):
        self.train("run", *RUN)
        lines = self.lines("run")
        self.assertEqual(sorted({step for step, _, _ in lines}), [4, 8])
        for step in (4, 8):
            before, after = self.values("run", step - 1), self.values("run", step)
            for name, now in after.items():
                self.assert_histogram(lines[step, name, "weights"], now)
                change = [single(b - a) for a, b in zip(before[name], now)]
                ratio = [0 if d == 0 else single(abs(d) / abs(a)) if a else math.inf
                         for a, d in zip(before[name], change)]
                updates = lines[step, name, "updates"]
                self.assert_histogram(updates, ratio)
                rms = math.sqrt(sum(d * d for d in change) / len(change))
                self.assertAlmostEqual(updates["change_rms"], rms, delta=1e-6 * rms)
                self.assertAlmostEqual(updates["ratio"], rms / lines[step, name, "weights"]["rms"], delta=1e-5 * rms)

    def test_gradients_are_those_of_the_mean_loss(self):
        """SGD with a learning rate of 1 subtracts the gradients, for any number of micro-batches. Gradients are
        clipped, but never reach the clip norm here."""
        words = [*RUN, "optimizer=sgd", "optimizer.lr=1", "optimizer.momentum=0", "optimizer.weight_decay=0",
                 "schedule=constant"]
        for extra in ([], ["training.batch_size=16", "training.gradient_accumulation_steps=4"],
                      ["training.clip_norm=1000"]):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.train("run", *words, *extra)
            for (_, _, of), line in (lines := self.lines("run")).items():
                if of == "updates":
                    gradient = lines[line["step"], line["tensor"], "gradients"]
                    self.assertAlmostEqual(gradient["rms"], line["change_rms"], delta=2e-5 * gradient["rms"])
            self.assertEqual(len(lines), 2 * 4 * 3)

    def test_memory_decisions_and_ends_change_neither_lines_nor_checkpoints(self):
        self.train("run", *RUN)
        text = self.read("run", NAME)
        self.train("off", *RUN, "observe.histograms=false", "observe.samples=0")
        self.assertFalse((self.folder / "off" / NAME).exists())
        for step in (3, 4, 8):
            self.assert_same_checkpoint("run", "off", step)
        ways = {"micro": ["training.batch_size=16", "training.gradient_accumulation_steps=4"],
                "recompute": ["memory.recompute=full"], "threads": ["backend.threads=2"],
                "offload": ["memory.offload=optimizer"]}
        for name, words in ways.items():
            self.train(name, *RUN, *words)
            self.assertEqual(self.read(name, NAME), text, name)
        self.train("killed", *RUN, status=None, env={"BRIM_FAULT": "step:7:begin:1+"})
        with open(self.folder / "killed" / NAME, "a", encoding="utf-8") as file:
            file.write('{"step":7,"tensor":"written after the checkpoint"}\n{"step":')
        self.brim("train", "--resume", "killed")
        self.assertEqual(self.read("killed", NAME), text)

    def test_a_large_tensor_is_sampled(self):
        self.train("run", *RUN, "model.hidden=[1024]")
        values = self.values("run", 8)
        name = next(n for n, v in values.items() if len(v) == 65536)
        line = self.lines("run")[8, name, "weights"]
        self.assertEqual((line["values"], line["counted"]), (65536, 32768))
        step = (65536 - 4096) // 7
        self.assert_histogram(line, [x for k in range(8) for x in values[name][k * step:k * step + 4096]])

    def test_at_most_33_steps_of_a_long_run(self):
        self.train("run", *SMALL, "training.steps=200", "training.eval_every_steps=1", "training.batch_size=16")
        steps = sorted({step for step, _, _ in self.lines("run")})
        self.assertLessEqual(len(steps), 33)
        self.assertEqual(steps[-1], 200)
        self.assertEqual({b - a for a, b in zip(steps, steps[1:-1])}, {7})

    def test_updates_in_the_backward_pass_keep_no_gradients(self):
        self.train("run", *RUN, "optimizer.update=fused_backward")
        self.assertEqual({of for _, _, of in self.lines("run")}, {"weights", "updates"})

    def test_a_federation_has_weights_and_updates(self):
        self.brim("federate", "run.dir=run", *SMALL, "total_clients=4", "clients_per_round=2", "rounds=3")
        self.assertEqual({of for _, _, of in self.lines("run")}, {"weights", "updates"})

    def test_a_file_that_cannot_be_written_is_a_warning(self):
        self.train("run", *RUN, status=None, env={"BRIM_FAULT": "step:7:begin:1+"})
        (self.folder / "run" / NAME).unlink()
        (self.folder / "run" / NAME).mkdir()
        result = self.brim("train", "--resume", "run")
        self.assertIn("the run has no histograms: ", result.err)
        self.assertEqual(self.summary("run")["status"], "finished")

    def test_the_page_shows_a_row_for_each_tensor(self):
        self.train("run", *RUN)
        page = self.read("run", "report.html")
        self.assertIn(">Layers</h2>", page)
        for name in self.values("run", 8):
            self.assertIn(f'<th scope="row">{name}</th>', page)

    def test_the_page_survives_any_file(self):
        self.train("run", *RUN)
        path = self.folder / "run" / NAME
        lines = path.read_text().splitlines()
        hostile = json.loads(lines[-1])
        hostile.update(tensor=HOSTILE, negative=[1e300, -5, "x", None] * 100, positive={}, first=1e18, rms="no")
        for text in ("", "\n", "{", '{"step":8\n', "\0\n" * 10, '{"step":8,"tensor":"a","of":"weights"}\n' * 5000,
                     "\n".join([*lines, json.dumps(hostile, separators=(",", ":"))]) + "\n"):
            path.write_text(text)
            self.brim("report", "run", "-o", "out.html", "--force")
            self.assertNotIn(HOSTILE, self.read("out.html"))


def pixels(png):
    """Returns the rows of pixels of a grey PNG file without filters. Asserts that its checksums are right."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(png):
        size, = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4:at + 8], png[at + 8:at + 8 + size]
        assert struct.unpack_from(">I", png, at + 8 + size)[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + size
    width, height, bits, colour = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert (bits, colour) == (8, 0)
    raw = zlib.decompress(chunks[b"IDAT"])
    rows = [raw[y * (width + 1):(y + 1) * (width + 1)] for y in range(height)]
    assert all(row[0] == 0 for row in rows)
    return b"".join(row[1:] for row in rows)


class Samples(Case):
    """The data are noise with random labels, some of which the model learns. With two classes the probability of the
    answer gives that of the label."""

    def setUp(self):
        super().setUp()
        draw = random.Random(1)
        for stem, count in (("train", 96), ("t10k", 60)):
            images, labels = draw.randbytes(64 * count), bytes(draw.choices((0, 1), k=count))
            write(self.folder / f"{stem}-images-idx3-ubyte", idx(images, count, 8, 8))
            write(self.folder / f"{stem}-labels-idx1-ubyte", idx(labels, count))
        self.images, self.labels = images, labels
        self.words = ["dataset=mnist", f"dataset.path={self.folder}", "dataset.classes=2",
                      "dataset.class_names=[no,<b>yes]", "model=mlp", "model.hidden=[16]", "training.batch_size=16",
                      "backend=cpu", "backend.threads=1", "training.epochs=2", "memory.timing=false"]

    def recomputed(self, run):
        """Returns (loss, index, answer) of the wrong answers of brim predict, the greatest losses first."""
        text = self.brim("predict", run, self.folder / "t10k-images-idx3-ubyte").out
        out = []
        for row in csv.DictReader(io.StringIO(text)):
            i, answer, probability = int(row["index"]), int(row["class"]), float(row["probability"])
            if answer != self.labels[i]:
                out.append((-math.log(1 - probability), i, answer))
        return sorted(out, key=lambda wrong: (-wrong[0], wrong[1]))

    def test_they_are_the_worst_answers_of_brim_predict(self):
        self.train("run", *self.words)
        found, wanted = self.json("run", "samples.json"), self.recomputed("run")
        self.assertEqual((found["samples"], found["wrong"]), (60, len(wanted)))
        self.assertEqual((found["split"], found["step"]), ("test", 12))
        self.assertGreater(len(wanted), 16)
        self.assertEqual([s["index"] for s in found["worst"]], [i for _, i, _ in wanted[:16]])
        for sample, (loss, i, answer) in zip(found["worst"], wanted):
            self.assertEqual((sample["answer"], sample["label"]), (answer, self.labels[i]))
            self.assertEqual(sample["label_name"], ["no", "<b>yes"][self.labels[i]])
            self.assertAlmostEqual(sample["loss"], loss, places=4)
            self.assertAlmostEqual(sample["label_probability"], math.exp(-loss), places=5)
            self.assertEqual(pixels(base64.b64decode(sample["picture"])), self.images[64 * i:64 * i + 64])
        page = self.read("run", "report.html")
        self.assertIn(">Most wrong</h2>", page)
        self.assertIn("&lt;b&gt;yes", page)
        self.assertNotIn("<b>yes", page)

    def test_they_depend_neither_on_batches_nor_on_ranks(self):
        self.train("run", *self.words)
        text = self.read("run", "samples.json")
        self.train("batches", *self.words, "training.eval_batch_size=7")
        self.assertEqual(self.read("batches", "samples.json"), text)
        worst, lines = self.json("run", "samples.json")["worst"], self.records("run", NAME)
        # Sums over ranks have another rounding.
        for name, words in {"ranks": [], "shards": ["dist.shard=gradients"]}.items():
            self.train(name, *self.words, *words, "dist.ranks=3")
            others = self.json(name, "samples.json")["worst"]
            self.assertEqual([s["index"] for s in others], [s["index"] for s in worst])
            for a, b in zip(others, worst):
                self.assertAlmostEqual(a["loss"], b["loss"], places=4)
            others = self.records(name, NAME)
            self.assertEqual([(x["tensor"], x["of"], x["counted"]) for x in others],
                             [(x["tensor"], x["of"], x["counted"]) for x in lines])
            for a, b in zip(others, lines):
                self.assertAlmostEqual(a["rms"], b["rms"], delta=1e-2 * b["rms"], msg=name)

    def test_validation_samples_have_their_index_in_the_training_files(self):
        self.train("run", *self.words, "dataset.validation_fraction=0.25", "training.steps=4",
                   "training.eval_every_steps=2", status=None, env={"BRIM_FAULT": "step:3:begin:1+"})
        found = self.json("run", "samples.json")
        self.assertEqual((found["split"], found["step"], found["samples"]), ("validation", 2, 24))
        data = (self.folder / "train-images-idx3-ubyte").read_bytes()[16:]
        labels = (self.folder / "train-labels-idx1-ubyte").read_bytes()[8:]
        for sample in found["worst"]:
            i = sample["index"]
            self.assertEqual(sample["label"], labels[i])
            self.assertEqual(pixels(base64.b64decode(sample["picture"])), data[64 * i:64 * i + 64])

    def test_real_numbers_are_ordered_by_their_squared_errors(self):
        rows = "".join(f"{x},{(7 * x) % 13}\n" for x in range(40))
        for part in ("train", "test"):
            (self.folder / f"{part}.csv").write_text("x,y\n" + rows)
        self.train("run", "dataset=csv", f"dataset.path={self.folder}", "dataset.targets=[y]", "model=mlp",
                   "model.hidden=[4]", "loss=mse",
                   "training.batch_size=8", "training.epochs=1", "backend=cpu", "memory.timing=false")
        worst = self.json("run", "samples.json")["worst"]
        errors = [(s["label"][0] - s["answer"][0]) ** 2 for s in worst]
        self.assertEqual(errors, sorted(errors, reverse=True))
        for sample, error in zip(worst, errors):
            self.assertAlmostEqual(sample["loss"], error, places=5)
            self.assertEqual(len(sample["inputs"]), 1)

    def test_the_page_shows_no_file_that_is_none_of_ours(self):
        self.train("run", *self.words)
        path = self.folder / "run" / "samples.json"
        found = json.loads(path.read_text())
        svg = base64.b64encode(b"<svg onload='alert(1)'>").decode()
        for picture in (HOSTILE, '"/><script>', svg, "A" * 10 ** 6, 7):
            found["worst"][0].update(picture=picture, label_name=HOSTILE, answer={"a": 1}, loss="x", index=1e300)
            path.write_text(json.dumps(found))
            self.brim("report", "run", "-o", "out.html", "--force")
            page = self.read("out.html")
            self.assertEqual(page.count("<img"), 15)
            self.assertNotIn("<script", page)



class Tokens(Case):
    """For language models, brim lists the tokens with the greatest losses."""

    TEXT = "the <b>memory</b> of a step is known before it begins & no sample sees another one\n"

    def setUp(self):
        super().setUp()
        (self.folder / "a.txt").write_text(self.TEXT * 8, encoding="utf-8")
        self.words = ["model=gpt2_tiny", "dataset=text", "dataset.path=a.txt", "dataset.context=16", "training.steps=6",
                      "training.batch_size=4", "backend=cpu", "backend.threads=1", "memory.timing=false"]

    def check(self, run, known):
        """Checks a list that has all tokens that the test counted, so that its means are the run's figures."""
        found, summary = self.json(run, "samples.json"), self.summary(run)
        worst = found["worst"]
        self.assertEqual((found["task"], found["split"], found["samples"]), ("tokens", "test", len(worst)))
        losses = [token["loss"] for token in worst]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertAlmostEqual(sum(losses) / len(losses), summary["test_loss"], delta=1e-5)
        right = sum(token["answer"] == token["label"] if known else token["label_rank"] == 0 for token in worst)
        self.assertAlmostEqual(right / len(worst), summary["test_accuracy"])
        self.assertEqual(len({(token["index"], token["position"]) for token in worst}), len(worst))
        return worst

    def test_the_tokens_of_a_text(self):
        self.train("run", *self.words, "observe.samples=32", "dataset.test_fraction=0.05")
        text = self.TEXT * 8
        for token in self.check("run", known=True):
            self.assertIn(token["before"] + token["label_name"] + token["after"], text)
            self.assertTrue(token["before"])
            self.assertEqual(len(token["answer_name"]), 1)
        page = self.read("run", "report.html")
        self.assertIn(">Most wrong</h2>", page)
        self.assertRegex(page, r"The test tokens with .*, and the token that the model considered most likely\.<")
        self.assertNotIn("<b>memory", page)
        self.assertLessEqual(len(page.encode()), 500 << 10)
        worst = self.json("run", "samples.json")["worst"]
        self.train("batches", *self.words, "observe.samples=32", "dataset.test_fraction=0.05",
                   "training.eval_batch_size=1")
        self.assertEqual(self.json("batches", "samples.json")["worst"], worst)

    def test_without_the_list_training_has_the_same_bits_and_memory(self):
        self.train("run", *self.words)
        self.train("off", *self.words, "observe.samples=0")
        self.assert_same_checkpoint("run", "off", 6)
        self.assertFalse((self.folder / "off/samples.json").exists())
        self.assertEqual(*(self.summary(run)["planned_peak_bytes"] for run in ("run", "off")))
        self.assertEqual(*(self.summary(run)["test_loss"] for run in ("run", "off")))

    def test_a_large_vocabulary_gives_the_rank_of_the_label(self):
        """The loss contains the last product, so the logits are never stored."""
        draw = random.Random(3)
        (self.folder / "tokens").mkdir()
        for split, count in (("train", 400), ("test", 33)):
            (self.folder / "tokens" / f"{split}.bin").write_bytes(
                struct.pack(f"<{count}H", *(draw.randrange(5000) for _ in range(count))))
        self.train("run", *self.words, "dataset=tokens", "dataset.path=tokens", "dataset.test=test.bin",
                   "dataset.vocabulary=5000", "observe.samples=32")
        worst = self.check("run", known=False)
        self.assertTrue(any(token["label_rank"] > 0 for token in worst))
        self.assertNotIn("answer", worst[0])
        page = self.read("run", "report.html")
        self.assertRegex(page, r"considered <span class=\"answer\">\d+</span> other tokens")
        self.assertRegex(page, r"The test tokens with .*, and how many tokens the model considered more likely\.</p>")
        self.assertNotIn("considered most likely", page)

    def test_tokens_of_a_chat_are_those_of_its_answers(self):
        language_models.write(self.folder / "lm")
        rows = [{"messages": [{"role": "user", "content": f"how much {word} is known"},
                              {"role": "assistant", "content": f"{word} & <i>all</i> of it"}]}
                for word in "memory time samples steps plans runs".split()]
        (self.folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.train("run", "model=hf", "model.weights=lm", "dataset=chat", "dataset.tokenizer=lm",
                   "dataset.path=a.jsonl",
                   "dataset.context=96", "dataset.test_fraction=0.2", "training.steps=2", "training.batch_size=2",
                   "backend=cpu", "backend.threads=1", "memory.timing=false", "observe.samples=32")
        found = self.json("run", "samples.json")
        answers = "".join(row["messages"][1]["content"] for row in rows) + language_models.END
        for token in found["worst"]:
            self.assertIn("assistant", token["before"])
            self.assertIn(token["label_name"], answers)
        page = self.read("run", "report.html")
        self.assertNotIn("<i>all", page)

    def test_the_page_shows_no_file_that_is_none_of_ours(self):
        self.train("run", *self.words)
        path = self.folder / "run" / "samples.json"
        found = json.loads(path.read_text())
        for text in (HOSTILE, "\u202e\x1b[2J", "A" * 10 ** 6, "\u00e9" * 200000, 7, ""):
            found["worst"][0].update(before=text, after=text, label_name=text, answer_name=text, label=text, answer=1,
                                     loss="x", position=1e300)
            path.write_text(json.dumps(found))
            page = self.brim("report", "run", "-o", "page.html", "--force") and self.read("page.html")
            self.assertNotIn("<script>alert", page)
            self.assertNotIn("\x1b", page)
            self.assertLessEqual(len(page.encode()), 500 << 10)


if __name__ == "__main__":
    main()
