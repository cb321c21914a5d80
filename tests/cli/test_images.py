"""Tests picture data sets from the command line: image_folder, flowers102, cub200 and cifar, intact and damaged."""

import csv
import io
import os
import pathlib
import shutil
import time
import unittest

import image_sets
from support import LOAD, SANITIZED, USAGE, Case, main, plain

PICTURES = pathlib.Path(__file__).parent.parent / "images/pictures"
SMALL = ["model=mlp", "model.hidden=[16]", "model.dropout=0", "memory.timing=false", "training.batch_size=16",
         "training.epochs=6", "optimizer.lr=0.003"]
TINY = ["transform.size=8", "transform.resize=10"]
BUSY = ["augment.random_resized_crop=true", "augment.flip=true", "augment.brightness=0.2", "augment.contrast=0.2",
        "augment.saturation=0.2", "augment.hue=0.02", "augment.erase_probability=0.3"]


def folder_words(path, *words):
    return ["dataset=image_folder", f"dataset.path={path}", *SMALL, *TINY, *words]


class Images(Case):
    def accuracy(self, run):
        return self.summary(run)["test_accuracy"]

    def folder_set(self, name="data", **counts):
        return image_sets.write_folder(self.folder / name, **(counts or {"train": 16, "test": 8}))

    def assert_same_model(self, one, other):
        for name in "model.safetensors", "optimizer.safetensors", "state.json":
            self.assertEqual((self.folder / one / "checkpoints/last" / name).read_bytes(),
                             (self.folder / other / "checkpoints/last" / name).read_bytes(), name)

    def test_folders_in_those_of_classes_are_clients(self):
        """Folders of the same name in several classes are one client; the test split has no clients."""
        path = self.folder_set(train=6, test=2)
        owners = {}
        for number, file in enumerate(sorted((path / "train").rglob("*.png"))):
            owners[number] = ["zoe", "ann", "bob"][number * 7 % 5 % 3]
            (file.parent / owners[number]).mkdir(exist_ok=True)
            file.rename(file.parent / owners[number] / file.name)
        order = sorted((path / "train").rglob("*.png"), key=str)  # brim numbers pictures in this order
        words = [word for word in folder_words(path) if not word.startswith("training.epochs")]
        words += ["partition=natural", "clients_per_round=2", "rounds=2"]
        self.brim("federate", *words, "dataset.client=folder", "total_clients=3", "--export-partition", "out.csv")
        parts = {}
        for line in (self.folder / "out.csv").read_text().splitlines()[1:]:
            client, sample = map(int, line.split(",")[:2])
            parts.setdefault(client, set()).add(sample)
        self.assertEqual(parts, {k: {i for i, file in enumerate(order) if file.parent.name == name}
                                 for k, name in enumerate(["ann", "bob", "zoe"])})
        self.brim("federate", *words, "dataset.client=folder", "total_clients=3", "run.dir=run")
        self.assert_error(self.brim("federate", *words, "total_clients=3", status=USAGE), "but dataset.client=none",
                          "dataset.client=folder")
        shutil.copy(order[0], path / "train/rose/lost.png")
        self.assert_error(self.brim("federate", *words, "dataset.client=folder", "total_clients=3", status=LOAD),
                          "train/rose/lost.png' is not in a client's folder", "<class>/<client>/")

    # ---- each format ----

    @plain
    def test_image_folder_is_learnt(self):
        out = self.train("run", *folder_words(self.folder_set(), "augment=imagenet", "training.epochs=12")).out
        self.assertIn("mlp on image_folder: 48 samples", out)
        self.assertGreater(self.accuracy("run"), 0.9)
        self.assertRegex(self.brim("eval", "run").out, "daisy(.|\n)*rose(.|\n)*tulip")

    def test_flowers_are_learnt(self):
        path = image_sets.write_flowers(self.folder / "flowers")
        words = ["dataset=flowers102", f"dataset.path={path}", *SMALL, *TINY, "training.epochs=12"]
        self.train("run", *words)
        self.assertGreater(self.accuracy("run"), 0.9)
        out = self.train("more", *words, "dataset.train=[trnid,valid]", "training.epochs=1").out
        self.assertIn("mlp on flowers102: 22 samples", out)

    def test_birds_are_learnt_by_their_boxes(self):
        path = image_sets.write_birds(self.folder / "birds")
        words = ["dataset=cub200", f"dataset.path={path}", *SMALL, *TINY, "augment.random_resized_crop=false",
                 "training.epochs=12", "dataset.crop_to_box=true"]
        self.train("run", *words)
        self.assertGreater(self.accuracy("run"), 0.9)

    def test_cifar_is_learnt(self):
        ten = image_sets.write_cifar10(self.folder / "ten")
        hundred = image_sets.write_cifar100(self.folder / "some/cifar-100-binary")
        self.train("ten", "dataset=cifar10", f"dataset.path={ten}", *SMALL, "augment.crop_padding=2",
                   "training.epochs=20")
        self.assertGreater(self.accuracy("ten"), 0.8)
        self.assertIn("class_9", self.brim("eval", "ten").out)
        self.train("coarse", "dataset=cifar100", f"dataset.path={hundred.parent}", "dataset.label=coarse", *SMALL,
                   "transform.size=16", "training.epochs=40")
        self.assertGreater(self.accuracy("coarse"), 0.8)
        self.assertIn("coarse_19", self.brim("eval", "coarse").out)
        self.brim("plan", "dataset=cifar100", f"dataset.path={hundred}", *SMALL)

    @plain
    def test_classes_without_splits_can_be_validated_on(self):
        path = self.folder_set(".", train=16) / "train"
        self.train("run", *folder_words(path, "dataset.validation_fraction=0.25"))
        self.assertGreater(self.summary("run")["validation_accuracy"], 0.9)
        self.assertIsNone(self.summary("run")["test_accuracy"])

    def test_pictures_of_every_kind_are_read_and_predicted(self):
        path = self.folder_set()
        good = [p for p in sorted(PICTURES.iterdir())
                if p.name.split(".")[0].split("_")[0] not in ("cut", "damaged", "header", "bomb")]
        for p in good:
            shutil.copy(p, path / "train/rose")
        self.train("run", *folder_words(path))
        rows = list(csv.DictReader(io.StringIO(self.brim("predict", "run", *good).out)))
        self.assertEqual(len(rows), len(good))
        self.assertIn("is damaged", self.brim("predict", "run", PICTURES / "header.jpg", status=LOAD).err)

    def test_features_of_pictures_belong_to_their_transform(self):
        path = image_sets.write_birds(self.folder / "birds")
        words = ["model=linear_probe", "backbone=resnet18", "backbone.width=4", "dataset=cub200",
                 f"dataset.path={path}", "memory.timing=false", "training.epochs=1", "training.batch_size=8",
                 "transform.resize=36"]
        result = self.train("one", *words, "transform.size=32")
        self.assertIn("augment has no effect with model=linear_probe", result.err)
        self.assertIn("features: using '", self.train("again", *words, "transform.size=32").err)
        self.assertIn("features: computing", self.train("other", *words, "transform.size=24").err)

    @unittest.skipIf(SANITIZED, "sanitizers keep memory")
    @plain
    def test_the_host_has_room_for_progressive_pictures(self):
        """The decoder keeps the coefficients of all pixels of a progressive picture until the last scan. Two threads of
        training and two of an evaluation decode pictures, at the same time or, on a busy machine, one after another."""
        path = self.folder_set(train=2, test=2)
        coefficients = 3 * 250 * 188 * 128  # bytes for one picture
        for split in "train", "test":
            for name in "daisy", "rose":
                (path / split / name / "large.jpg").write_bytes(image_sets.progressive_jpeg(1500, 2000))
        words = folder_words(path, "training.epochs=1", "training.num_workers=2", "training.batch_size=4")
        self.train("run", *words)
        summary = self.summary("run")
        taken = summary["rss_peak_bytes"]
        planned = self.brim("plan", "--json", *words).json["host"]["total_bytes"]
        for said in planned, summary["predicted_rss_bytes"]:
            self.assertGreater(said, taken - (8 << 20))
            self.assertLess(said, taken + 3 * coefficients + (8 << 20))

    # ---- the same numbers ----

    @plain
    def test_threads_and_micro_batches_change_nothing(self):
        words = folder_words(self.folder_set(), *BUSY, "training.epochs=2", "backend=reference")
        self.train("none", *words, "training.num_workers=0")
        self.train("three", *words, "training.num_workers=3")
        self.assert_same_model("none", "three")
        self.train("half", *words, "training.batch_size=8", "training.gradient_accumulation_steps=2")
        for one, other in zip(self.records("none"), self.records("half")):
            if "loss" in one:
                self.assertAlmostEqual(one["loss"], other["loss"], places=9)

    def test_resumed_run_is_the_same(self):
        words = folder_words(self.folder_set(), *BUSY, "training.num_workers=2")
        words += ["training.epochs=60", "training.checkpoint_every_steps=10"]
        self.train("whole", *words)
        process = self.start("train", "run.dir=part", *words)
        while process.poll() is None and not self.steps("part"):
            time.sleep(0.01)
        process.kill()
        process.wait()
        self.brim("train", "--resume", "part")
        self.assert_same_model("whole", "part")

    # ---- damaged files ----

    def test_damaged_headers_are_refused_or_left_out(self):
        path = self.folder_set()
        for name in "header.jpg", "bomb.png":
            shutil.copy(PICTURES / name, path / "train/rose")
        (path / "train/daisy/empty.png").write_bytes(b"")
        err = self.train("refused", *folder_words(path), status=LOAD).err
        self.assertIn("3 of 51 pictures of split 'train' cannot be used:", err)
        self.assertIn("daisy/empty.png' is empty", err)
        self.assertIn("rose/header.jpg' is damaged: it ends before the picture does", err)
        self.assertIn("rose/bomb.png' has 60000x60000 pixels, more than dataset.max_pixels=100000000 allows", err)
        self.assertIn("dataset.damaged=skip leaves them out", err)
        err = self.train("skipped", *folder_words(path, "dataset.damaged=skip")).err
        self.assertIn("warning: 3 of 51 pictures of split 'train' are left out:", err)
        for name in ("rose/header.jpg", "rose/bomb.png", "daisy/empty.png"):
            (path / "train" / name).unlink()
        self.train("without", *folder_words(path, "dataset.damaged=skip"))
        self.assert_same_model("skipped", "without")

    @plain
    def test_an_error_that_names_a_strange_file_is_in_the_summary(self):
        path = self.folder_set()
        shutil.copy(PICTURES / "cut.jpg", os.fsencode(path / "train/rose") + b"/\xff.jpg")
        self.train("run", *folder_words(path), status=LOAD)
        self.assertRegex(self.summary("run")["error"], "train/rose/\ufffd.jpg' is damaged")
        self.assertIn("is damaged", self.brim("runs", "show", "run").out)

    def test_damaged_pixels_are_refused_or_replaced(self):
        path = self.folder_set()
        shutil.copy(PICTURES / "cut.png", path / "train/rose/007.png")
        words = folder_words(path, "training.num_workers=2")
        err = self.train("refused", *words, status=LOAD).err
        self.assertIn("train/rose/007.png' is damaged: it ends before the picture does", err)
        self.assertIn("while reading sample 23 of the train split of dataset 'image_folder'", err)
        err = self.train("replaced", *words, "dataset.damaged=skip").err
        self.assertIn("007.png' is damaged: it ends before the picture does; the next undamaged picture replaces it",
                      err)
        shutil.copy(path / "train/rose/008.png", path / "train/rose/007.png")
        self.train("by_hand", *words, "dataset.damaged=skip")
        self.assert_same_model("replaced", "by_hand")

    def test_a_set_of_only_damaged_pictures_is_an_error(self):
        path = self.folder_set(train=2)
        for name in path.rglob("*.png"):
            name.write_bytes(b"no picture")
        err = self.train("run", *folder_words(path, "dataset.damaged=skip"), status=LOAD).err
        self.assertIn("6 of 6 pictures of split 'train' cannot be used:", err)
        self.assertIn("is neither a JPEG nor a PNG file", err)

    # ---- folders that are missing or wrong ----

    @plain
    def test_missing_folders_are_explained(self):
        cases = {"image_folder": "with train/<class>/<picture>.jpg",
                 "flowers102": "are at https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
                 "cub200": "is at https://www.vision.caltech.edu/datasets/cub_200_2011/",
                 "cifar10": "is at https://www.cs.toronto.edu/~kriz/cifar.html"}
        for name, text in cases.items():
            err = self.train("run", f"dataset={name}", "dataset.path=nowhere", *SMALL, *TINY, status=LOAD).err
            self.assertIn(text, err)
            self.assertIn("'nowhere'", err)
        for name in "flowers102", "cub200", "cifar":
            self.assertIn("https://", self.brim("plugins", f"dataset/{name}").out)

    def test_wrong_flowers_are_reported(self):
        path = image_sets.write_flowers(self.folder / "flowers")
        words = ["dataset=flowers102", f"dataset.path={path}", *SMALL, *TINY]
        err = self.train("run", *words, "dataset.test=trnid", status=USAGE).err
        self.assertIn("dataset.train and dataset.test have a list in common", err)
        for content, text in [
                (image_sets.mat(labels=[1, 2]), "'trnid' names picture 3, but imagelabels.mat has labels of 2"),
                (image_sets.mat(labels=[1, 0]), "imagelabels.mat': number 2 of 'labels' is 0; whole numbers"),
                (image_sets.mat(other=[1]), "imagelabels.mat' has no variable 'labels'"),
                (image_sets.mat(True, labels=[1] * 50)[:-20], "imagelabels.mat' is damaged"),
                (b"no such file", "imagelabels.mat' is not a file of MATLAB 5 to 7.2")]:
            (path / "imagelabels.mat").write_bytes(content)
            self.assertIn(text, self.train("run", *words, status=LOAD).err)

    def test_wrong_birds_are_reported(self):
        path = image_sets.write_birds(self.folder / "birds")
        words = ["dataset=cub200", f"dataset.path={path}", *SMALL, *TINY]
        for name, text, message in [
                ("classes.txt", "1 a\n", "image_class_labels.txt', line 3: class 2, but classes.txt has 1"),
                ("train_test_split.txt", "1 0\n", "lists 40 pictures, but train_test_split.txt has 1 lines"),
                ("images.txt", "1 a.jpg\n3 b.jpg\n", "line 2: '2' and a name are expected, got '3 b.jpg'")]:
            before = (path / name).read_text()
            (path / name).write_text(text)
            self.assertIn(message, self.train("run", *words, status=LOAD).err)
            (path / name).write_text(before)
        (path / "images/001.Bird_0/0000.jpg").unlink()
        self.assertIn("0000.jpg': No such file or directory", self.train("run", *words, status=LOAD).err)

    def test_wrong_cifar_is_reported(self):
        path = image_sets.write_cifar10(self.folder / "ten")
        words = ["dataset=cifar10", f"dataset.path={path}", *SMALL]
        batch = path / "data_batch_3.bin"
        whole = batch.read_bytes()
        batch.write_bytes(whole[:-1])
        self.assertIn("does not consist of records of 3073 bytes", self.train("run", *words, status=LOAD).err)
        batch.write_bytes(b"\x0b" + whole[1:])
        self.assertIn("data_batch_3.bin', record 0: label 11 is out of range, 0 to 9",
                      self.train("run", *words, status=LOAD).err)
        batch.unlink()
        self.assertIn("no file 'data_batch_3.bin'", self.train("run", *words, status=LOAD).err)

    @plain
    def test_an_unknown_class_in_the_test_split_is_reported(self):
        path = self.folder_set()
        (path / "test/rose").rename(path / "test/weed")
        self.assertIn("holds a class 'weed' that the training split does not have",
                      self.train("run", *folder_words(path), status=LOAD).err)

    @plain
    def test_a_folder_without_pictures_and_pictures_of_other_formats_are_reported(self):
        path = self.folder_set()
        (path / "train/notes").mkdir()
        for name in "train/notes/read.txt", "train/rose/a.WebP", "train/rose/b.bmp", "test/rose/c.tif":
            (path / name).write_text("not a picture")
        err = self.train("run", *folder_words(path, "training.epochs=1")).err
        self.assertIn(f"'{path}/train/notes' counts as a class but holds no pictures", err)
        self.assertIn(f"2 pictures in '{path}/train', such as 'train/rose/a.WebP', are left out: brim reads only", err)
        self.assertIn(f"1 picture in '{path}/test', such as 'test/rose/c.tif', is left out", err)

    @plain
    def test_pictures_need_a_size(self):
        err = self.train("run", *folder_words(self.folder_set(), "transform.size=[]"), status=USAGE).err
        self.assertIn("set the size that the model gets, for example transform.size=224", err)


if __name__ == "__main__":
    main()
