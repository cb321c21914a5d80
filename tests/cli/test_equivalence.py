"""Tests that the micro-batch decides memory, not results: an effective batch of 128 is split in different ways."""

import csv
import math
import os
import random
import shutil
import time

from image_sets import write_folder
from support import FAILED, FULL, NO_FIT, Case, main
from tasks import PLUGINS

STEPS = 50 if FULL else 24


def cut(micro_batch):
    return [f"training.batch_size={micro_batch}", f"training.gradient_accumulation_steps={128 // micro_batch}"]


class SameBits(Case):
    """With a grain, every micro-batch that is a multiple of it gives the same bits."""

    def check(self, *overrides, sizes=(128, 32, 16)):
        for size in sizes:
            self.train(f"run{size}", *overrides, *cut(size), f"training.steps={STEPS}", "training.grain=16",
                       "training.eval_batch_size=64", "backend=cpu", "backend.threads=2", "memory.timing=false")
            self.assertEqual(self.summary(f"run{size}")["steps"], STEPS)
        for size in sizes[1:]:
            self.assert_same_checkpoint(f"run{sizes[0]}", f"run{size}", STEPS, context=f"({sizes[0]} against {size})")
            self.assertEqual(self.losses(f"run{size}"), self.losses(f"run{sizes[0]}"))

    def losses(self, run):
        return [(r["step"], r["split"], r["accuracy"], round(r["loss"], 9)) for r in self.records(run)]

    def test_cnn_with_dropout_flips_and_crops(self):
        # An epoch is 22 steps, and its last step is shorter (112 samples).
        self.check("model=cnn", "model.width=6", "dataset=synthetic", "dataset.train_count=2800",
                   "dataset.test_count=64", "augment.flip=true", "augment.crop_padding=2")

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
                   "dataset.test_count=63", "optimizer=adam", "optimizer.weight_decay=0.01",
                   "optimizer.no_decay=*.bias", "schedule=polynomial", "training.clip_norm=0.5",
                   "training.ema_decay=0.9", "loss.label_smoothing=0.1", f"loss.class_weights={weights}")
        norms = [r["grad_norm"] for r in self.records("run16") if r["split"] == "train"]
        self.assertTrue(norms and all(norm > 0 for norm in norms))

    def test_mixup_with_any_micro_batch(self):
        for backend in ("cpu", "reference"):
            for size in (6, 3, 1):
                self.train(f"{backend}{size}", "model=mlp", "model.hidden=[16]", "dataset=synthetic",
                           "dataset.shape=[2,6,6]", "dataset.train_count=31", "dataset.test_count=9",
                           "training.grain=1", f"training.batch_size={size}", "training.effective_batch_size=6",
                           "training.steps=12", "augment.mixup=0.4", "augment.flip=true", "memory.timing=false",
                           f"backend={backend}")
            for size in (3, 1):
                self.assert_same_checkpoint(f"{backend}6", f"{backend}{size}", 12)
                self.assertEqual(self.losses(f"{backend}6"), self.losses(f"{backend}{size}"))

    def test_gpt2_with_more_places_than_a_sample_has(self):
        """A slice of a parameter has no sample dimension, so its gradient is a sum over the step. Fusion changes no bit
        in 16 bits either."""
        words = ["model=gpt2", "model.layers=1", "model.width=16", "model.heads=2", "model.context=12",
                 "model.dropout=0.1", "dataset=synthetic", "dataset.task=tokens", "dataset.length=7",
                 "dataset.train_count=26", "dataset.test_count=2", "training.grain=1",
                 "training.effective_batch_size=6", "optimizer=sgd", "optimizer.lr=0.1", "training.steps=6",
                 "memory.timing=false", "backend=cpu"]
        for precision in ("fp32", "bf16"):
            for size in (6, 3, 2):
                self.train(f"{precision}{size}", *words, f"training.batch_size={size}", f"precision={precision}")
                self.assert_same_checkpoint(f"{precision}6", f"{precision}{size}", 6)
            for other in ("graph.fuse=none", "optimizer.update=fused_backward"):
                self.train(f"{precision}-{other}", *words, "training.batch_size=6", f"precision={precision}", other)
                self.assert_same_checkpoint(f"{precision}6", f"{precision}-{other}", 6)

    def test_fusion_changes_no_bit(self):
        for fuse in ("all", "none", "[dropout_add,bias_activation]"):
            self.train(f"run-{fuse[:4]}", "model=cnn", "model.width=5", "dataset=synthetic", "dataset.train_count=500",
                       "dataset.test_count=63", "training.steps=10", "backend=cpu", f"graph.fuse={fuse}")
        for other in ("run-none", "run-[dro"):
            self.assert_same_checkpoint("run-all", other, 10)
            self.assertEqual(self.losses("run-all"), self.losses(other))

    def test_a_different_grain_gives_different_bits(self):
        # Without a grain the result shows the order of a sum, so the tests above are able to fail.
        for grain in (16, 64):
            self.train(f"run{grain}", "model=cnn", "model.width=5", "dataset=synthetic", "dataset.test_count=0",
                       "training.batch_size=128", "training.steps=20", "backend=cpu", f"training.grain={grain}")
        a, b = ((self.checkpoint(f"run{grain}", 20) / "model.safetensors").read_bytes() for grain in (16, 64))
        self.assertTrue(a != b)


