"""Tests that a run keeps facts about its data: it predicts without the training files, and refuses other data."""

import csv
import json
import os
import pathlib
import random
import shutil
import unittest

import image_sets
import tensors
from support import (DONE, FAILED, FAULT_SHIM, LOAD, SANITIZED, SMALL, Case, idx_overrides, main, plain,
                     write_idx_dataset)

BPE = pathlib.Path(__file__).resolve().parents[1] / "golden" / "bpe"
MLP = ["model=mlp", "model.hidden=[16]", "model.dropout=0", "memory.timing=false", "backend.threads=1",
       "training.batch_size=16", "training.epochs=3", "optimizer.lr=0.003"]
TINY = ["transform.size=8", "transform.resize=10"]
GPT2 = ["model=gpt2", "model.layers=1", "model.heads=2", "model.width=16", "model.context=16", "model.dropout=0",
        "dataset=text", "dataset.path=a.txt", "dataset.context=16", "training.batch_size=8", "training.steps=3",
        "backend.threads=1", "memory.timing=false"]
DIFFERS = "the data differs from the run's training data"


class Kept(Case):
    def pictures(self, run="run", *words):
        path = image_sets.write_folder(self.folder / "data", train=12, test=6)
        self.new = self.folder / "new.png"
        shutil.copy(path / "test/rose/000.png", self.new)
        self.train(run, "dataset=image_folder", "dataset.path=data", *MLP, *TINY, *words)
        return path

    def table(self, name, count, shift=0.0):
        """Writes two columns to learn from, and columns that the run leaves out."""
        draw = random.Random(count)
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "a", "b", "kind", "t"])
            for i in range(count):
                writer.writerow([f"n{i}", f"{draw.gauss(i % 3, 0.2) + shift:.4f}",
                                 f"{draw.gauss(100 * (i % 3), 9):.2f}", ["rose", "lily", "oak"][i % 3],
                                 f"{draw.gauss(i % 3, 0.1):.3f}"])
        return path

    def rows(self, *words):
        self.table("data/train.csv", 90)
        self.table("data/test.csv", 30)
        self.new = self.table("new.csv", 20)
        self.train("run", "dataset=csv", "dataset.path=data", "dataset.features=[a,b]",
                   *(words or ["dataset.label=kind"]), *MLP)

    def assert_predicts_without_data(self, *folders):
        """Asserts that predictions have the same bytes without the data, also after the run was moved."""
        before = [self.brim("predict", "run", self.new, *words).out for words in ([], ["--json"])]
        for folder in folders or ["data"]:
            shutil.rmtree(self.folder / folder)
        self.assertEqual(self.brim("predict", "run", self.new).out, before[0])
        self.assertEqual(self.brim("predict", "run", self.new, "--json").out, before[1])
        (self.folder / "elsewhere").mkdir()
        (self.folder / "run").rename(self.folder / "elsewhere/run")
        self.assertEqual(self.brim("predict", "elsewhere/run", self.new).out, before[0])


