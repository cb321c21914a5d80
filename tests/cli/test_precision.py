"""Tests precision=fp16: activations of half the size, and a loss scale that adapts to the gradients."""

import json
import random
import shutil
import struct

from support import FAILED, USAGE, Case, main

DATA = ["model=cnn", "model.width=4", "dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=256",
        "dataset.test_count=64", "training.batch_size=32", "backend=cpu", "backend.threads=1"]
FP16 = [*DATA, "precision=fp16"]
# Batch norm, dropout, averages and a limited norm: a skipped step must leave them all unchanged.
EVERYTHING = ["model=lightcnn", "model.width=8", "model.norm=batch", "model.dropout=0.1", "dataset=synthetic",
              "dataset.shape=[1,12,12]", "dataset.classes=7", "dataset.train_count=128",
              "dataset.test_count=32", "training.batch_size=32", "training.ema_decay=0.9", "training.clip_norm=1",
              "backend=cpu", "backend.threads=1", "precision=fp16"]
HUGE = 1 << 40 # with such a loss factor, gradients overflow in fp16


class Memory(Case):
    def plan(self, *words):
        return self.brim("plan", "--json", *words).json

    def test_activations_take_half(self):
        """Activations take half, except for values without a 16-bit form: indices of maxima, copies of weights, and the
        images, which are cast from the input."""
        samples = 256
        words = ["model=cnn", "dataset=synthetic", "dataset.shape=[1,28,28]", f"training.batch_size={samples}",
                 "backend=cpu", "memory.timing=false"]
        wide = self.plan(*words)
        copies = 2 * wide["parameters"] + 2 * samples * 28 * 28 + samples * 64 * 12 * 12 // 2
        self.assertLess(copies, wide["classes"]["activations"] // 20)
        for precision in ("bf16", "fp16"):
            small = self.plan(*words, f"precision={precision}")
            self.assertEqual(small["peak_operation"], wide["peak_operation"])
            half = wide["classes"]["activations"] / 2
            self.assertGreaterEqual(small["classes"]["activations"], half)
            self.assertLessEqual(small["classes"]["activations"], half + copies)
            self.assertLess(small["peak_bytes"], 0.65 * wide["peak_bytes"])

    def test_one_message_says_that_the_processors_compute_in_fp32(self):
        for words in (["precision=fp16"], ["fp16=true"], ["training.fp16=true"]):
            result = self.train(words[0], *DATA, *words, "training.steps=3")
            self.assertEqual(result.out.count("activations are kept in fp16 and computed in fp32"), 1, result)
            self.assertIn("precision: fp16\n", self.read(words[0], "config.yaml"))
        self.assertNotIn("loss_scale", self.summary(self.json_run("fp32")))

    def json_run(self, precision):
        self.train(precision, *DATA, f"precision={precision}", "training.steps=1")
        return precision

    def test_a_trained_model_is_evaluated_and_predicts(self):
        self.train("run", *FP16, "training.steps=8")
        expected = self.summary("run")["test_accuracy"]
        reported = self.brim("eval", "run", "--json").json
        self.assertEqual(reported["accuracy"], expected)
        other = self.brim("eval", "run", "--json", "precision=fp32").json
        self.assertAlmostEqual(other["loss"], reported["loss"], delta=2e-3)

    def test_a_backend_without_it_is_named(self):
        words = [word for word in FP16 if not word.startswith("backend")]
        result = self.brim("train", *words, "backend=reference", status=USAGE)
        self.assert_error(result, "precision=fp16: backend 'reference' keeps activations in double precision only",
                          "or use a backend that supports fp16")


class Bfloat16(Case):
    def test_neither_micro_batches_nor_threads_change_a_bit_of_a_text(self):
        """A context has 37 tokens, so that samples and pieces of the loss end within a block of the processor's
        products."""
        draw = random.Random(1)
        folder = self.folder / "tokens"
        folder.mkdir()
        tokens = [draw.randrange(300) for _ in range(38 * 16)]
        (folder / "train.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        words = ["model=gpt2", "model.layers=1", "model.width=48", "model.heads=4", "dataset=tokens",
                 f"dataset.path={folder}", "dataset.vocabulary=300", "dataset.context=37", "backend=cpu",
                 "precision=bf16", "training.steps=2", "memory.timing=false"]
        cases = ("whole", 8, 1, 1), ("pairs", 2, 4, 2), ("single", 1, 8, 1), ("half", 4, 2, 2)
        for name, size, count, threads in cases:
            self.train(name, *words, f"training.batch_size={size}", f"training.gradient_accumulation_steps={count}",
                       f"backend.threads={threads}")
        for name in ("pairs", "single", "half"):
            self.assert_same_checkpoint("whole", name, 2, context=f"({name})")


class LossScale(Case):
    def scales(self, run):
        return [(r["loss_scale"], r["skipped_steps"]) for r in self.records(run) if r["split"] == "train"]

    def test_it_starts_at_65536_and_is_raised_after_enough_steps(self):
        self.train("run", *FP16, "training.steps=8", "observe.log_every_steps=1")
        self.assertEqual(self.scales("run"), [(65536, 0)] * 8)
        self.train("growing", *FP16, "training.steps=8", "observe.log_every_steps=1", "loss_scale.init_scale=4",
                   "loss_scale.growth_interval=3", "loss_scale.growth_factor=4")
        self.assertEqual([scale for scale, _ in self.scales("growing")], [4, 4, 16, 16, 16, 64, 64, 64])
        self.train("still", *FP16, "training.steps=4", "loss_scale.init_scale=4", "loss_scale.growth_interval=1",
                   "loss_scale.dynamic=false")
        self.assertEqual(self.summary("still")["loss_scale"], 4)

    def test_steps_that_overflow_are_skipped_recorded_and_recovered_from(self):
        result = self.train("run", *EVERYTHING, "training.steps=40", "training.checkpoint_every_steps=1",
                            "training.keep_checkpoints=100", f"loss_scale.init_scale={HUGE}",
                            "observe.log_every_steps=10", "schedule=constant", "optimizer.lr=0.003")
        summary = self.summary("run")
        skipped = summary["skipped_steps"]
        self.assertTrue(5 < skipped < 35, skipped)
        self.assertEqual(summary["loss_scale"], HUGE >> skipped)
        events = [e for e in self.records("run", "events.jsonl") if e["event"] == "skipped_step"]
        self.assertEqual(len(events), skipped)
        self.assertEqual(events[0]["step"], 1)
        self.assertEqual(events[0]["detail"], f"loss scale {HUGE}, then {HUGE // 2}")
        last = [r for r in self.records("run") if r["split"] == "train"][-1]
        self.assertEqual((last["loss_scale"], last["skipped_steps"]), (HUGE >> skipped, skipped))
        lines = [line for line in result.err.splitlines() if " was skipped: " in line]
        self.assertTrue(1 <= len(lines) <= 4, lines) # one line covers several steps
        self.assertIn(f"{skipped} steps were skipped because values left the range of fp16", result.out)
        self.assertLess(summary["train_loss"], 1.9) # the model learns: guessing among 7 classes gives 1.95
        # Skipped steps left parameters, averages and the optimizer's state unchanged.
        missed = {e["step"] for e in events}
        for step in range(2, 41):
            for name in ("model.safetensors", "optimizer.safetensors"):
                before, now = (self.checkpoint("run", s).joinpath(name).read_bytes() for s in (step - 1, step))
                self.assertEqual(before == now, step in missed, f"{name} of step {step}")

    def test_skipped_steps_do_not_count_in_bias_correction(self):
        """As in PyTorch, the first applied update counts as Adam's first one, even if steps were skipped before.
        This update moves each weight by the learning rate, for any gradient."""
        words = [*FP16, "training.steps=60", "schedule=constant", "optimizer=adam", "optimizer.lr=0.001",
                 "training.checkpoint_every_steps=1", "training.keep_checkpoints=100"]
        self.train("run", *words, f"loss_scale.init_scale={HUGE}")
        skipped = [e["step"] for e in self.records("run", "events.jsonl") if e["event"] == "skipped_step"]
        first = next(step for step in range(1, 61) if step not in skipped)
        self.assertGreater(first, 5)
        before, after = (self.weights("run", step) for step in (first - 1, first))
        moved = sorted(abs(a - b) for a, b in zip(before, after))
        self.assertAlmostEqual(moved[len(moved) // 2], 0.001, delta=2e-5)

    def weights(self, run, step):
        import array
        data = self.checkpoint(run, step).joinpath("model.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        begin, end = json.loads(data[8:8 + length])["fc2.weight"]["data_offsets"]
        return array.array("f", data[8 + length + begin:8 + length + end])

    def test_a_run_resumes_across_a_skipped_step_to_the_same_bits(self):
        words = [*EVERYTHING, "training.steps=36", "training.checkpoint_every_steps=3", "training.keep_checkpoints=100",
                 f"loss_scale.init_scale={HUGE}", "loss_scale.growth_interval=4", "observe.log_every_steps=5"]
        self.train("whole", *words)
        missed = [e["step"] for e in self.records("whole", "events.jsonl") if e["event"] == "skipped_step"]
        self.assertTrue({5, 6, 7} < set(missed), missed)
        self.assertTrue(any(step > max(missed[0] + 20, 25) for step in missed), missed) # later steps overflowed again
        for step in (3, 6, max(missed) // 3 * 3):
            shutil.copytree(self.folder / "whole", self.folder / "part", symlinks=True)
            self.cut_back("part", step)
            self.brim("train", "--resume", "part")
            self.assert_same_checkpoint("whole", "part", 36)
            self.assert_same_records("whole", "part")
            self.assertEqual(self.summary("part")["skipped_steps"], len(missed))
            shutil.rmtree(self.folder / "part")

    def cut_back(self, run, step):
        """Makes the run look as if it had been killed right after the checkpoint of a step."""
        for there in self.steps(run):
            if there > step:
                shutil.rmtree(self.checkpoint(run, there))
        for link in ("last", "best"):
            self.folder.joinpath(run, "checkpoints", link).unlink(missing_ok=True)
        self.folder.joinpath(run, "checkpoints", "last").symlink_to(f"step-{step:08d}")
        self.folder.joinpath(run, "summary.json").unlink()

    def test_neither_micro_batches_nor_recompute_change_a_bit(self):
        words = [*EVERYTHING, "training.steps=30", f"loss_scale.init_scale={HUGE}", "loss_scale.growth_interval=5"]
        self.train("whole", *words)
        self.assertGreater(self.summary("whole")["skipped_steps"], 5)
        self.train("cut", *words, "training.batch_size=16", "training.gradient_accumulation_steps=2")
        self.train("again", *words, "memory.recompute=full")
        self.train("threads", *words, "backend.threads=2")
        for run in ("cut", "again", "threads"):
            self.assert_same_checkpoint("whole", run, 30, context=f"({run})")

    def test_the_norm_that_is_limited_and_recorded_is_of_gradients_without_the_scale(self):
        norms = {}
        for name, words in {"fp32": [], "small": ["precision=fp16", "loss_scale.init_scale=256"],
                            "large": ["precision=fp16", "loss_scale.init_scale=16384"]}.items():
            self.train(name, *DATA, *words, "training.steps=3", "training.clip_norm=0.01", "observe.log_every_steps=1")
            norms[name] = [r["grad_norm"] for r in self.records(name) if r["split"] == "train"]
        for name in ("small", "large"):
            for got, expected in zip(norms[name], norms["fp32"]):
                self.assertAlmostEqual(got / expected, 1, delta=0.02)

    def test_a_scale_that_does_not_help_ends_the_run(self):
        result = self.train("still", *FP16, "training.steps=40", "loss_scale.dynamic=false",
                            f"loss_scale.init_scale={HUGE}", status=FAILED)
        self.assert_error(result, "a gradient of step 9 is not finite",
                          f"the 8 steps before were not finite either, with a final loss scale of {HUGE}",
                          "first produced by")
        result = self.train("lost", *FP16, "training.steps=80", "optimizer=sgd", "optimizer.lr=1e15",
                            "training.eval_every_steps=100", status=FAILED)
        self.assert_error(result, "the loss of step", "with a final loss scale of 1:", "first produced by")
        self.assertEqual(self.summary("lost")["status"], "failed")
        self.assertTrue(16 <= self.summary("lost")["skipped_steps"] <= 18, self.summary("lost"))

    def test_a_scale_is_a_power_of_two(self):
        for key, value, near in (("init_scale", 1000, "512 or 1024"), ("growth_factor", 3, "2 or 4"),
                                 ("backoff_factor", 0.3, "0.25 or 0.5")):
            result = self.brim("plan", *FP16, f"loss_scale.{key}={value}", status=USAGE)
            self.assert_error(result, f"loss_scale.{key} is {value}, which is not a power of two", f"set {near}")


if __name__ == "__main__":
    main()