class SameNumber(Case):
    """In double precision without a grain, all splits give the same losses to 1e-9."""

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
                   "dataset.train_count=2800", "dataset.test_count=64")

    def test_cnn(self):
        self.check("model=cnn", "model.width=2", "dataset=synthetic", "dataset.shape=[1,8,8]",
                   "dataset.train_count=2800", "dataset.test_count=64")


COUNT, SEED = int(os.environ.get("BRIM_RANDOM_COUNT", "2")), int(os.environ.get("BRIM_RANDOM_SEED", "1"))
EVENTS = ("begin", "lib", "alloc", "place", "update")


class Configuration:
    """A random configuration, the same for the same number. `self.words` are the settings that decide the result."""

    def __init__(self, number, folder):
        self.draw = draw = random.Random(f"{SEED} {number}")
        self.folder = folder
        self.grain = draw.choice((1, 1, 2, 3, 4))
        self.effective = self.grain * draw.choice((2, 3, 4, 6, 6, 8))
        self.train = 2 * self.effective + draw.randint(0, self.effective)  # the last step of an epoch may be shorter
        kind = draw.choice((self.tokens, self.csv_classes, self.csv_values, self.images, self.synthetic,
                            self.synthetic))
        self.task = "class"
        data = kind()
        self.precision = draw.choice(("fp32", "fp32", "bf16", "bf16", "fp16"))
        self.scaled = self.precision == "fp16"
        self.clip = draw.random() < 0.3
        self.words = [*data, *self.model(), *self.training(), f"precision={self.precision}",
                      f"training.grain={self.grain}", f"training.norm_group={self.grain}",
                      f"training.effective_batch_size={self.effective}", f"seed={draw.randint(0, 999)}",
                      "training.epochs=2", "training.checkpoint_every_steps=1", "training.keep_checkpoints=2",
                      "observe.log_every_steps=1", "memory.timing=false", "backend=cpu"]

    # ---- data ----

    def csv(self, answer):
        count = self.draw.randint(2, 7)
        columns = [f"x{i}" for i in range(count)]
        folder = self.folder / "csv"
        folder.mkdir()
        for split, rows in (("train", self.train), ("test", 5)):
            with (folder / f"{split}.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow([*columns, "y"])
                for i in range(rows):
                    writer.writerow([*(f"{self.draw.gauss(0, 3):.4f}" for _ in columns), answer(i)])
        return ["dataset=csv", f"dataset.path={folder}", f"dataset.features=[{','.join(columns)}]"]

    def csv_classes(self):
        return [*self.csv(lambda i: "abc"[i % 3]), "dataset.label=y"]

    def csv_values(self):
        self.task = "values"
        return [*self.csv(lambda i: f"{self.draw.gauss(0, 1):.4f}"), "dataset.targets=[y]"]

    def images(self):
        write_folder(self.folder / "images", train=(self.train + 2) // 3, test=2)
        self.train = (self.train + 2) // 3 * 3
        return ["dataset=image_folder", f"dataset.path={self.folder / 'images'}", "transform.size=8",
                "transform.resize=8", "augment=none", f"augment.flip={str(self.draw.random() < 0.5).lower()}",
                f"augment.random_crop={str(self.draw.random() < 0.5).lower()}"]

    def tokens(self):
        self.task = "tokens"
        length = self.draw.randint(3, 12)
        path = self.folder / "a.txt"
        path.write_text("".join(self.draw.choice("abcdefg hij") for _ in range(length * self.train + 200)))
        return ["dataset=text", f"dataset.path={path}", f"dataset.context={length}", "dataset.test_fraction=0.1"]

    def synthetic(self):
        words = ["dataset=synthetic", f"dataset.train_count={self.train}", "dataset.test_count=5"]
        if self.draw.random() < 0.4:
            self.task = "tokens"
            return [*words, "dataset.task=tokens", f"dataset.vocabulary={self.draw.choice((7, 64, 5000))}",
                    f"dataset.length={self.draw.randint(2, 9)}", f"dataset.ignored={self.draw.choice((0, 0.3))}"]
        shape = [str(self.draw.randint(1, 6)) for _ in range(self.draw.choice((1, 2, 3, 3)))]
        return [*words, f"dataset.shape=[{','.join(shape)}]", f"dataset.classes={self.draw.choice((2, 5, 9))}"]

    # ---- the rest ----

    def model(self):
        draw = self.draw
        if self.task == "tokens" and draw.random() < 0.4:
            return ["model=gpt2", "model.layers=1", "model.width=8", "model.heads=2",
                    f"model.context={draw.choice((12, 12, 30))}", f"model.dropout={draw.choice((0, 0.2))}"]
        if self.task == "tokens" and draw.random() < 0.2:
            return ["model=token_lstm", "model.dim=5", f"model.tied={str(draw.random() < 0.5).lower()}"]
        return ["model=random_model", f"model.seed={draw.randint(0, 10**6)}"]

    def training(self):
        draw = self.draw
        optimizers = ("adamw", "yogi", "adagrad", "sgd", "lion", "adafactor", "adamw8bit")
        words = [f"optimizer={draw.choice(optimizers)}", "optimizer.lr=0.01",
                 f"training.clip_norm={0.5 if self.clip else 0}", f"training.ema_decay={draw.choice((0, 0, 0.9))}"]
        if self.task == "class" and draw.random() < 0.3:
            words.append("augment.mixup=0.4")
        if self.task != "values" and draw.random() < 0.3:
            words.append("loss.label_smoothing=0.1")
        return words

    def cut(self):
        """Draws a micro-batch: a multiple of the grain, smaller than the effective batch."""
        parts = self.effective // self.grain
        return [f"training.batch_size={self.grain * self.draw.choice([n for n in range(1, parts) if parts % n == 0])}"]

    def whole(self):
        return [f"training.batch_size={self.effective}"]

    def circumstances(self):
        """Draws settings that must not change a bit: the use of memory and the number of threads."""
        draw = self.draw
        fuse = draw.choice(("all", "all", "[linear_loss]", "[linear_loss,bias_activation]",
                            "[linear_loss,dropout_add,norm_activation]"))  # norm_activation changes bits by design
        words = [f"backend.threads={draw.choice((1, 2, 3))}", f"training.num_workers={draw.choice((0, 1, 2))}",
                 f"memory.recompute={draw.choice(('none', 'none', 'blocks', 'full'))}",
                 f"memory.offload={draw.choice(('none', 'none', 'optimizer'))}",
                 f"graph.fuse={fuse}"]
        if not self.clip and not self.scaled and draw.random() < 0.3:
            return [*words, *self.whole(), "optimizer.update=fused_backward"]
        return [*words, *self.cut()]


class RandomConfigurations(Case):
    """Random models, data, precisions and splits: no event during a run changes a bit of its result.

    BRIM_RANDOM_COUNT=200 BRIM_RANDOM_SEED=7 tests/cli/test_equivalence.py RandomConfigurations runs 200 with another
    seed; the message of a failure says how to run one alone."""

    def run_words(self, run, *words):
        return ["--plugin-path", PLUGINS, "train", "--quiet", f"run.dir={run}", *words]

    def continue_run(self, c, run, words):
        if (self.folder / run / "config.yaml").exists():
            self.brim("--plugin-path", PLUGINS, "train", "--quiet", "--resume", run)
        else:
            self.plain(c, run, words)

    def plain(self, c, run, words):
        self.brim(*self.run_words(run, *c.words, *words))

    def failing(self, c, run, words):
        """Makes a call fail for lack of memory. If that ends the run, the test resumes it."""
        at = f"step:{c.draw.randint(1, 4)}:{c.draw.choice(EVENTS)}:{c.draw.choice(('1', '2', '1+', '%3'))}"
        result = self.brim(*self.run_words(run, *c.words, *words), status=None, env={"BRIM_FAULT": at})
        self.assertIn(result.status, (0, NO_FIT, FAILED), result)
        if result.status != 0:
            self.continue_run(c, run, words)

    def killed(self, c, run, words):
        """Kills the run after its first checkpoint, unless it has ended by then."""
        process = self.start(*self.run_words(run, *c.words, *words))
        while not self.steps(run) and process.poll() is None:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        if process.returncode != 0:
            self.continue_run(c, run, words)

    def elastic(self, c, run, words):
        """Starts a job that waits for the run's memory, unless the run has ended by then."""
        plan = self.brim("--plugin-path", PLUGINS, "plan", "--json", *c.words, *c.whole()).json
        limit = ["backend.devices=1", f"backend.memory_mb={max(1, math.ceil(plan['peak_bytes'] / 2**20))}"]
        process = self.start(*self.run_words(run, *c.words, *c.whole(), *limit, "policy=elastic",
                                             "policy.elastic.shrink_after_seconds=0",
                                             "policy.elastic.grow_after_seconds=0", "training.epochs=40"))
        while not self.steps(run) and process.poll() is None:
            time.sleep(0.002)
        self.brim(*self.run_words(f"{run}-neighbour", *c.words, *c.cut(), *limit, "wait_for_gpu=true",
                                  "gpu_check_interval_seconds=0.02"), status=None)
        self.finish(process, 0)
        self.plain(c, f"{run}-alone", [*c.cut(), "training.epochs=40"])
        self.assert_same(c, f"{run}-alone", run, ["policy=elastic"])

    def assert_same(self, c, run, other, words):
        step = self.steps(run)[-1]
        self.assertEqual(self.steps(other)[-1], step)
        self.assert_same_checkpoint(run, other, step, ["model.safetensors", "optimizer.safetensors"],
                                    context=f"\n{' '.join(c.words)}\nwith {' '.join(words)}")

    def check(self, number):
        self.folder = self.folder / str(number)
        self.folder.mkdir()
        c = Configuration(number, self.folder)
        self.plain(c, "base", c.whole())
        incidents = (self.failing, self.killed)
        for i, way in enumerate((self.plain, self.plain, c.draw.choice(incidents), c.draw.choice(incidents))):
            words = c.circumstances()
            way(c, f"run{i}", words)
            self.assert_same(c, "base", f"run{i}", [way.__name__, *words])
        if c.draw.random() < 0.25:
            self.elastic(c, "elastic", [])

    def test_nothing_changes_a_bit(self):
        top = self.folder
        for number in range(int(os.environ.get("BRIM_RANDOM_FIRST", "0")), COUNT):
            with self.subTest(f"BRIM_RANDOM_SEED={SEED} BRIM_RANDOM_FIRST={number} BRIM_RANDOM_COUNT={number + 1}"):
                self.folder = top
                self.check(number)
                shutil.rmtree(top / str(number))
        self.folder = top


if __name__ == "__main__":
    main()
