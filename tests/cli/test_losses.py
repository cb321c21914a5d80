"""The losses: each trains a classifier, what it does not know is refused, and a class may count for nothing."""

from support import SMALL, USAGE, Case, main

MEANS = ("mse", "mae", "huber", "bce")


class Losses(Case):
    def losses(self, run):
        return [r["loss"] for r in self.records(run) if r["split"] == "train"]

    def test_every_loss_trains_a_classifier_on_labels(self):
        for loss in MEANS:
            with self.subTest(loss=loss):
                self.train(loss, *SMALL, f"loss={loss}", "model.hidden=[128]", "dataset.shape=[1,28,28]",
                           "dataset.train_count=1024", "training.batch_size=32", "training.epochs=3",
                           "observe.log_every_steps=1")
                losses = self.losses(loss)
                self.assertLess(losses[-1], losses[0])
                self.assertGreater(self.summary(loss)["test_accuracy"], 0.8)

    def test_a_large_delta_makes_huber_half_of_mse(self):
        small = [word for word in SMALL if not word.startswith("backend.")]
        for run, *words in (("mse", "loss=mse"), ("huber", "loss=huber", "loss.delta=100")):
            self.train(run, *small, *words, "training.steps=1", "observe.log_every_steps=1", "backend=reference")
        self.assertAlmostEqual(self.losses("mse")[0], 2 * self.losses("huber")[0], places=12)

    def test_what_a_loss_does_not_know_is_refused(self):
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

    def test_weighted_losses_are_the_same_however_a_step_is_cut(self):
        words = [*SMALL, "loss.class_weights=[0.1,0.7,1.3,0.9,1.1,2.3,0.3,1.7,0.6,1.9]", "training.epochs=2",
                 "training.effective_batch_size=128", "observe.log_every_steps=1", "training.eval_batch_size=16"]
        for size in (128, 32, 16):
            self.train(f"run{size}", *words, f"training.batch_size={size}")
        for size in (32, 16):
            self.assert_same_records("run128", f"run{size}")

    def test_mixes_of_classes_go_with_every_loss(self):
        for loss in ("cross_entropy", *MEANS):
            for precision in ("fp32", "bf16"):
                run = f"{loss}-{precision}"
                self.train(run, *SMALL, f"loss={loss}", f"precision={precision}", "augment.mixup=0.2",
                           "training.epochs=2")
                self.assertEqual(self.summary(run)["steps"], 4)

    def test_what_mixes_of_classes_do_not_go_with_is_refused(self):
        for word in ("loss.class_weights=[1,2,3,4,5,6,7,8,9,10]", "loss.ignore_index=3"):
            error = self.train("run", *SMALL, word, "augment.mixup=0.2", status=USAGE).err
            self.assertIn(f"augment.mixup=0.2 makes mixes of classes, and {word.split('=')[0]} is about single ones",
                          error)
        error = self.train("run", "model=gpt2", "dataset=synthetic", "dataset.task=tokens", "augment.mixup=0.2",
                           status=USAGE).err
        self.assertIn("'augment.mixup' mixes numbers, but the samples of dataset 'synthetic' are tokens", error)

    def test_ignoring_the_only_class_that_counts_is_refused(self):
        error = self.train("run", *SMALL, "dataset.classes=2", "loss.class_weights=[1,0]", "loss.ignore_index=0",
                           status=USAGE).err
        self.assertIn("loss.ignore_index=0 leaves no class that counts", error)


if __name__ == "__main__":
    main()
