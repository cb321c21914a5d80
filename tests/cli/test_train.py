"""Tests the files of a run, its number of steps, and running it again."""

import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import unittest

from support import (BINARY, CHECKPOINT_FILES, DONE, FASHION, SMALL, SMALL_CNN, SUMMARY_KEYS, USAGE, Case,
                     idx_overrides, main, plain, write_idx_dataset)


def safetensors_header(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return header, data[8 + length:]


def fnv1a64(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


class Folder(Case):
    def setUp(self):
        super().setUp()
        self.overrides = [*SMALL, "training.epochs=2", "observe.log_every_steps=1"]
        self.result = self.once(lambda: self.train("run", *self.overrides), "run")

    @plain
    def test_has_every_file(self):
        names = {path.name for path in (self.folder / "run").iterdir()}
        for name in ("config.yaml", "overrides.yaml", "sources.yaml", "metrics.jsonl", "events.jsonl", "summary.json",
                     "plan.json", "plugins.json", "checkpoints"):
            self.assertIn(name, names)
        self.assertEqual([name for name in names if name.endswith(".tmp")], [])

    @plain
    def test_config_yaml_equals_the_output_of_brim_config(self):
        out = self.brim("config", "run.dir=run", "precision=fp32", *self.overrides).out  # precision=auto chooses fp32
        self.assertEqual(self.read("run", "config.yaml"), out)

    @plain
    def test_overrides_are_kept_as_typed(self):
        text = self.read("run", "overrides.yaml")
        for word in ("run.dir=run", *self.overrides):
            self.assertIn(word, text)

    @plain
    def test_sources_name_the_command_line_and_the_file(self):
        text = self.read("run", "sources.yaml")
        self.assertRegex(text, r"train_count:.*dataset\.train_count=256")
        self.assertRegex(text, r"config\.yaml:\d+")

    @plain
    def test_summary_has_the_promised_figures(self):
        summary = self.summary("run")
        for key in SUMMARY_KEYS:
            self.assertIn(key, summary)
            self.assertIsNotNone(summary[key], key)
        self.assertEqual(summary["status"], "finished")
        self.assertEqual(summary["steps"], 4)
        self.assertEqual(summary["retries"], 0)
        self.assertLessEqual(summary["first_step_seconds"], summary["wall_seconds"])
        self.assertGreaterEqual(summary["rss_peak_bytes"], summary["device_peak_bytes"])

    @plain
    def test_confusion_matrix_agrees_with_the_accuracy(self):
        summary = self.summary("run")
        matrix = summary["test_confusion"]
        total = sum(map(sum, matrix))
        self.assertEqual(total, 64)
        self.assertAlmostEqual(sum(matrix[i][i] for i in range(10)) / total, summary["test_accuracy"])
        # The label of a sample is its index mod 10.
        self.assertEqual([sum(row) for row in matrix], [7, 7, 7, 7, 6, 6, 6, 6, 6, 6])

    @plain
    def test_placed_memory_is_the_planned_to_the_byte(self):
        summary, plan = self.summary("run"), self.json("run", "plan.json")
        self.assertEqual(summary["planned_peak_bytes"], summary["device_peak_bytes"])
        self.assertEqual(summary["planned_peak_bytes"], plan["peak_bytes"])
        shown = self.brim("plan", "--json", *self.overrides).json
        for key, value in plan.items():
            self.assertEqual(shown[key], value, key)

    @plain
    def test_metrics_are_objects_with_the_promised_keys(self):
        records = self.records("run")
        for record in records:
            keys = {"step", "epoch", "split", "loss", "accuracy", "lr", "samples", "samples_per_second", "seconds"}
            others = {"accuracy_top5", "f1"} if record["split"] != "train" else {"loader_seconds"}
            self.assertEqual(set(record), keys | others)
            self.assertLessEqual(record.get("loader_seconds", 0), record["seconds"])
        train = [record for record in records if record["split"] == "train"]
        self.assertEqual([record["step"] for record in train], [1, 2, 3, 4])
        self.assertEqual([record["epoch"] for record in train], [0.5, 1, 1.5, 2])
        self.assertEqual([record["step"] for record in records if record["split"] == "test"], [2, 4])
        self.assertEqual(self.summary("run")["train_loss"], train[-1]["loss"])

    @plain
    def test_events_record_the_run(self):
        self.assertEqual(self.events("run"), ["started", "checkpoint", "checkpoint", "finished"])

    @plain
    def test_plugins_are_recorded(self):
        plugins = self.json("run", "plugins.json")
        self.assertEqual({group: plugins[group]["id"] for group in ("model", "dataset", "optimizer")},
                         {"model": "mlp", "dataset": "synthetic", "optimizer": "adamw"})
        version = self.brim("version", "--json").json["version"]
        optimizer = plugins["optimizer"]
        self.assertEqual((optimizer["version"], optimizer["file"], optimizer["hash"]), (version, None, None))
        for group in ("model", "dataset", "backend"):
            with self.subTest(group):
                data = pathlib.Path(plugins[group]["file"]).read_bytes()
                self.assertEqual(plugins[group]["hash"], f"fnv1a64:{fnv1a64(data):016x}")
                self.assertTrue(plugins[group]["version"])

    def test_one_is_singular_in_output(self):
        result = self.train("one", *SMALL, "training.steps=1", "dataset.test_count=1")
        self.assertIn(" 1 step;", result.out)
        self.assertIn("(1 sample)", result.out)

    def test_a_pattern_of_parameters_may_be_long(self):
        decay = [*self.overrides, "optimizer.weight_decay=0.5"]
        self.train("short", *decay, "optimizer.no_decay=*")
        self.train("long", *decay, "optimizer.no_decay=x " + "*" * 300)
        self.train("none", *decay)
        short, long, none = (self.checkpoint(run, 4).joinpath("model.safetensors").read_bytes()
                             for run in ("short", "long", "none"))
        self.assertEqual(short, long)
        self.assertNotEqual(short, none)

    @plain
    def test_the_run_and_its_results_go_to_standard_output_and_progress_to_standard_error(self):
        for text in (self.result.out, self.result.err):
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\r", text)
        for line in (r"mlp on synthetic: 256 samples", r"memory planned and placed: ", r"epoch \d+, step 4: test loss",
                     r"test loss", r"done in ", r"results in run"):
            self.assertRegex(self.result.out, f"(?m)^{line}")
            self.assertNotRegex(self.result.err, f"(?m)^{line}")
        self.assertRegex(self.result.err, r"(?m)^epoch .*step 4/4  loss")
        self.assertNotIn("step 4/4", self.result.out)

    @plain
    def test_a_result_that_cannot_be_written_is_warned_of_once(self):
        with open("/dev/full", "wb") as full:
            process = self.start("train", "run.dir=full", *self.overrides, out=full)
            result = self.finish(process, DONE)
        self.assertEqual(result.err.count("warning: cannot write to standard output: No space left on device"), 1)
        self.assertEqual(self.summary("full")["status"], "finished")

    def test_a_reader_that_closed_the_pipe_is_not_a_failure(self):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as gone:
            result = self.finish(self.start("train", "run.dir=gone", *self.overrides, out=gone), DONE)
        self.assertNotIn("warning", result.err)
        self.assertEqual(self.summary("gone")["status"], "finished")

    def test_quiet_prints_nothing(self):
        result = self.brim("--quiet", "train", "run.dir=quiet", *self.overrides)
        self.assertEqual((result.out, result.err), ("", ""))

    def test_checkpoint_is_plain_safetensors(self):
        folder = self.checkpoint("run", 4)
        self.assertEqual(sorted(path.name for path in folder.iterdir()), CHECKPOINT_FILES)
        header, data = safetensors_header(folder / "model.safetensors")
        self.assertEqual({name: (entry["dtype"], entry["shape"]) for name, entry in header.items()},
                         {"fc1.weight": ("F32", [16, 64]), "fc1.bias": ("F32", [16]),
                          "fc2.weight": ("F32", [10, 16]), "fc2.bias": ("F32", [10])})
        spans = sorted(entry["data_offsets"] for entry in header.values())
        self.assertEqual([start for start, _ in spans], [0] + [end for _, end in spans[:-1]])
        self.assertEqual(spans[-1][1], len(data))

    def test_state_has_no_clock_and_no_path(self):
        text = (self.checkpoint("run", 4) / "state.json").read_text()
        self.assertNotIn(str(self.folder), text)
        self.train("elsewhere", *self.overrides)
        self.assert_same_checkpoint("run", "elsewhere", 4)

    @plain
    def test_an_existing_run_is_not_written_over(self):
        before = self.tree("run")
        result = self.train("run", *self.overrides, status=USAGE)
        self.assert_error(result, "'run' already holds a run", "--resume run")
        self.assertEqual(self.tree("run"), before)


class Terminal(Case):
    def test_progress_is_one_line_that_is_redrawn(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        process = subprocess.Popen([BINARY, "train", "run.dir=run", *SMALL, "training.epochs=40"], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                   env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LC_ALL": "C.UTF-8"})
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # brim has closed its side
                break
        self.assertEqual(process.wait(), 0)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
        lines = [part for part in text.split("\r") if "samples/s" in part and "epoch" in part]
        self.assertGreater(len(lines), 1)
        for word in ("epoch", "step", "loss", "acc", "samples/s", "mem", "eta"):
            self.assertIn(word, lines[-1])


class Cnn(Case):
    def test_trains_on_images(self):
        self.train("run", *SMALL_CNN, "model.width=8", "training.batch_size=16", "training.epochs=8",
                   "optimizer.lr=5e-3", "dataset.noise=0.5")
        self.assertGreater(self.summary("run")["test_accuracy"], 0.8)

    @plain
    def test_has_pytorchs_parameters(self):
        self.train("run", "model=cnn", "dataset=synthetic", "dataset.test_count=0", "training.batch_size=16",
                   "training.steps=1")
        header, data = safetensors_header(self.checkpoint("run", 1) / "model.safetensors")
        self.assertEqual(len(data), 4 * 1_199_882)
        self.assertEqual(header["conv2.weight"]["shape"], [64, 32, 3, 3])
        self.assertEqual(header["fc1.weight"]["shape"], [128, 9216])

    @unittest.skipUnless(FASHION.is_dir(), "Fashion-MNIST is not installed")
    @plain
    def test_learns_fashion_mnist_from_a_few_samples(self):
        self.train("run", "model=cnn", "model.width=8", "dataset=fashion_mnist", "training.num_train_samples=2560",
                   "training.epochs=2", "training.batch_size=64", "training.eval_every_steps=80")
        summary = self.summary("run")
        self.assertEqual(summary["steps"], 80)
        self.assertEqual(sum(map(sum, summary["test_confusion"])), 10000)
        self.assertGreater(summary["test_accuracy"], 0.6)


class Arithmetic(Case):
    """Steps, epochs, micro-batches and partial batches."""

    def steps_and_records(self, *overrides):
        self.train("run", *SMALL, "observe.log_every_steps=1", *overrides)
        return self.summary("run")["steps"], self.records("run")

    def test_the_last_partial_batch_is_a_step(self):
        steps, records = self.steps_and_records("dataset.train_count=100", "training.batch_size=32",
                                                "training.epochs=2")
        self.assertEqual(steps, 8)
        self.assertEqual([r["step"] for r in records if r["split"] == "test"], [4, 8])

    @plain
    def test_every_sample_counts_once_in_an_epoch(self):
        # With lr 0 the model does not change, so the mean over an epoch is the same for every split of the data.
        means = []
        for i, cut in enumerate((["training.batch_size=100"], ["training.batch_size=32"], ["training.batch_size=7"],
                                 ["training.batch_size=7", "training.gradient_accumulation_steps=4"])):
            self.train(f"run{i}", *SMALL, "dataset.train_count=100", "training.epochs=1", "optimizer.lr=0",
                       "observe.log_every_steps=1000", "training.eval_batch_size=9", *cut)
            record = next(r for r in self.records(f"run{i}") if r["split"] == "train")
            means.append((record["loss"], record["accuracy"]))
        for loss, accuracy in means[1:]:
            self.assertAlmostEqual(loss, means[0][0], places=5)
            self.assertEqual(accuracy, means[0][1])

    @plain
    def test_accumulation_makes_fewer_steps(self):
        steps, _ = self.steps_and_records("dataset.train_count=100", "training.batch_size=8",
                                          "training.gradient_accumulation_steps=4", "training.epochs=1")
        self.assertEqual(steps, 4)

    @plain
    def test_steps_win_over_epochs(self):
        steps, _ = self.steps_and_records("training.epochs=1", "training.batch_size=64", "training.steps=7")
        self.assertEqual(steps, 7)

    @plain
    def test_num_train_samples(self):
        steps, _ = self.steps_and_records("training.num_train_samples=50", "training.batch_size=25",
                                          "training.epochs=3")
        self.assertEqual(steps, 6)

    @plain
    def test_a_batch_larger_than_the_data_is_one_step(self):
        result = self.train("run", *SMALL, "dataset.train_count=10", "training.batch_size=64", "training.epochs=3")
        self.assertEqual(self.summary("run")["steps"], 3)
        self.assertIn("effective batch 10 = 10 x 1 (requested: 64; the data have 10 training samples)", result.out)
        result = self.train("cut", *SMALL, "dataset.train_count=10", "training.batch_size=4", "training.epochs=1",
                            "training.gradient_accumulation_steps=16")
        self.assertIn("effective batch 10 = 4 x 2 + 2 (requested: 64; the data have 10 training samples)", result.out)

    @plain
    def test_host_memory_follows_the_samples_not_the_batch_size(self):
        self.train("fit", *SMALL, "training.batch_size=256", "training.steps=1")
        self.train("huge", *SMALL, "training.batch_size=1048576", "training.steps=1")
        self.assertEqual(self.summary("huge")["loader_bytes"], self.summary("fit")["loader_bytes"])
        self.assertEqual(self.summary("huge")["planned_peak_bytes"], self.summary("fit")["planned_peak_bytes"])

    @plain
    def test_zero_epochs_only_evaluate(self):
        result = self.train("run", *SMALL, "training.epochs=0")
        self.assertEqual(self.summary("run")["steps"], 0)
        self.assertEqual([r["split"] for r in self.records("run")], ["test"])
        self.assertRegex(result.out, r"done in 0:\d\d\n")

    def test_zero_epochs_make_a_run_of_weights(self):
        self.train("trained", *SMALL, "training.steps=3")
        self.brim("export", "trained", "-o", "weights.safetensors")
        self.train("run", *SMALL, "training.epochs=0", "model.weights=weights.safetensors")
        loss = [self.brim("eval", name, "--json").json["loss"] for name in ("trained", "run")]
        self.assertEqual(loss[0], loss[1])

    @plain
    def test_a_rate_is_reported_after_the_first_step(self):
        self.assertRegex(self.train("one", *SMALL, "training.steps=1").out, r"done in 0:\d\d: first step after")
        self.assertRegex(self.train("two", *SMALL, "training.steps=2").out,
                         r"done in 0:\d\d: [1-9]\d* samples/s, first step after")

    @plain
    def test_evaluation_does_not_depend_on_its_batch(self):
        losses = []
        for i, batch in enumerate((1, 7, 64, 1000)):
            self.train(f"run{i}", *SMALL, "training.steps=2", f"training.eval_batch_size={batch}")
            losses.append(self.summary(f"run{i}")["test_loss"])
        for loss in losses[1:]:
            self.assertAlmostEqual(loss, losses[0], places=5)

    def test_validation_takes_its_share_and_chooses_the_best(self):
        self.train("run", *SMALL, "dataset.validation_fraction=0.25", "training.batch_size=64", "training.epochs=3",
                   "training.keep_checkpoints=1")
        records = self.records("run")
        validation = [r for r in records if r["split"] == "validation"]
        self.assertEqual([r["step"] for r in validation], [3, 6, 9])
        self.assertEqual([r["step"] for r in records if r["split"] == "test"], [9], "test data are looked at once")
        best = min(validation, key=lambda r: r["loss"])["step"]
        links = self.folder / "run" / "checkpoints"
        self.assertEqual((links / "best").readlink().name, f"step-{best:08d}")
        self.assertEqual((links / "last").readlink().name, "step-00000009")
        self.assertEqual(self.steps("run"), sorted({best, 9}))

    @plain
    def test_without_validation_data_there_is_no_best(self):
        self.train("run", *SMALL, "training.epochs=2")
        names = {path.name for path in (self.folder / "run" / "checkpoints").iterdir()}
        self.assertNotIn("best", names)

    def test_keeps_the_last_checkpoints(self):
        self.train("run", *SMALL, "training.steps=10", "training.checkpoint_every_steps=2",
                   "training.keep_checkpoints=3")
        self.assertEqual(self.steps("run"), [6, 8, 10])


class Again(Case):
    @plain
    def test_from_runs_the_same_again(self):
        self.train("first", *SMALL, "training.steps=6")
        self.brim("train", "--from", "first", "run.dir=second")
        self.assert_same_checkpoint("first", "second", 6)

    @plain
    def test_from_uses_a_new_folder(self):
        self.train("first", *SMALL, "training.steps=2")
        before = self.tree("first")
        self.brim("train", "--from", "first", "training.steps=1")
        self.assertEqual(self.tree("first"), before)
        run, = (self.folder / "runs").iterdir()
        self.assertEqual(self.summary(run)["steps"], 1)

    def test_from_takes_overrides(self):
        self.train("first", *SMALL, "training.steps=6")
        self.brim("train", "--from", "first", "run.dir=second", "training.steps=3", "seed=2")
        self.assertEqual(self.summary("second")["steps"], 3)
        self.assertIn("hidden: [16]", self.read("second", "config.yaml"))
        self.assertRegex(self.read("second", "config.yaml"), r"(?m)^seed: 2$")

    @plain
    def test_another_seed_gives_another_model(self):
        for seed in (1, 2):
            self.train(f"run{seed}", *SMALL, "training.steps=2", f"seed={seed}")
        a, b = ((self.checkpoint(f"run{seed}", 2) / "model.safetensors").read_bytes() for seed in (1, 2))
        self.assertNotEqual(a, b)

    def test_resuming_a_finished_run_says_so_and_changes_nothing(self):
        self.train("run", *SMALL, "training.steps=2")
        before = self.tree("run")
        result = self.brim("train", "--resume", "run")
        self.assertIn("'run' is finished", result.out)
        self.assertEqual(self.tree("run"), before)

    @plain
    def test_resume_takes_no_overrides(self):
        self.train("run", *SMALL, "training.steps=2")
        result = self.brim("train", "--resume", "run", "seed=2", status=USAGE)
        self.assert_error(result, "--resume", "'seed=2'", "brim train --from run seed=2")

    @plain
    def test_resume_and_from_exclude_each_other(self):
        self.brim("train", "--resume", "a", "--from", "b", status=USAGE)

    @plain
    def test_a_run_without_a_name_gets_a_folder_of_its_own(self):
        names = set()
        for _ in range(2):
            out = self.brim("train", *SMALL, "training.steps=1").out
            names.add(re.search(r"run folder (runs/mlp-synthetic-[\d-]+)", out).group(1))
        self.assertEqual(len(names), 2)
        for name in names:
            self.assertEqual(self.summary(name)["status"], "finished")

    def test_a_path_is_meant_from_the_working_directory(self):
        write_idx_dataset(self.folder / "data")
        self.train("deep/er/run", *idx_overrides("data"), "training.epochs=1")
        self.assertEqual(self.summary("deep/er/run")["steps"], 6)

    def test_gzip_and_plain_files_are_the_same_data(self):
        write_idx_dataset(self.folder / "plain")
        write_idx_dataset(self.folder / "packed", compress=True)
        for name in ("plain", "packed"):
            self.train(f"run-{name}", *idx_overrides(name), "training.epochs=1")
        self.assert_same_checkpoint("run-plain", "run-packed", 6)


if __name__ == "__main__":
    main()
