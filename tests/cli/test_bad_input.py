"""Tests wrong input: brim gives a clear message and the right exit status, and leaves no partial files."""

import gzip
import json
import os
import shutil
import struct
import unittest

from support import (DONE, FAILED, FASHION, FAULT_SHIM, LOAD, SANITIZED, SMALL, SMALL_CNN, USAGE, Case, idx,
                     idx_overrides, main, write, write_idx_dataset)


class Dataset(Case):
    def setUp(self):
        super().setUp()
        self.data = write_idx_dataset(self.folder / "data")
        self.images = self.data / "train-images-idx3-ubyte"
        self.labels = self.data / "train-labels-idx1-ubyte"

    def refused(self, *parts, status=LOAD):
        """Asserts that training and planning fail with the message, and that training leaves no folder."""
        result = self.train("run", *idx_overrides("data"), status=status)
        self.assert_error(result, *parts)
        self.assertFalse((self.folder / "run").exists())
        return result

    def test_the_unchanged_data_is_accepted(self):
        self.train("run", *idx_overrides("data"), "training.epochs=12", "optimizer.lr=0.02")
        self.assertGreater(self.summary("run")["test_accuracy"], 0.9)

    def test_truncated_gzip(self):
        packed = gzip.compress(self.images.read_bytes())
        self.images.unlink()
        (self.data / "train-images-idx3-ubyte.gz").write_bytes(packed[:len(packed) // 2])
        self.refused("data/train-images-idx3-ubyte.gz", "truncated")

    def test_gzip_with_a_changed_byte(self):
        packed = bytearray(gzip.compress(self.images.read_bytes()))
        packed[len(packed) - 6] ^= 1  # a bit of the checksum
        self.images.unlink()
        (self.data / "train-images-idx3-ubyte.gz").write_bytes(packed)
        self.refused("train-images-idx3-ubyte.gz", "damaged")

    def test_wrong_magic(self):
        self.images.write_bytes(b"\x7fELF" + self.images.read_bytes()[4:])
        self.refused("data/train-images-idx3-ubyte", "not an IDX file", "7f 45 4c 46")

    def test_wrong_type_of_values(self):
        self.images.write_bytes(idx(self.images.read_bytes()[16:], 96, 8, 8, magic=bytes([0, 0, 0x0d, 3])))
        self.refused("32-bit floats", "unsigned bytes")

    def test_shorter_than_the_header_says(self):
        self.images.write_bytes(self.images.read_bytes()[:-1])
        self.refused("data/train-images-idx3-ubyte", "shorter than its header says")

    def test_counts_that_disagree(self):
        write(self.labels, idx(bytes(95), 95))
        self.refused("96 images", "95 labels", "train-labels-idx1-ubyte")

    def test_images_of_other_sizes_in_the_splits(self):
        write(self.data / "t10k-images-idx3-ubyte", idx(bytes(32 * 49), 32, 7, 7))
        self.refused("8", "7")

    def test_label_out_of_range(self):
        labels = bytearray(96)
        labels[41] = 10
        write(self.labels, idx(bytes(labels), 96))
        self.refused("train-labels-idx1-ubyte", "label 10 of sample 41", "0 to 9")

    def test_missing_file(self):
        self.labels.unlink()
        self.refused("train-labels-idx1-ubyte", "'data'")

    def test_missing_folder(self):
        result = self.train("run", *idx_overrides("nowhere"), status=LOAD)
        self.assert_error(result, "nowhere", "dataset.path")
        self.assertFalse((self.folder / "run").exists())

    def test_path_not_given(self):
        result = self.train("run", "dataset=mnist", status=USAGE)
        self.assert_error(result, "dataset.path")

    def test_unreadable_folder(self):
        os.chmod(self.data, 0)
        result = self.brim_as_user("train", "run.dir=run", *idx_overrides("data"), status=LOAD)
        self.assert_error(result, "data", "Permission denied")
        self.assertFalse((self.folder / "run").exists())

    def test_unreadable_file(self):
        os.chmod(self.images, 0)
        result = self.brim_as_user("train", "run.dir=run", *idx_overrides("data"), status=LOAD)
        self.assert_error(result, "train-images-idx3-ubyte", "Permission denied")

    def test_empty_dataset(self):
        write(self.images, idx(b"", 0, 8, 8))
        write(self.labels, idx(b"", 0))
        self.refused("is empty", "0 samples")

    def test_empty_file(self):
        self.images.write_bytes(b"")
        self.refused("too short for an IDX header")

    def test_a_validation_share_that_leaves_nothing_to_train_on(self):
        result = self.train("run", *idx_overrides("data"), "dataset.validation_fraction=0.999", status=None)
        self.assertIn(result.status, (USAGE, LOAD), result)
        self.assert_error(result, "validation_fraction")

    @unittest.skipUnless(FASHION.is_dir(), "Fashion-MNIST is not installed")
    def test_a_missing_debian_package_is_named(self):
        result = self.train("run", "dataset=fashion_mnist", f"dataset.path={FASHION}-gone", status=LOAD)
        self.assert_error(result, "dataset-fashion-mnist")


class RunFolder(Case):
    def test_cannot_be_made(self):
        inner = self.folder / "inner"
        inner.mkdir()
        os.chmod(inner, 0o555)
        result = self.brim_as_user("train", f"run.dir={inner}/run", *SMALL, "training.steps=1", status=USAGE)
        self.assert_error(result, "cannot make folder", "Permission denied")

    def test_is_a_file(self):
        (self.folder / "run").write_text("mine")
        result = self.train("run", *SMALL, "training.steps=1", status=USAGE)
        self.assert_error(result, "cannot make folder 'run': a file has this name")
        self.assertEqual(self.read("run"), "mine")

    def test_resume_of_something_else(self):
        (self.folder / "other").mkdir()
        result = self.brim("train", "--resume", "other", status=LOAD)
        self.assert_error(result, "'other' is not the folder of a run", "config.yaml")
        self.assertEqual(list((self.folder / "other").iterdir()), [])


@unittest.skipIf(SANITIZED or not FAULT_SHIM, "the shim and a sanitizer cannot both be preloaded")
class FullDisk(Case):
    """The disk has room for a given number of bytes."""

    def shim(self, **more):
        return {"LD_PRELOAD": FAULT_SHIM, **more}

    def test_while_checkpointing(self):
        # A checkpoint takes about 14 kB. The disk fills up while the third one is written, at different positions.
        overrides = [*SMALL, "training.steps=40", "training.checkpoint_every_steps=10", "training.keep_checkpoints=9",
                     "observe.log_every_steps=100"]
        self.train("whole", *overrides)
        size = sum(path.stat().st_size for path in self.checkpoint("whole", 10).iterdir())
        for share in (0.1, 0.35, 0.6, 0.97):
            with self.subTest(share=share):
                run = f"run{share}"
                env = self.shim(BRIM_FILES_FOLDER=f"/{run}/checkpoints/", BRIM_FILES_FULL_AFTER=int(size * (2 + share)))
                result = self.train(run, *overrides, status=FAILED, env={k: str(v) for k, v in env.items()})
                self.assert_error(result, "No space left on device", "step 30 was not written",
                                  "earlier ones are unchanged")
                self.assertEqual(self.steps(run), [10, 20])
                names = sorted(path.name for path in (self.folder / run / "checkpoints").iterdir())
                self.assertEqual(names, ["last", "step-00000010", "step-00000020"], "nothing half-written is left")
                for step in (10, 20):
                    self.assert_same_checkpoint("whole", run, step)
                summary = self.summary(run)
                self.assertEqual(summary["status"], "failed")
                self.assertIn("No space left on device", summary["error"])
                # the run resumes once there is room again
                self.brim("train", "--resume", run)
                self.assert_same_checkpoint("whole", run, 40)

    def test_from_the_beginning(self):
        env = self.shim(BRIM_FILES_FOLDER=str(self.folder), BRIM_FILES_FULL_AFTER="0")
        result = self.train("run", *SMALL, "training.steps=2", status=FAILED, env=env)
        self.assert_error(result, "No space left on device")
        names = [name for name in self.tree("run") if name != ".lock"]
        self.assertEqual(names, [])

    def test_in_the_records(self):
        env = self.shim(BRIM_FILES_FOLDER="metrics.jsonl", BRIM_FILES_FULL_AFTER="1000")
        result = self.train("run", *SMALL, "training.steps=40", "observe.log_every_steps=1", status=FAILED, env=env)
        self.assert_error(result, "metrics.jsonl", "No space left on device")
        for record in self.records("run"):  # whole lines only
            self.assertIn("loss", record)


class Checkpoint(Case):
    """Checkpoints that are damaged or belong to another run."""

    OVERRIDES = [*SMALL, "training.checkpoint_every_steps=5", "training.keep_checkpoints=9"]

    def setUp(self):
        super().setUp()
        self.once(lambda: self.train("run", *self.OVERRIDES, "training.steps=20"), "run")
        shutil.copytree(self.folder / "run", self.folder / "whole", symlinks=True)
        (self.folder / "run" / "summary.json").unlink()  # as if the run had been killed

    def spoil(self, step, name, how):
        path = self.checkpoint("run", step) / name
        data = bytearray(path.read_bytes())
        path.write_bytes(how(data))

    def test_a_damaged_one_is_skipped_with_a_warning(self):
        def flip(data):
            data[len(data) // 2] ^= 0x40
            return data

        damages = [("model.safetensors", flip), ("optimizer.safetensors", lambda data: data[:-7]), ("state.json", flip)]
        for step, (name, how) in zip((10, 15, 20), damages):
            self.spoil(step, name, how)
        result = self.brim("train", "--resume", "run")
        self.assertEqual(result.err.count("warning: skipping a checkpoint"), 3, result)
        for name, _ in damages:
            self.assertIn(name, result.err)
        self.assertIn("after step 5 of 20", result.out)
        self.assert_same_checkpoint("whole", "run", 20)

    def test_a_missing_file_is_damage(self):
        (self.checkpoint("run", 20) / "optimizer.safetensors").unlink()
        result = self.brim("train", "--resume", "run")
        self.assertIn("skipping a checkpoint", result.err)
        self.assert_same_checkpoint("whole", "run", 20)

    def test_none_whole_is_an_error_and_changes_none_of_them(self):
        for step in (5, 10, 15, 20):
            self.spoil(step, "model.safetensors", lambda data: data[:100])
        before = self.tree("run", "checkpoints")
        result = self.brim("train", "--resume", "run", status=LOAD)
        self.assert_error(result, "all 4 checkpoints", "run/checkpoints")
        self.assertEqual(self.tree("run", "checkpoints"), before)

    def put_in_place(self, other):
        """Replaces the newest checkpoint with the one of another run."""
        folder = self.checkpoint("run", 20)
        for path in self.checkpoint(other, 20).iterdir():
            (folder / path.name).write_bytes(path.read_bytes())

    def test_of_a_model_of_another_size(self):
        self.train("other", *self.OVERRIDES, "training.steps=20", "model.hidden=[17]")
        self.put_in_place("other")
        result = self.brim("train", "--resume", "run", status=LOAD)
        self.assert_error(result, "of another model", "'fc1.weight' is F32 [17, 64]; the model needs F32 [16, 64]",
                          "fc2.weight")

    def test_of_another_kind_of_model(self):
        self.train("other", *SMALL_CNN, "training.steps=20")
        self.put_in_place("other")
        result = self.brim("train", "--resume", "run", status=LOAD)
        self.assert_error(result, "model 'cnn'", "'mlp'")

    def test_of_another_optimizer(self):
        self.train("other", *self.OVERRIDES, "training.steps=20", "optimizer=sgd")
        self.put_in_place("other")
        result = self.brim("train", "--resume", "run", status=LOAD)
        self.assert_error(result, "optimizer 'sgd'", "'adamw'")

    def test_a_header_that_asks_for_too_much(self):
        self.spoil(20, "model.safetensors", lambda data: struct.pack("<Q", 1 << 62) + data[8:])
        self.brim("train", "--resume", "run", status=DONE)

    def test_the_configuration_was_edited_into_nonsense(self):
        path = self.folder / "run" / "config.yaml"
        path.write_text(path.read_text().replace("batch_size: 128", "batch_size: [128"))
        result = self.brim("train", "--resume", "run", status=USAGE)
        self.assert_error(result, "config.yaml:")


class NotFiles(Case):
    """Pipes and links instead of files: brim must not wait for a pipe's other end or write through a link."""

    def put_pipe(self, *parts):
        path = self.folder.joinpath(*parts)
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    def test_pipes_in_a_run(self):
        self.train("whole", *SMALL, "training.steps=2")
        for name, status, *words in (
                ("metrics.jsonl", FAILED, "train", "--resume", "run"), ("metrics.jsonl", LOAD, "compare", "run"),
                ("events.jsonl", FAILED, "train", "--resume", "run"), ("plan.json", DONE, "train", "--resume", "run"),
                ("summary.json", DONE, "compare", "run"), ("data.json", LOAD, "eval", "run"),
                ("plugins.json", DONE, "report", "run"), ("config.yaml", LOAD, "eval", "run"),
                ("checkpoints/last/model.safetensors", LOAD, "eval", "run"),
                ("checkpoints/last/optimizer.safetensors", LOAD, "train", "--resume", "run")):
            with self.subTest(name, words=words):
                shutil.copytree(self.folder / "whole", self.folder / "run", symlinks=True)
                if "--resume" in words:
                    (self.folder / "run/summary.json").unlink()
                self.put_pipe("run", name)
                result = self.brim(*words, status=status)
                if status != DONE:
                    self.assertIn("it is not a file", result.err)
                shutil.rmtree(self.folder / "run")

    def test_a_pipe_in_place_of_a_runs_record_of_plugins(self):
        self.train("run", *SMALL, "training.steps=2")
        config = self.folder / "run/config.yaml"
        config.write_text(config.read_text().replace("id: mlp", "id: gone"))
        self.put_pipe("run", "plugins.json")
        self.assert_error(self.brim("eval", "run", status=USAGE), "no plugin 'gone'")

    def test_pipes_elsewhere(self):
        self.put_pipe("weights")
        self.assert_error(self.brim("plan", *SMALL, "model.weights=weights", status=LOAD),
                          "'weights': it is not a file")
        words = [*SMALL, "memory.timing=true"]
        self.brim("plan", *words)
        profile, = (self.folder / "cache/brim").glob("cpu-*.jsonl")
        self.put_pipe(profile)
        self.assertIn("it is not a file", self.brim("plan", *words, status=None).err)

    def test_links_in_a_prepared_folder(self):
        (self.folder / "mine").write_text("mine")
        for name, status in ((".lock", FAILED), ("events.jsonl", FAILED), (".config.yaml.tmp", DONE)):
            with self.subTest(name):
                (self.folder / "run").mkdir()
                if name != ".lock":
                    (self.folder / "run/.lock").write_text("")  # left by a run that ended before its first step
                (self.folder / "run" / name).symlink_to("../mine")
                result = self.train("run", *SMALL, "training.steps=1", status=status)
                if status != DONE:
                    self.assert_error(result, f"{name}': it is a symbolic link")
                self.assertEqual(self.read("mine"), "mine")
                shutil.rmtree(self.folder / "run")


class NotFinite(Case):
    def diverge(self, run, *overrides):
        return self.train(run, *overrides, "optimizer=sgd", "optimizer.lr=1e30", "schedule=constant",
                          "schedule.warmup_fraction=0", "training.steps=50", "training.batch_size=64",
                          "training.checkpoint_every_steps=1", status=FAILED)

    def test_names_the_step_and_the_first_operation(self):
        for name, overrides in (("mlp", SMALL), ("cnn", SMALL_CNN)):
            with self.subTest(name):
                result = self.diverge(name, *overrides)
                self.assertRegex(result.err, r"error: the loss of step \d+ is (not a number|infinite)")
                self.assertRegex(result.err, rf"first produced by [\w+]+ '.+' \({name}\.c:\d+\)")
                self.assertIn("learning rate 1e+30", result.err)

    def test_an_evaluation_that_is_not_finite_ends_the_run(self):
        result = self.train("run", *SMALL, "optimizer=sgd", "optimizer.lr=1e38", "schedule=constant",
                            "training.steps=1", "dataset.validation_fraction=0.2", status=FAILED)
        self.assert_error(result, "the validation loss after step 1 is not a number")
        self.assertEqual(self.summary("run")["status"], "failed")
        self.assertFalse((self.folder / "run" / "checkpoints" / "best").exists())

    def test_the_step_is_not_committed(self):
        self.diverge("run", *SMALL)
        summary = self.summary("run")
        self.assertEqual(summary["status"], "failed")
        self.assertIn("the loss of step", summary["error"])
        self.assertEqual(self.steps("run")[-1], summary["steps"])
        for record in self.records("run"):
            self.assertIsNotNone(record["loss"])
        state = json.loads((self.checkpoint("run", summary["steps"]) / "state.json").read_text())
        self.assertEqual(state["step"], summary["steps"])

    def test_events_record_it(self):
        self.diverge("run", *SMALL)
        self.assertEqual(self.events("run")[-1], "failed")


if __name__ == "__main__":
    main()
