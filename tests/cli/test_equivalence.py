"""The micro-batch is a matter of memory, not of the result: an effective batch of 128, cut in different ways."""

import unittest

from support import FASHION, Case, main

STEPS = 50


def cut(micro_batch):
    return [f"training.batch_size={micro_batch}", f"training.gradient_accumulation_steps={128 // micro_batch}"]


class SameBits(Case):
    """With a grain, every micro-batch that is a multiple of it gives the same bits."""

    def check(self, *overrides, sizes=(128, 32, 16)):
        for size in sizes:
            self.train(f"run{size}", *overrides, *cut(size), f"training.steps={STEPS}", "training.grain=16",
                       "training.eval_batch_size=64", "backend=cpu", "backend.threads=2")
            self.assertEqual(self.summary(f"run{size}")["steps"], STEPS)
        for size in sizes[1:]:
            self.assert_same_checkpoint(f"run{sizes[0]}", f"run{size}", STEPS, context=f"({sizes[0]} against {size})")
            self.assertEqual(self.losses(f"run{size}"), self.losses(f"run{sizes[0]}"))

    def losses(self, run):
        return [(r["step"], r["split"], r["accuracy"], round(r["loss"], 9)) for r in self.records(run)]

    @unittest.skipUnless(FASHION.is_dir(), "Fashion-MNIST is not installed")
    def test_cnn_on_fashion_mnist_with_dropout_flips_and_crops(self):
        # 6000 samples and 47 steps an epoch: one of the 50 steps is the shorter last of an epoch (112 samples)
        self.check("model=cnn", "dataset=fashion_mnist", "training.num_train_samples=6000", "augment.flip=true",
                   "augment.crop_padding=2")

    def test_mlp_with_dropout(self):
        self.check("model=mlp", "model.hidden=[64,32]", "model.dropout=0.3", "dataset=synthetic",
                   "dataset.train_count=2000", "dataset.test_count=64")

    def test_cnn_with_momentum_and_odd_sizes(self):
        self.check("model=cnn", "model.width=5", "dataset=synthetic", "dataset.shape=[3,13,11]", "dataset.classes=7",
                   "dataset.train_count=1999", "dataset.test_count=63", "optimizer=sgd", "optimizer.lr=0.01",
                   "optimizer.momentum=0.9")

    def test_mlp_with_every_option_of_training(self):
        weights = "[1,2,0.5,1,1,1,3,1,1,1]"
        self.check("model=mlp", "model.hidden=[64,32]", "dataset=synthetic", "dataset.train_count=1999",
                   "dataset.test_count=63", "optimizer=adam", "optimizer.weight_decay=0.01", "optimizer.no_decay=*.bias",
                   "schedule=polynomial", "training.clip_norm=0.5", "training.ema_decay=0.9",
                   "loss.label_smoothing=0.1", f"loss.class_weights={weights}")
        norms = [r["grad_norm"] for r in self.records("run16") if r["split"] == "train"]
        self.assertTrue(norms and all(norm > 0 for norm in norms))

    def test_mixup_whatever_the_cut(self):
        for backend in ("cpu", "reference"):
            for size in (6, 3, 1):
                self.train(f"{backend}{size}", "model=mlp", "model.hidden=[16]", "dataset=synthetic",
                           "dataset.shape=[2,6,6]", "dataset.train_count=31", "dataset.test_count=9", "training.grain=1",
                           f"training.batch_size={size}", "training.effective_batch_size=6", "training.steps=12",
                           "augment.mixup=0.4", "augment.flip=true", "memory.timing=false", f"backend={backend}")
            for size in (3, 1):
                self.assert_same_checkpoint(f"{backend}6", f"{backend}{size}", 12)
                self.assertEqual(self.losses(f"{backend}6"), self.losses(f"{backend}{size}"))

    def test_fusion_changes_no_bit(self):
        for fuse in ("all", "none", "[dropout_add,bias_activation]"):
            self.train(f"run-{fuse[:4]}", "model=cnn", "model.width=5", "dataset=synthetic", "dataset.train_count=500",
                       "dataset.test_count=63", "training.steps=10", "backend=cpu", f"graph.fuse={fuse}")
        for other in ("run-none", "run-[dro"):
            self.assert_same_checkpoint("run-all", other, 10)
            self.assertEqual(self.losses("run-all"), self.losses(other))

    def test_a_different_grain_gives_different_bits(self):
        # so that the tests above can fail: the order of a sum is visible in the result
        for grain in (16, 64):
            self.train(f"run{grain}", "model=cnn", "model.width=5", "dataset=synthetic", "dataset.test_count=0",
                       "training.batch_size=128", "training.steps=20", "backend=cpu", f"training.grain={grain}")
        a, b = ((self.checkpoint(f"run{grain}", 20) / "model.safetensors").read_bytes() for grain in (16, 64))
        self.assertTrue(a != b)


class SameNumber(Case):
    """In double precision, without a grain, every cut gives the same losses to 1e-9."""

    def check(self, *overrides):
        runs = {}
        for size in (128, 8, 1):
            self.train(f"run{size}", *overrides, *cut(size), f"training.steps={STEPS}", "training.grain=0",
                       "training.eval_batch_size=64", "backend=reference", "observe.log_every_steps=1")
            runs[size] = [(r["split"], r["step"], r["loss"]) for r in self.records(f"run{size}")]
        self.assertEqual(len(runs[128]), STEPS + 2)
        for size in (8, 1):
            for (split, step, loss), (other_split, other_step, other) in zip(runs[128], runs[size], strict=True):
                self.assertEqual((split, step), (other_split, other_step))
                self.assertLessEqual(abs(loss - other), 1e-9, f"{split} at step {step}: {size}x{128 // size}")

    def test_mlp(self):
        self.check("model=mlp", "model.hidden=[24]", "model.dropout=0.2", "dataset=synthetic", "dataset.shape=[1,8,8]",
                   "dataset.train_count=3300", "dataset.test_count=64")

    def test_cnn(self):
        self.check("model=cnn", "model.width=2", "dataset=synthetic", "dataset.shape=[1,8,8]",
                   "dataset.train_count=3300", "dataset.test_count=64")


if __name__ == "__main__":
    main()
