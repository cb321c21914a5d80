"""Tests losses: each trains a classifier, refuses unknown options, and allows class weights of 0."""

import math
import os
import pathlib
import random

from support import DONE, FAILED, SMALL, USAGE, Case, main, plain

MEANS = ("mse", "mae", "huber", "bce", "sigmoid_focal")
BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"]) / "loss" / "bad.so"
TOKENS = ["model=gpt2", "model.layers=1", "model.heads=2", "model.width=16", "model.context=16", "dataset=synthetic",
          "dataset.task=tokens", "dataset.length=16", "dataset.train_count=32", "dataset.test_count=8",
          "training.batch_size=8", "training.epochs=2", "backend=cpu", "backend.threads=1", "observe.log_every_steps=1"]


class LossCase(Case):
    def losses(self, run):
        return [r["loss"] for r in self.records(run) if r["split"] == "train"]


class Losses(LossCase):
    def test_every_loss_trains_a_classifier_on_labels(self):
        for loss in MEANS:
            with self.subTest(loss=loss):
                self.train(loss, *SMALL, f"loss={loss}", "model.hidden=[128]", "dataset.shape=[1,28,28]",
                           "dataset.train_count=1024", "training.batch_size=32", "training.epochs=3",
                           "observe.log_every_steps=1")
                losses = self.losses(loss)
                self.assertLess(losses[-1], losses[0])
                self.assertGreater(self.summary(loss)["test_accuracy"], 0.8)

    @plain
    def test_a_large_delta_makes_huber_half_of_mse(self):
        small = [word for word in SMALL if not word.startswith("backend.")]
        for run, *words in (("mse", "loss=mse"), ("huber", "loss=huber", "loss.delta=100")):
            self.train(run, *small, *words, "training.steps=1", "observe.log_every_steps=1", "backend=reference")
        self.assertAlmostEqual(self.losses("mse")[0], 2 * self.losses("huber")[0], places=12)

    @plain
    def test_unknown_options_of_a_loss_are_refused(self):
        for loss in MEANS:
            for word in ("loss.class_weights=[1,2,3,4,5,6,7,8,9,10]", "loss.label_smoothing=0.1",
                         "loss.ignore_index=3"):
                error = self.train("run", *SMALL, f"loss={loss}", word, status=USAGE).err
                self.assertIn(f"unknown key '{word.split('=')[0]}'", error)
        error = self.train("run", *SMALL, "loss=huber", "loss.delta=0", status=USAGE).err
        self.assertIn("'loss.delta' must be in (0,inf), got 0", error)

    def test_an_ignored_class_is_one_of_weight_0(self):
        weights = "loss.class_weights=[1,1,1,0,1,1,1,1,1,1]"
        for run, word in (("ignored", "loss.ignore_index=3"), ("weightless", weights),
                          ("all", "loss.ignore_index=-100")):
            self.train(run, *SMALL, word, "training.epochs=3", "observe.log_every_steps=1")
        self.assertEqual(self.losses("ignored"), self.losses("weightless"))
        self.assertEqual(self.summary("ignored")["test_loss"], self.summary("weightless")["test_loss"])
        self.assertEqual(self.summary("ignored")["test_accuracy"], self.summary("weightless")["test_accuracy"])
        self.assertNotEqual(self.losses("ignored"), self.losses("all"))

    @plain
    def test_weighted_losses_are_the_same_however_a_step_is_cut(self):
        words = [*SMALL, "loss.class_weights=[0.1,0.7,1.3,0.9,1.1,2.3,0.3,1.7,0.6,1.9]", "training.epochs=2",
                 "training.effective_batch_size=128", "observe.log_every_steps=1", "training.eval_batch_size=16"]
        for size in (128, 32, 16):
            self.train(f"run{size}", *words, f"training.batch_size={size}")
        for size in (32, 16):
            self.assert_same_records("run128", f"run{size}")

    def test_mixes_of_classes_go_with_every_loss(self):
        for loss in ("cross_entropy", "focal", *MEANS):
            for precision in ("fp32", "bf16"):
                run = f"{loss}-{precision}"
                self.train(run, *SMALL, f"loss={loss}", f"precision={precision}", "augment.mixup=0.2",
                           "training.epochs=2")
                self.assertEqual(self.summary(run)["steps"], 4)

    @plain
    def test_options_that_mixed_classes_exclude_are_refused(self):
        for word in ("loss.class_weights=[1,2,3,4,5,6,7,8,9,10]", "loss.ignore_index=3"):
            error = self.train("run", *SMALL, word, "augment.mixup=0.2", status=USAGE).err
            self.assertIn(f"augment.mixup=0.2 mixes classes, but {word.split('=')[0]} applies to a single class",
                          error)
        error = self.train("run", "model=gpt2", "dataset=synthetic", "dataset.task=tokens", "augment.mixup=0.2",
                           status=USAGE).err
        self.assertIn("'augment.mixup' mixes numbers, but the samples of dataset 'synthetic' are tokens", error)

    @plain
    def test_ignoring_the_only_class_that_counts_is_refused(self):
        error = self.train("run", *SMALL, "dataset.classes=2", "loss.class_weights=[1,0]", "loss.ignore_index=0",
                           status=USAGE).err
        self.assertIn("loss.ignore_index=0 ignores the only class that counts", error)

    def test_an_evaluation_without_a_label_that_counts_says_so(self):
        statuses = set()
        for label in (0, 1):
            result = self.train(f"run{label}", *SMALL, "dataset.classes=2", "dataset.test_count=1", "training.steps=1",
                                f"loss.ignore_index={label}", status=None)
            statuses.add(result.status)
            if result.status == FAILED:
                self.assertIn("error: no sample of the test data counts for the loss", result.err)
                self.assertNotIn("diverged", result.err)
        self.assertEqual(statuses, {DONE, FAILED})


