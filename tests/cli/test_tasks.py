"""Tests language modelling and regression: PyTorch's numbers, the same results for every split of a step, and the run's
output."""

import csv
import io
import json
import pathlib
import struct
import unittest

from ranks import Ranks
from support import SANITIZED, TIMED, USAGE, Case, main, plain
from tasks import GOLDEN, PLUGINS, STEPS, words_of

PYTORCH = json.loads((pathlib.Path(__file__).resolve().parents[1] / "golden" / "tasks.json").read_text("utf-8"))

PLUGIN = ["--plugin-path", f"{PLUGINS}/model/token_lstm.so"]
TOKENS = ["model=token_lstm", "dataset=synthetic", "dataset.task=tokens", "dataset.vocabulary=11", "dataset.length=12",
          "dataset.ignored=0.25", "dataset.train_count=144", "dataset.test_count=37", "training.batch_size=48",
          "memory.timing=false", "optimizer.lr=0.02"]
VALUES = ["model=temperature_lstm", "model.hidden=12", "dataset=synthetic", "dataset.task=values",
          "dataset.shape=[8,3]", "dataset.targets=2", "dataset.noise=0.1", "dataset.train_count=144",
          "dataset.test_count=37", "training.batch_size=48", "memory.timing=false", "optimizer.lr=0.02"]


class Tasks(Case):
    def train_tokens(self, run, *overrides, status=0):
        return self.brim(*PLUGIN, "train", f"run.dir={run}", *TOKENS, *overrides, status=status)

    def figures(self, run):
        """Returns the records without fields that depend on a clock."""
        return [{key: value for key, value in r.items() if key not in TIMED} for r in self.records(run)]

    def assert_close(self, run, other):
        """Asserts that all figures agree to 1e-9."""
        a, b = self.figures(run), self.figures(other)
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertEqual(x.keys(), y.keys())
            for key, value in x.items():
                if isinstance(value, float):
                    self.assertLessEqual(abs(value - y[key]), 1e-9 * max(1, abs(value)), f"{key}: {x}, {y}")
                else:
                    self.assertEqual(value, y[key])


class PyTorchNumbers(Tasks):
    """Every figure of 20 steps of SGD must be PyTorch's, in double precision."""

    def check(self, name, *overrides):
        words = [*words_of(name, "train"), "backend=reference", f"training.steps={STEPS}", "observe.log_every_steps=1",
                 f"training.eval_every_steps={STEPS}", *overrides]
        self.brim(*words, f"run.dir={name}")
        train = [r for r in self.records(name) if r["split"] == "train"]
        test = [r for r in self.records(name) if r["split"] == "test"]
        self.assertEqual(len(train), STEPS)
        for record, expected in [*zip(train, PYTORCH[name]["train"]), (test[-1], PYTORCH[name]["test"])]:
            for key, value in expected.items():
                self.assertLessEqual(abs(record[key] - value), 1e-9 * max(1, abs(value)), f"{name}: {key} of {record}")

    def test_every_case(self):
        for name in GOLDEN:
            self.check(name)

    @plain
    def test_a_step_in_pieces_with_other_numbers_of_tokens_in_each(self):
        """The loss is the mean over the step. With class weights it leaves out the same tokens as PyTorch's `mean`."""
        for name in GOLDEN:
            self.check(name, "training.batch_size=4")


