"""Tests installed experiments on small generated data: each has the settings it promises, can be planned, and trains at
a reduced size."""

import csv
import math
import pathlib
import random
import unittest

import image_sets
from support import BINARY, USAGE, Case, main, write_idx_dataset

READS_PICTURES = pathlib.Path(BINARY).parents[1].joinpath("lib/brim/plugins/dataset/image_folder.so").exists()
SMALL_TOWER = ["backbone.depth=1", "backbone.width=32", "backbone.heads=2", "backbone.projection=16",
               "backbone.patch=56"]


class Experiment(Case):
    def chosen(self, *words):
        """Returns the configuration's lines, without leading blanks."""
        return [line.strip() for line in self.brim("config", *words).out.splitlines()]

    def check(self, words, *lines):
        said = self.chosen(*words)
        for line in lines:
            self.assertIn(line, said)
        return self.brim("plan", "--json", *words, "memory.timing=false").json

    def write(self, name, header, rows):
        with (self.folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])


class OfTables(Experiment):
    def test_temperature(self):
        self.write("rooms.csv", ["date", "temperature", "humidity"],
                   [[i, f"{math.sin(i / 9):.4f}", f"{math.cos(i / 9):.4f}"] for i in range(200)])
        words = ["experiment=temperature", "dataset.path=rooms.csv"]
        self.check(words, "id: temperature_lstm", "hidden: 50", "id: mse", "id: adam", "batch_size: 16", "sequence: 24")
        err = self.train("run", *words, "training.epochs=2").out
        self.assertIn("MAPE", err)
        self.assertLess(self.summary("run")["test_mae"], 1)

    def test_mental_state(self):
        draw = random.Random(1)
        self.write("eeg.csv", [*(f"feature_{k}" for k in range(40)), "Label"],
                   [[*(f"{draw.gauss(i % 3, 1):.3f}" for _ in range(40)), f"{i % 3}.0"] for i in range(90)])
        words = ["experiment=mental_state", "dataset.path=eeg.csv"]
        self.check(words, "id: mental_state", "heads: 4", "hidden: 64", "id: adamw", "batch_size: 16")
        self.train("run", *words, "training.epochs=15", "model.width=8", "model.hidden=8")
        self.assertGreater(self.records("run")[-1]["accuracy"], 0.6)


@unittest.skipUnless(READS_PICTURES, "this build reads no pictures")
class OfPictures(Experiment):
    def test_emotion(self):
        image_sets.write_folder(self.folder / "faces", tuple(f"emotion_{k}" for k in range(7)), train=6, test=2)
        words = ["experiment=emotion", "dataset.path=faces"]
        plan = self.check(words, "id: emotion_cnn", "id: adam", "lr: 1e-4", "batch_size: 16", "epochs: 20")
        self.assertEqual(plan["parameters"], 2345607)  # for 1x48x48 images and 7 classes
        self.train("run", *words, "training.epochs=1")
        self.assertEqual(self.summary("run")["steps"], 3)

    def test_clip(self):
        """The plans are for the experiment's real size."""
        image_sets.write_flowers(self.folder / "flowers102")
        image_sets.write_birds(self.folder / "cub200")
        for name, lr in (("clip_linear_probe", "1e-3"), ("clip_lora", "1e-4")):
            for data in ("flowers102", "cub200"):
                words = [f"experiment={name}", f"dataset={data}", f"dataset.path={data}"]
                self.check(words, "id: clip_vit", "patch: 14", "depth: 24", f"id: {data}", "id: adam", f"lr: {lr}",
                           "effective_batch_size: 128", "num_workers: 4", "epochs: 1", "normalize: clip",
                           "flip: false", "random_resized_crop: false")
                self.train(f"{name}-{data}", *words, *SMALL_TOWER)
        self.assertIn("lora_alpha: 16", self.chosen("experiment=clip_lora", "dataset.path=flowers102"))

    def test_clip_that_shares_its_machine(self):
        said = self.chosen("--config-name", "robust", "experiment=clip_lora", "dataset.path=x", "model.lora_r=4")
        for line in ("lora_r: 4", "batch_size: 32", "gradient_accumulation_steps: 4", "effective_batch_size: 128",
                     "lr: 1e-4"):
            self.assertIn(line, said)