class WithoutData(Kept):
    @plain
    def test_pictures_are_predicted_with_the_stored_classes(self):
        self.pictures()
        self.assertIn(",rose\n", self.brim("predict", "run", self.new).out)
        self.assert_predicts_without_data()

    def test_a_class_name_that_is_invalid_in_json_becomes_a_number(self):
        path = self.pictures("first")
        for split in "train", "test":
            (path / split / "rose").rename(path / split / os.fsdecode(b"ros\xe9"))
        result = self.brim("--quiet", "train", "run.dir=run", "dataset=image_folder", "dataset.path=data", *MLP, *TINY)
        self.assertEqual(result.err.count("the name of class 1 is not UTF-8: the run stores no names of classes"), 1)
        self.assertEqual([row["class"] for row in self.summary("run")["test_classes"]], ["daisy", "1", "tulip"])
        self.assertIsNone(self.json("run/data.json")["class_names"])
        self.assert_predicts_without_data()

    def test_pictures_with_damaged_ones_left_out(self):
        self.pictures("run", "dataset.damaged=skip")
        self.assert_predicts_without_data()

    def test_rows_are_prepared_with_the_stored_facts(self):
        self.rows()
        self.assertIn(",oak\n", self.brim("predict", "run", self.new).out)
        self.assert_predicts_without_data()

    @plain
    def test_rows_with_real_numbers(self):
        self.rows("dataset.targets=t")
        self.assertIn("value0", self.brim("predict", "run", self.new).out)
        self.assert_predicts_without_data()

    def test_windows_over_rows(self):
        self.rows("dataset.targets=t", "dataset.sequence=4")
        self.assert_predicts_without_data()

    @plain
    def test_files_of_images(self):
        self.train("run", *idx_overrides(write_idx_dataset(self.folder / "data")), "training.epochs=2")
        shutil.copy(self.folder / "data/t10k-images-idx3-ubyte", self.folder / "new")
        self.new = "new"
        self.assert_predicts_without_data()

    def test_patience_works_without_validation_data(self):
        self.pictures("run", "dataset.validation_fraction=0.25", "training.patience=2")
        self.assert_predicts_without_data()

    def test_text_is_generated_without_the_files(self):
        (self.folder / "a.txt").write_text("the memory of a step is known before. " * 60, encoding="utf-8")
        shutil.copytree(BPE, self.folder / "bpe")
        for run, words in (("bytes", []), ("tokens", ["dataset.tokens=gpt2", "dataset.tokenizer=bpe"])):
            self.train(run, *GPT2, *words)
        ask = ["--prompt", "the memory", "--tokens", "4"]
        before = [self.brim("generate", run, *ask).out for run in ("bytes", "tokens")]
        (self.folder / "a.txt").unlink()
        self.assertEqual([self.brim("generate", run, *ask).out for run in ("bytes", "tokens")], before)
        vocabulary = json.loads((self.folder / "bpe/vocab.json").read_text())
        vocabulary["another token"] = len(vocabulary)
        (self.folder / "bpe/vocab.json").write_text(json.dumps(vocabulary))
        self.assert_error(self.brim("generate", "tokens", *ask, status=LOAD), DIFFERS,
                          "vocabulary of dataset.tokenizer was", "tokens/data.json")
        shutil.rmtree(self.folder / "bpe")
        self.assert_error(self.brim("generate", "tokens", *ask, status=LOAD), "tokenizer")
        self.assertEqual(self.brim("generate", "tokens", *ask, f"dataset.tokenizer={BPE}").out, before[1])

    def test_an_export_names_its_classes(self):
        self.pictures()
        shutil.rmtree(self.folder / "data")
        self.brim("export", "run", "-o", "out.safetensors")
        metadata = tensors.read(self.folder / "out.safetensors")[1]
        self.assertEqual(json.loads(metadata["brim.data"])["class_names"], ["daisy", "rose", "tulip"])

    @plain
    def test_an_export_describes_the_preparation_of_inputs(self):
        def inputs(*words):
            self.pictures("run", *words)
            self.brim("export", "run", "-o", "out.safetensors", "--force")
            shutil.rmtree(self.folder / "run")
            shutil.rmtree(self.folder / "data")
            return json.loads(tensors.read(self.folder / "out.safetensors")[1]["brim.data"])["inputs"]

        transform = {"resize": 10, "size": [8, 8], "interpolation": "bilinear"}
        self.assertEqual(inputs("transform.normalize=imagenet"),
                         {"shape": [3, 8, 8], "divided_by": 255, "mean": [0.485, 0.456, 0.406],
                          "std": [0.229, 0.224, 0.225], "transform": transform})
        self.assertEqual(inputs("transform.normalize=dataset", "dataset.mean=[0.5]", "transform.size=[6,9]",
                                "transform.resize=0", "transform.interpolation=bicubic"),
                         {"shape": [3, 6, 9], "divided_by": 255, "mean": [0.5], "std": [1],
                          "transform": {"resize": 0, "size": [6, 9], "interpolation": "bicubic"}})
        self.rows()
        self.brim("export", "run", "-o", "out.safetensors", "--force")
        data = json.loads(tensors.read(self.folder / "out.safetensors")[1]["brim.data"])
        self.assertEqual(data["inputs"], {"shape": [2], "divided_by": 1, "mean": [0], "std": [1], "transform": None})
        self.assertEqual([feature["name"] for feature in data["kept"]["features"]], ["a", "b"])


