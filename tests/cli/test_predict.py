"""Tests brim predict: classes and probabilities for files."""

import csv
import gzip
import io
import json
import math
import os
import struct

from support import LOAD, SMALL, USAGE, Case, idx, idx_overrides, main, plain, write_idx_dataset


def read_safetensors(path):
    """Returns {name: (shape, numbers)} of F32 tensors."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            out[name] = (entry["shape"],
                         struct.unpack(f"<{(end - first) // 4}f", data[8 + size + first:8 + size + end]))
    return out


def linear(tensors, name, x):
    (rows, columns), weight = tensors[name + ".weight"]
    bias = tensors[name + ".bias"][1]
    return [bias[r] + sum(weight[r * columns + c] * x[c] for c in range(columns)) for r in range(rows)]


class Predict(Case):
    def setUp(self):
        super().setUp()
        self.data = write_idx_dataset(self.folder / "data")
        self.images = self.data / "t10k-images-idx3-ubyte"
        words = ["training.epochs=8", "dataset.mean=[0.1]", "dataset.std=[0.3]"]
        self.once(lambda: self.train("run", *idx_overrides(write_idx_dataset(self.shared / "data")), *words), "run")

    def rows(self, *words):
        return list(csv.DictReader(io.StringIO(self.brim("predict", "run", *words).out)))

    def test_a_row_an_image_with_index_class_and_probability(self):
        rows = self.rows(self.images)
        self.assertEqual(list(rows[0]), ["file", "index", "class", "probability", "name"])
        self.assertEqual([int(row["index"]) for row in rows], list(range(32)))
        self.assertEqual({row["file"] for row in rows}, {str(self.images)})
        for row in rows:
            self.assertIn(int(row["class"]), range(10))
            self.assertTrue(0.1 <= float(row["probability"]) <= 1)

    @plain
    def test_classes_agree_with_the_accuracy_of_eval(self):
        rows = self.rows(self.images)
        right = sum(int(row["class"]) == i % 10 for i, row in enumerate(rows))
        result = self.brim("eval", "run", "--json").json
        self.assertEqual(right / 32, result["accuracy"])
        self.assertGreater(right, 16)

    def test_probabilities_are_softmax_of_the_network(self):
        tensors = read_safetensors(self.folder / "run/checkpoints/last/model.safetensors")
        names = sorted({name.rsplit(".", 1)[0] for name in tensors})
        pixels = self.images.read_bytes()[16:]
        for i, row in enumerate(self.rows(self.images)):
            x = [(p / 255 - 0.1) / 0.3 for p in pixels[64 * i:64 * (i + 1)]]
            for k, name in enumerate(names):
                x = linear(tensors, name, x)
                if k + 1 < len(names):
                    x = [max(v, 0) for v in x]
            e = [math.exp(v - max(x)) for v in x]
            self.assertEqual(int(row["class"]), x.index(max(x)))
            self.assertAlmostEqual(float(row["probability"]), max(e) / sum(e), places=5)

    def test_several_files_and_compressed_files(self):
        raw = self.images.read_bytes()
        one, packed = self.folder / "one", self.folder / "packed"
        one.write_bytes(idx(raw[16 + 64 * 3:16 + 64 * 4], 1, 8, 8))
        packed.write_bytes(gzip.compress(raw))
        alone = self.rows(self.images)
        rows = self.rows("one", "packed")
        self.assertEqual([row["file"] for row in rows], ["one"] + ["packed"] * 32)
        values = [(row["index"], row["class"], row["probability"]) for row in rows]
        expected = [(row["index"], row["class"], row["probability"]) for row in alone]
        self.assertEqual(values[1:], expected)
        self.assertEqual(values[0][1:], expected[3][1:])

    @plain
    def test_the_batch_changes_nothing(self):
        self.assertEqual(self.rows(self.images), self.rows(self.images, "training.eval_batch_size=5"))

    @plain
    def test_an_empty_file_has_no_rows(self):
        (self.folder / "empty").write_bytes(idx(b"", 0, 8, 8))
        self.assertEqual(self.rows("empty"), [])

    def test_output_goes_to_a_file(self):
        printed = self.brim("predict", "run", self.images).out
        self.assertEqual(self.brim("predict", "run", self.images, "-o", "out.csv").out, "")
        self.assertEqual(self.read("out.csv"), printed)
        self.brim("predict", "run", self.images, "--output=out.json", "--json")
        self.assertEqual(len(self.json("out.json")["predictions"]), 32)
        self.brim("predict", "run", self.images, "-o", "/dev/null")
        (self.folder / "own").write_bytes(idx(b"", 0, 8, 8))
        self.assert_error(self.brim("predict", "run", "own", "-o", "own", status=2),
                          "-o own is also an input file")
        self.assertFalse(os.path.isfile("/dev/null"))

    @plain
    def test_a_name_that_json_cannot_hold_is_refused(self):
        name = b"\xff.idx"
        (self.folder / os.fsdecode(name)).write_bytes(self.images.read_bytes())
        result = self.brim("predict", "run", self.images, os.fsdecode(name), "--json", status=USAGE)
        self.assert_error(result, "its name is not UTF-8", "leave out --json")
        self.assertEqual(result.out, "")

    def test_json_says_the_same(self):
        result = self.brim("predict", "run", self.images, "--json").json
        self.assertEqual(result["checkpoint"], str((self.folder / "run/checkpoints/last").resolve()))
        for row, other in zip(self.rows(self.images), result["predictions"], strict=True):
            self.assertEqual((row["file"], int(row["index"]), int(row["class"])),
                             (other["file"], other["index"], other["class"]))
            self.assertAlmostEqual(float(row["probability"]), other["probability"], places=8)

    @plain
    def test_a_name_with_a_comma_and_an_equals_sign(self):
        name = 'a=b, "c"'
        (self.folder / name).write_bytes(self.images.read_bytes())
        (self.folder / "label=1").mkdir()
        (self.folder / "label=1/a.idx").write_bytes(self.images.read_bytes())
        self.assertEqual({row["file"] for row in self.rows("./" + name, "label=1/a.idx")},
                         {"./" + name, "label=1/a.idx"})

    @plain
    def test_the_run_is_unchanged(self):
        before = self.tree("run")
        self.rows(self.images)
        self.assertEqual(self.tree("run"), before)

    def test_defects_of_a_file_are_reported(self):
        (self.folder / "wide").write_bytes(idx(bytes(2 * 63), 2, 7, 9))
        cases = [("nowhere", "cannot open 'nowhere'"), ("wide", "[1, 7, 9]"), ("run/config.yaml", "not an IDX file"),
                 (self.data / "t10k-labels-idx1-ubyte", "a file of images is needed")]
        for name, text in cases:
            with self.subTest(name):
                self.assert_error(self.brim("predict", "run", name, status=LOAD), text)

    @plain
    def test_a_folder_is_answered_with_the_right_command(self):
        self.assert_error(self.brim("predict", "run", "run/", status=LOAD), "'run/' is a folder", "run/*")

    @plain
    def test_weights_that_would_change_nothing_are_refused(self):
        for words in (["eval", "run"], ["predict", "run", self.images], ["generate", "run"]):
            result = self.brim(*words, "model.weights=run", status=USAGE)
            self.assert_error(result, "the parameters are those of the run's checkpoint", "brim train --from run")

    @plain
    def test_a_file_of_weights_is_not_a_run(self):
        self.brim("export", "run", "-o", "a.safetensors")
        self.assert_error(self.brim("predict", "a.safetensors", self.images, status=LOAD),
                          "'a.safetensors' is a file of weights", "model.weights=a.safetensors training.epochs=0")

    @plain
    def test_missing_arguments_are_reported(self):
        for words in ([], ["run"], ["run", "backend.threads=1"]):
            self.assert_error(self.brim("predict", *words, status=USAGE), "brim predict RUN FILE")

    @plain
    def test_a_wrong_override_names_its_word(self):
        self.assert_error(self.brim("predict", "run", self.images, "backend.thread=1", status=USAGE), "argument 3")

    @plain
    def test_a_dataset_without_files_is_reported(self):
        self.train("made", *SMALL, "training.epochs=1")
        self.assert_error(self.brim("predict", "made", self.images, status=USAGE),
                          "dataset 'synthetic' reads no files of samples")


if __name__ == "__main__":
    main()