class OfFederations(Experiment):
    """The tests train with fewer clients and samples than the experiments themselves."""

    def federation(self, *words):
        """Plans an experiment at its real size, apart from the data; trains nothing."""
        return self.brim("--config-name", "federate", "plan", "--json", *words, "memory.timing=false").json

    def check_rounds(self, words, clients, rounds, each):
        said = self.brim("--config-name", "federate", "config", *words).out
        for line in (f"total_clients: {clients[0]}", f"clients_per_round: {clients[1]}", f"rounds: {rounds}",
                     "  batch_size: 10", "  local_epochs: 1", "  kind: iid"):
            self.assertIn(f"\n{line}\n", said)
        small = [*words, "total_clients=8", "clients_per_round=8", "rounds=2", "observe.log_every_steps=1"]
        self.brim("federate", "run.dir=run", *small)
        trained = [r for r in self.records("run") if r["split"] == "train"]
        self.assertEqual([r["samples"] for r in trained], [8 * each] * 2)
        self.assertLess(trained[1]["loss"], trained[0]["loss"])
        self.train("again", *small)  # an experiment sets everything: the base configuration makes no difference
        self.assert_same_checkpoint("run", "again", 2)

    def test_fedavg_mnist(self):
        write_idx_dataset(self.folder / "mnist", train=160, rows=28)
        for words in (["dataset.path=mnist"], ["dataset=mnist", "dataset.path=mnist"]):
            plan = self.federation("experiment=fedavg_mnist", *words, "total_clients=16")
            self.assertEqual(plan["parameters"], 1663370)
        self.check_rounds(["experiment=fedavg_mnist", "dataset.path=mnist", "model.width=4"], (100, 10), 100, 20)

    def test_flute_lr(self):
        write_idx_dataset(self.folder / "mnist", train=240, rows=28)
        words = ["experiment=flute_lr", "dataset.path=mnist"]
        self.assertEqual(self.federation(*words, "total_clients=16")["parameters"], 7850)
        self.check_rounds(words, (1000, 10), 100, 30)

    def test_pfl_cifar10(self):
        image_sets.write_cifar10(self.folder / "cifar", count=80)
        words = ["experiment=pfl_cifar10", "dataset.path=cifar"]
        plan = self.federation(*words, "total_clients=50")
        self.assertEqual(plan["parameters"], 1626442)
        self.check_rounds([*words, "model.width=4", "optimizer.lr=0.01"], (1000, 50), 1500, 50)


# Keys that `--config-name robust` sets: devices, waiting, threads, and the log of memory.
ABOUT_SHARING = {"auto_device", "min_gpu_memory_mb", "wait_for_gpu", "gpu_wait_timeout_minutes",
                 "gpu_check_interval_seconds", "min_batch_size", "max_retries", "num_workers", "allow_cpu",
                 "memory_summary", "batch_size", "gradient_accumulation_steps"}  # the test compares their product


class Shared(Experiment):
    def numbers_of(self, *words):
        """Returns the configuration without the keys about sharing a machine, and the effective batch."""
        lines, key = [], ""
        number = {"effective_batch_size": 0}
        for line in self.brim(*words).out.splitlines():
            key = line if not line.startswith(" ") else key
            name, _, value = line.strip().partition(":")
            if name in ("batch_size", "gradient_accumulation_steps", "effective_batch_size"):
                number[name] = int(value)
            if name not in ABOUT_SHARING and name != "effective_batch_size" and not key.startswith("policy"):
                lines.append(line)
        product = number["batch_size"] * number["gradient_accumulation_steps"]
        return lines, number["effective_batch_size"] or product, product

    def test_the_robust_configuration_changes_no_numbers(self):
        for name in sorted(p.stem
                           for p in pathlib.Path(BINARY).parents[1].glob("share/brim/configs/experiment/*.yaml")):
            words = [f"experiment={name}", "dataset.path=there"]
            with self.subTest(name):
                plain = self.numbers_of("config", *words)
                if any(line.startswith("total_clients: ") for line in plain[0]):
                    words.append("~training.epochs")  # the robust configuration sets it, but a federation counts rounds
                self.assertEqual(plain, self.numbers_of("--config-name", "robust", "config", *words))
                self.assertEqual(plain[1], plain[2])


class WhatThereIs(Experiment):
    def test_backbones_are_models(self):
        refused = self.brim("config", "model=lora", "backbone=clip", status=USAGE)
        self.assert_error(refused, "no option 'clip' in group 'backbone'", " clip_vit_l14 ", " resnet18")
        words = ["model=lora", "backbone=clip_vit_b32", "backbone.depth=1", "dataset=synthetic",
                 "dataset.shape=[3,32,32]"]
        self.assertIn("width: 768", self.chosen(*words))
        self.brim("plan", *words, "memory.timing=false")


if __name__ == "__main__":
    main()