class SameResults(Tasks):
    @plain
    def test_of_any_micro_batch_to_1e_9(self):
        for size in (48, 16, 6):
            step = [f"training.batch_size={size}", "training.effective_batch_size=48", "training.epochs=3",
                    "backend=reference"]
            self.train_tokens(f"tokens{size}", *step)
            self.train(f"values{size}", *VALUES, *step)
        for size in (16, 6):
            self.assert_close("tokens48", f"tokens{size}")
            self.assert_close("values48", f"values{size}")

    @plain
    def test_to_the_bit_of_micro_batches_of_whole_grains(self):
        """By default a grain is one sequence."""
        for size in (48, 16, 6):
            step = [f"training.batch_size={size}", "training.effective_batch_size=48", "training.epochs=3",
                    "training.eval_batch_size=16", "backend=cpu"]
            self.train_tokens(f"tokens{size}", *step)
            self.train(f"values{size}", *VALUES, *step)
        for size in (16, 6):
            self.assert_same_checkpoint("tokens48", f"tokens{size}", 9, files=["model.safetensors"])
            self.assert_same_checkpoint("values48", f"values{size}", 9, files=["model.safetensors"])

    @plain
    def test_with_the_product_in_the_loss(self):
        """With a large vocabulary the logits are never stored as a whole. The cases include tied weights and ignored
        tokens."""
        for tied in ("true", "false"):
            words = ["dataset.vocabulary=4100", f"model.tied={tied}", "training.steps=2", "backend=reference",
                     "dataset.train_count=12", "dataset.test_count=5", "training.batch_size=6"]
            self.train_tokens(f"fused-{tied}", *words)
            self.train_tokens(f"plain-{tied}", *words, "graph.fuse=none")
            self.train_tokens(f"backward-{tied}", *words, "optimizer.update=fused_backward")
            self.assert_close(f"fused-{tied}", f"plain-{tied}")
            self.assert_close(f"fused-{tied}", f"backward-{tied}")
            plan = self.json(f"fused-{tied}", "plan.json")
            self.assertLess(plan["peak_bytes"], self.json(f"plain-{tied}", "plan.json")["peak_bytes"])

    @plain
    def test_with_updates_in_the_backward_pass(self):
        for update in ("step", "fused_backward"):
            self.train_tokens(update, "training.epochs=2", "backend=reference", f"optimizer.update={update}")
        self.assert_close("step", "fused_backward")

    def test_resumed(self):
        for name, train in (("tokens", self.train_tokens), ("values", lambda *w: self.train(w[0], *VALUES, *w[1:]))):
            steps = ["training.epochs=4", "observe.log_every_steps=2"]
            train(name, *steps)
            train(f"{name}-a", *steps, "training.checkpoint_every_steps=5", "training.keep_checkpoints=9")
            folder = self.folder / f"{name}-a"
            (folder / "summary.json").unlink()
            for step in [s for s in self.steps(f"{name}-a") if s > 5]:
                for path in self.checkpoint(f"{name}-a", step).iterdir():
                    path.unlink()
                self.checkpoint(f"{name}-a", step).rmdir()
            words = PLUGIN if name == "tokens" else []
            self.brim(*words, "train", "--resume", f"{name}-a")
            self.assert_same_checkpoint(name, f"{name}-a", 12)
            self.assertEqual(self.figures(name), self.figures(f"{name}-a"))

    def test_in_half_precision(self):
        """brim compares targets in fp32, because in bf16 they would be wrong by up to 1."""
        self.train("values", *VALUES, "precision=bf16", "training.epochs=20", "backend=cpu")
        self.assertGreater(self.summary("values")["test_r2"], 0.2)
        self.train_tokens("tokens", "precision=bf16", "training.epochs=20", "backend=cpu")
        self.assertGreater(self.summary("tokens")["test_accuracy"], 0.3)


@unittest.skipIf(SANITIZED, "MPI's libraries are not clean")
@plain
class SameResultsOfRanks(Ranks, Tasks):
    def test_of_several_ranks(self):
        cut = ["backend=reference", "training.epochs=2", "observe.log_every_steps=1", "training.batch_size=12",
               "training.effective_batch_size=48", "training.num_workers=0"]
        self.train_tokens("tokens1", *cut)
        self.train("values1", *VALUES, *cut)
        for ranks in (2, 3):
            process = self.start_ranks(ranks, *PLUGIN, "train", f"run.dir=tokens{ranks}", *TOKENS, *cut)
            self.finish(process, 0)
            self.ranks(ranks, f"values{ranks}", *VALUES, *cut)
            self.assert_close("tokens1", f"tokens{ranks}")
            self.assert_close("values1", f"values{ranks}")
        self.finish(self.start_ranks(2, *PLUGIN, "train", "run.dir=shared", *TOKENS, *cut, "dist.shard=gradients"), 0)
        self.assert_close("tokens1", "shared")