class OtherData(Kept):
    def resume(self, status=DONE):
        (self.folder / "run/summary.json").unlink(missing_ok=True)  # as if the run had not finished
        return self.brim("train", "--resume", "run", status=status)

    @plain
    def test_a_class_of_another_name_is_refused(self):
        path = self.pictures()
        for split in "train", "test":
            (path / split / "rose").rename(path / split / "violet")
        for result in self.brim("eval", "run", status=LOAD), self.resume(LOAD):
            self.assert_error(result, DIFFERS, "class 1 was 'rose', and is 'tulip'",
                              "class 2 was 'tulip', and is 'violet'", "run/data.json describes the data")
        self.assertIn(",rose\n", self.brim("predict", "run", self.new).out)
        for split in "train", "test":
            (path / split / "violet").rename(path / split / "rose")
        self.brim("eval", "run")
        self.resume()

    def test_another_class_is_refused(self):
        path = self.pictures()
        shutil.copytree(path / "train/rose", path / "train/violet")
        self.assert_error(self.brim("eval", "run", status=LOAD), "the number of classes was 3, and is 4")

    @plain
    def test_other_means_are_refused(self):
        self.rows()
        self.table("data/train.csv", 90, shift=0.5)
        self.assert_error(self.brim("eval", "run", status=LOAD), DIFFERS, "mean of feature 'a' was")
        self.assert_error(self.resume(LOAD), "mean of feature 'a' was")
        self.table("data/train.csv", 90)
        self.brim("eval", "run")
        self.resume()

    @plain
    def test_added_samples_change_the_validation_split(self):
        path = self.pictures("run", "dataset.validation_fraction=0.25")
        shutil.copy(path / "train/rose/000.png", path / "train/rose/more.png")
        self.brim("eval", "run")
        for result in self.brim("eval", "run", "--split", "validation", status=LOAD), self.resume(LOAD):
            self.assert_error(result, "the number of training samples was 36, and is 37")

    @plain
    def test_another_share_has_samples_that_were_trained_on(self):
        self.pictures("run", "dataset.validation_fraction=0.25")
        self.brim("eval", "run", "--split", "validation")
        for word, reported in (("dataset.validation_fraction=0.5", "samples to train on was 27, and is 18"),
                           ("seed=7", "the seed was 1, and is 7")):
            self.assert_error(self.brim("eval", "run", "--split", "validation", word, status=LOAD), DIFFERS, reported)

    def test_data_that_was_moved_is_the_same(self):
        path = self.pictures()
        before = self.brim("eval", "run").out
        path.rename(self.folder / "moved")
        self.assert_error(self.brim("eval", "run", status=LOAD), "no folder '")
        self.assertEqual(self.brim("eval", "run", "dataset.path=moved").out, before)

    def test_a_run_of_an_older_build_resumes_with_a_warning(self):
        path = self.pictures()
        before = self.brim("predict", "run", self.new).out
        (self.folder / "run/data.json").unlink()
        for words in ["predict", "run", self.new], ["eval", "run"]:
            result = self.brim(*words)
            self.assertEqual(result.err.count("warning: 'run' has no data.json"), 1, result)
        self.assertEqual(self.brim("predict", "run", self.new).out, before)
        self.assertEqual(self.resume().err.count("has no data.json"), 1)
        shutil.rmtree(path)
        self.assert_error(self.brim("predict", "run", self.new, status=LOAD), "no folder '")

    def test_the_kept_record_may_be_damaged(self):
        self.rows()
        kept = self.folder / "run/data.json"
        whole = kept.read_text()
        for text, reported in ((whole[:100], "run/data.json': "),
                           ("{}", "does not name its dataset"),
                           (whole.replace('"mean"', '"median"'), "has no name, mean or deviation"),
                           (whole.replace('"F32"', '"F8"'), "does not describe the samples of dataset 'csv'")):
            with self.subTest(reported):
                kept.write_text(text)
                self.assert_error(self.brim("predict", "run", self.new, status=LOAD), reported, "data.json")

    @unittest.skipIf(SANITIZED or not FAULT_SHIM, "the shim and a sanitizer cannot both be preloaded")
    @plain
    def test_a_full_disk_leaves_nothing_half_written(self):
        shim = {"LD_PRELOAD": FAULT_SHIM, "BRIM_FILES_FOLDER": "data.json", "BRIM_FILES_FULL_AFTER": "50"}
        result = self.train("run", *SMALL, "training.steps=2", status=FAILED, env=shim)
        self.assert_error(result, "data.json", "No space left on device")
        left = {path.name for path in (self.folder / "run").iterdir()}
        self.assertFalse(left & {"data.json", ".data.json.tmp", "config.yaml", "checkpoints"}, left)
        self.train("other", *SMALL, "training.steps=2")
        self.assertEqual(self.json("other/data.json")["dataset"], "synthetic")


class Output(Kept):
    def test_which_columns_were_taken(self):
        self.table("data.csv", 60)
        words = ["dataset=csv", "dataset.path=data.csv", "dataset.label=kind", *MLP]
        line = "csv: 3 features (a, b, t), label kind of 3 classes; left out: id (text, 'n0')\n"
        self.assertEqual(self.train("run", *words).out.count(line), 1)
        self.assertEqual(self.brim("plan", *words).out.count(line), 1)
        self.assertEqual(self.train("other", *words, "dataset.features=[a]").out.count(
            "csv: 1 feature (a), label kind of 3 classes; left out: id (not in dataset.features), b ("), 1)
        values = self.train("values", "dataset=csv", "dataset.path=data.csv", "dataset.targets=t", *MLP).out
        self.assertEqual(values.count("csv: 2 features (a, b), 1 target (t); left out: id (text, 'n0'), kind ("), 1)

    @plain
    def test_a_run_without_test_data(self):
        self.table("data.csv", 60)
        words = ["dataset=csv", "dataset.path=data.csv", "dataset.label=kind", *MLP]
        line = ("no test data; to get some, set dataset.test or dataset.test_fraction (see brim train "
                "dataset=csv --help)\n")
        self.assertEqual(self.train("run", *words).out.count(line), 1)
        self.assertNotIn("no test data", self.train("tested", *words, "dataset.test_fraction=0.2").out)


if __name__ == "__main__":
    main()