class Built(LossCase):
    """Some losses are built as graphs of operations."""

    @plain
    def test_a_focal_loss_without_gamma_is_cross_entropy(self):
        weights = "[0.1,0.7,1.3,0.9,1.1,2.3,0.3,1.7,0.6,1.9]"
        small = [word for word in SMALL if not word.startswith("backend.")] + ["backend=reference"]
        for words in (small, [word for word in TOKENS if not word.startswith("backend")] + ["backend=reference"]):
            for loss, key in (("focal", "alpha"), ("cross_entropy", "class_weights")):
                own = [f"loss.{key}={weights}"] if words is small else []
                own += ["loss.gamma=0"] if loss == "focal" else []
                self.train(f"{words[0]}-{loss}", *words, f"loss={loss}", *own, "training.epochs=1",
                           "observe.log_every_steps=1")
            for got, expected in zip(self.losses(f"{words[0]}-focal"), self.losses(f"{words[0]}-cross_entropy")):
                self.assertAlmostEqual(got, expected, delta=1e-9 * expected)

    @plain
    def test_results_are_the_same_however_a_step_is_cut(self):
        for loss in ("focal", "sigmoid_focal"):
            words = [*SMALL, f"loss={loss}", "training.epochs=2", "training.effective_batch_size=128",
                     "observe.log_every_steps=1", "training.eval_batch_size=16"]
            for size in (128, 32, 16):
                self.train(f"{loss}{size}", *words, f"training.batch_size={size}")
            for size in (32, 16):
                self.assert_same_records(f"{loss}128", f"{loss}{size}")

    def test_tokens_too(self):
        self.train("run", *TOKENS, "loss=focal")
        losses = self.losses("run")
        self.assertLess(losses[-1], losses[0])
        error = self.train("other", *TOKENS, "loss=sigmoid_focal", status=USAGE).err
        self.assertIn("loss=sigmoid_focal cannot be used with dataset 'synthetic', which has tokens", error)

    def test_a_student_learns_a_teacher_s_logits(self):
        """Logits and the logarithms of their probabilities give the same loss, except for the rounding of targets,
        which brim reads in fp32."""
        draw, files = random.Random(5), {"logits": [], "logs": []}
        for _ in range(256):
            x = [draw.gauss(0, 1) for _ in range(3)]
            logits = [x[0] - x[1], 2 * x[2], x[0] + x[1]]
            total = math.log(sum(map(math.exp, logits)))
            for name, values in (("logits", logits), ("logs", [v - total for v in logits])):
                files[name].append(",".join(f"{v:.17g}" for v in x + values))
        for name, lines in files.items():
            (self.folder / name).mkdir()
            (self.folder / name / "train.csv").write_text("\n".join(["a,b,c,p,q,r", *lines]) + "\n")
            self.train(f"run-{name}", "model=mlp", "model.hidden=[]", "dataset=csv", f"dataset.path={name}",
                       "dataset.targets=[p,q,r]", "dataset.test=", "dataset.test_fraction=0.25", "loss=kl",
                       "loss.temperature=2", "backend=reference", "training.epochs=30", "training.batch_size=32",
                       "optimizer.lr=0.03", "augment=none", "observe.log_every_steps=1")
        first, *_, last = self.losses("run-logits")
        self.assertLess(last, 0.05 * first)
        for got, expected in zip(self.losses("run-logs"), self.losses("run-logits")):
            self.assertAlmostEqual(got, expected, delta=1e-6)

    @plain
    def test_in_smaller_types_the_loss_is_computed_in_fp32(self):
        for precision in ("fp32", "bf16", "fp16"):
            self.train(precision, *SMALL, "loss=focal", f"precision={precision}", "training.steps=1",
                       "observe.log_every_steps=1")
        for precision in ("bf16", "fp16"):
            self.assertAlmostEqual(self.losses(precision)[0], self.losses("fp32")[0], delta=0.01)

    @plain
    def test_recomputing_changes_nothing(self):
        for recompute in ("none", "full"):
            self.train(recompute, *SMALL, "loss=focal", f"memory.recompute={recompute}", "training.epochs=1",
                       "observe.log_every_steps=1")
        self.assert_same_records("none", "full")

    def test_an_external_loss_equals_the_cores(self):
        for task in ("class", "values"):
            for run, loss, *further in (("outside", "bad", f"--plugin-path={BAD}"), ("own", "mse")):
                self.train(f"{run}-{task}", *SMALL, f"loss={loss}", f"dataset.task={task}", "training.epochs=1",
                           "observe.log_every_steps=1", *further)
            count = {"class": 10, "values": 1}[task]
            for got, expected in zip(self.losses(f"outside-{task}")[:1], self.losses(f"own-{task}")[:1]):
                self.assertAlmostEqual(got, count * expected, delta=1e-4 * got)

    def test_an_invalid_loss_is_refused_before_anything_is_written(self):
        for bad, part in (("elements", "loss 'bad': it must return one real number for each sample"),
                          ("target", "does not depend on the model's output"), ("name", "in loss 'bad'")):
            result = self.train("run", *SMALL, "loss=bad", f"--plugin-path={BAD}", status=USAGE,
                                env={"BRIM_BAD": f"build:{bad}"})
            self.assert_error(result, part)
            self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    main()