class WhatIsTold(Tasks):
    def test_of_tokens(self):
        out = self.train_tokens("run", "training.epochs=8", "dataset.validation_fraction=0.2").out
        summary = self.summary("run")
        self.assertLess(summary["test_perplexity"], 7)
        self.assertIn(f"perplexity {summary['test_perplexity']:.4g}, accuracy", out)
        self.assertIn("tokens/s", out)
        self.assertNotIn("confusion", str(summary))
        self.assertNotIn("test_f1", summary)
        self.assertAlmostEqual(summary["tokens_per_second"], 12 * summary["samples_per_second"])
        record = self.records("run")[-1]
        self.assertEqual(set(record), {"step", "epoch", "split", "loss", "perplexity", "accuracy", "accuracy_top5",
                                       "lr", "samples", "seconds", "samples_per_second", "tokens_per_second"})
        reported = self.brim(*PLUGIN, "eval", "run", "--checkpoint", "last", "--json").json
        for key in ("loss", "perplexity", "accuracy"):
            self.assertAlmostEqual(reported[key], summary[f"test_{key}"], places=6)
        self.assertIn("perplexity", self.brim(*PLUGIN, "eval", "run").out)
        self.assertIn("ppl.", self.brim("compare", "run").out)
        self.assertIn("Perplexity", self.curves("run"))
        self.assert_error(self.brim(*PLUGIN, "predict", "run", "x", status=USAGE), "token by token")

    def curves(self, run):
        self.brim("compare", run, "-o", "curves.svg")
        return self.read("curves.svg")

    def test_of_values(self):
        result = self.train("run", *VALUES, "training.epochs=30", "dataset.validation_fraction=0.2")
        summary = self.summary("run")
        self.assertIn("using loss=mse", result.err)
        self.assertNotIn("augment.flip", result.err)  # a default that has no effect on these data
        self.assertIn(f"MAE {summary['test_mae']:.4g}, MAPE {summary['test_mape']:.4g} %", result.out)
        self.assertGreater(summary["test_r2"], 0.2)
        self.assertNotIn("test_accuracy", summary)
        self.assertEqual(self.json("run", "plugins.json")["loss"]["id"], "mse")
        record = self.records("run")[-1]
        self.assertEqual(set(record), {"step", "epoch", "split", "loss", "mae", "mape", "rmse", "r2", "lr",
                                       "samples", "seconds", "samples_per_second"})
        self.assertAlmostEqual(record["loss"], record["rmse"] ** 2, places=6)
        reported = self.brim("eval", "run", "--checkpoint", "last", "--json").json
        for key in ("loss", "mae", "mape", "rmse", "r2"):
            self.assertAlmostEqual(reported[key], summary[f"test_{key}"], places=5)
        self.assertIn("MAE", self.brim("compare", "run").out)
        self.assertIn("Mean absolute error", self.curves("run"))

    @plain
    def test_of_classes_of_sequences(self):
        self.train("run", "model=temperature_lstm", "dataset=synthetic", "dataset.shape=[8,3]", "dataset.classes=3",
                   "dataset.noise=0.5", "dataset.train_count=300", "dataset.test_count=60", "training.epochs=20")
        self.assertGreater(self.summary("run")["test_accuracy"], 0.8)

    @plain
    def test_memory_of_the_host_is_predicted(self):
        for name, words in (("tokens", [*PLUGIN, "train", *TOKENS]), ("values", ["train", *VALUES])):
            self.brim(*words, f"run.dir={name}", "training.epochs=2")
            summary = self.summary(name)
            loader = summary["loader_bytes"]
            values, label = (12 * 4, 12 * 4) if name == "tokens" else (8 * 3 * 4, 2 * 4)
            self.assertGreaterEqual(loader, 4 * 48 * (values + label))
            self.assertLess(loader, 4 * 48 * (values + label) + 64 * 1024)

    def test_predictions_for_files(self):
        numbers = ["--plugin-path", f"{PLUGINS}/dataset/numbers.so"]
        self.brim(*numbers, "train", "run.dir=run", "model=mlp", "model.hidden=[32]", "model.dropout=0",
                  "dataset=numbers", "training.epochs=60", "training.batch_size=32", "optimizer.lr=0.01")
        self.assertGreater(self.summary("run")["test_r2"], 0.99)
        samples = [(0.5, 0.25), (-0.5, 0.5), (0.125, -0.75)]
        (self.folder / "a.bin").write_bytes(b"".join(struct.pack("<2f", *sample) for sample in samples))
        rows = list(csv.DictReader(io.StringIO(self.brim(*numbers, "predict", "run", "a.bin").out)))
        self.assertEqual(list(rows[0]), ["file", "index", "value0", "value1"])
        self.assertEqual(len(rows), len(samples))
        reported = self.brim(*numbers, "predict", "run", "a.bin", "--json").json["predictions"]
        for (x, y), row, one in zip(samples, rows, reported):
            self.assertAlmostEqual(float(row["value0"]), x + y, delta=0.1)
            self.assertAlmostEqual(float(row["value1"]), x - y, delta=0.1)
            self.assertEqual([f"{value:.9g}" for value in one["values"]], [row["value0"], row["value1"]])

    def test_of_a_sweep(self):
        self.brim(*PLUGIN, "train", "-m", *TOKENS, "training.epochs=1", "optimizer.lr=0.01,0.02", "run.dir=sweep")
        jobs = self.json("sweep", "sweep.json")["jobs"]
        self.assertEqual([job["test_perplexity"] for job in jobs],
                         [self.summary(f"sweep/{i}")["test_perplexity"] for i in range(2)])


class WhatIsRefused(Tasks):
    def test_losses_that_do_not_go_with_the_task(self):
        for loss in ("cross_entropy", "bce"):
            self.assert_error(self.train("run", *VALUES, f"loss={loss}", status=USAGE),
                              f"loss={loss} cannot be used with dataset 'synthetic', whose targets are real "
                              "numbers", "set loss=mse, mae or huber")
        self.assert_error(self.train("run", *VALUES, "loss.label_smoothing=0.1", status=USAGE), "set loss=mse")
        self.assert_error(self.train_tokens("run", "loss=mse", status=USAGE), "set loss=cross_entropy")

    def test_outputs_of_another_shape(self):
        self.assert_error(self.train("run", *VALUES, "dataset.task=tokens", "loss=cross_entropy", status=None),
                          "temperature_lstm")
        self.assert_error(self.train("run", *VALUES, "model=mlp", "dataset.task=tokens", status=USAGE),
                          "mlp: samples must be real numbers, not tokens")

    @plain
    def test_normalisation_of_tokens(self):
        result = self.train_tokens("run", "dataset.mean=[0.5]", status=USAGE)
        self.assert_error(result, "'dataset.mean' is for real numbers")

    @plain
    def test_requested_flips_are_refused(self):
        self.assert_error(self.train_tokens("run", "augment.flip=true", status=USAGE), "'augment.flip' needs images")


if __name__ == "__main__":
    main()
