"""Tests that several ranks train as one: the same samples in the same steps, and the same losses up to the rounding of
sums."""

import array
import json
import math
import shutil
import struct

from ranks import Ranks
from support import FULL, HANG_SECONDS, SANITIZED, SMALL, main

STEPS = 100 if FULL and not SANITIZED else 20
# An epoch has 7 steps, the last with 20 samples. The 5 norm groups of 16 in a step are distributed over 2 and 4 ranks.
ODD = ["training.batch_size=80", "dataset.train_count=500", "dataset.test_count=100", f"training.steps={STEPS}",
       "training.eval_every_steps=10", "augment.flip=true", "augment.crop_padding=1", "observe.log_every_steps=1",
       "memory.timing=false", "training.num_workers=0"]
NORMS = ["model=lightcnn", "model.width=4", "dataset=synthetic", "dataset.shape=[1,8,8]", *ODD]
DROPOUT = ["model=cnn", "model.width=2", "dataset=synthetic", "dataset.shape=[1,8,8]", *ODD]


class SameNumbers(Ranks):
    """In double precision, losses agree to 1e-9."""

    def compare(self, other, run):
        a, b = self.records(other), self.records(run)
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertEqual((x["split"], x["step"], x["accuracy"], x.get("f1")),
                             (y["split"], y["step"], y["accuracy"], y.get("f1")))
            self.assertLessEqual(abs(x["loss"] - y["loss"]), 1e-9, f"{x['split']} at step {x['step']}: {run}")

    def check(self, *overrides, ranks=(2, 4)):
        self.train("one", *overrides, "backend=reference")
        self.assertEqual(len([r for r in self.records("one") if r["split"] == "train"]), self.summary("one")["steps"])
        for n in ranks:
            self.ranks(n, f"by{n}", *overrides, "backend=reference")
            self.compare("one", f"by{n}")
            reported = [r for r in self.records(f"by{n}", "events.jsonl") if r["event"] == "rank"]
            self.assertEqual({r["rank"] for r in reported}, set(range(n)))

    def test_norm_groups_and_augmentation(self):
        self.check(*NORMS)

    def test_partners_of_mixup(self):
        self.check(*DROPOUT, "augment.mixup=0.4", "training.steps=20", "training.eval_every_steps=20", ranks=(3,))

    def test_dropout_and_accumulation(self):
        self.check(*DROPOUT, "training.batch_size=16", "training.gradient_accumulation_steps=5")

    def test_more_ranks_than_norm_groups(self):
        self.check(*NORMS, "training.batch_size=32", "training.steps=20", "training.eval_every_steps=20", ranks=(4,))

    def test_weights_of_classes_clipped_gradients_and_averages(self):
        self.check(*DROPOUT, "loss.class_weights=[1,2,0.5,1,1,1,3,1,1,0]", "training.clip_norm=0.5",
                   "training.ema_decay=0.9")

    def test_weights_of_before(self):
        self.train("first", *DROPOUT, "seed=5")
        self.check(*DROPOUT, "training.steps=20", "training.ema_decay=0.9", "model.weights=first", ranks=(3,))

    def test_samples_of_several_documents(self):
        tokens = [(7 * i + i // 5) % 19 for i in range(3000)]  # token 0 begins a document
        (self.folder / "train.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        self.check("dataset=tokens", f"dataset.path={self.folder}", "dataset.context=24", "dataset.vocabulary=19",
                   "dataset.separator=0", "model=gpt2", "model.layers=1", "model.heads=2", "model.width=12",
                   "training.batch_size=6", "training.steps=10", "observe.log_every_steps=1", "memory.timing=false")

    def test_ranks_with_micro_batches_of_their_own(self):
        self.check(*DROPOUT, "training.batch_size=8", "training.gradient_accumulation_steps=10", ranks=(3,))


class FirstGradient(Ranks):
    """In single precision training amplifies rounding, so only the first gradient is compared: after one step of SGD it
    is the momentum."""

    def gradients(self, run):
        data = (self.checkpoint(run, 1) / "optimizer.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        found = {}
        for name, tensor in json.loads(data[8:8 + length]).items():
            if name.endswith(".momentum_buffer"):
                first, last = tensor["data_offsets"]
                found[name] = array.array("f", data[8 + length + first:8 + length + last])
        return found

    def differences(self, *overrides):
        """Returns, for 2 and 4 ranks compared with one rank, {tensor: (norm of the difference, norm)}."""
        options = [*overrides, "backend=cpu", "backend.threads=1", "optimizer=sgd", "optimizer.momentum=0.9",
                   "training.steps=1", "training.eval_every_steps=0"]
        self.train("one", *options)
        whole = self.gradients("one")
        self.assertTrue(whole)
        for ranks in (2, 4):
            self.ranks(ranks, f"by{ranks}", *options)
            part = self.gradients(f"by{ranks}")
            self.assertEqual(whole.keys(), part.keys())
            yield {name: (math.dist(whole[name], part[name]), math.hypot(*whole[name])) for name in whole}

    def test_of_each_tensor(self):
        for found in self.differences(*DROPOUT):
            all_norm = math.hypot(*(norm for _, norm in found.values()))
            for name, (difference, norm) in found.items():
                self.assertLessEqual(difference, 1e-5 * max(norm, 1e-2 * all_norm), name)

    def test_of_all_together_with_norm_groups(self):
        for found in self.differences(*NORMS):
            self.assertLessEqual(math.hypot(*(difference for difference, _ in found.values())),
                                 1e-4 * math.hypot(*(norm for _, norm in found.values())))


class Resumed(Ranks):
    def test_by_as_many_ranks_to_the_same_bytes(self):
        options = [*DROPOUT, "backend=cpu", "backend.threads=1", "training.steps=12", "training.eval_every_steps=6",
                   "training.checkpoint_every_steps=3", "training.keep_checkpoints=9"]
        self.ranks(2, "whole", *options)
        # a kill after step 6 leaves such a folder
        shutil.copytree(self.folder / "whole", self.folder / "part", symlinks=True)
        for step in (9, 12):
            shutil.rmtree(self.checkpoint("part", step))
        (self.folder / "part" / "summary.json").unlink()
        process = self.start_ranks(2, "train", "--resume", "part")
        out, err = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertIn("after step 6", out)
        for step in (6, 9, 12):
            self.assert_same_checkpoint("whole", "part", step)
        self.assert_same_records("whole", "part")


class Together(Ranks):
    def test_an_error_of_all_ranks_is_printed_once(self):
        result = self.ranks(3, "run", *SMALL, "loss.class_weights=[1,2]", status=2)
        self.assertEqual(result.err.count("error: "), 1, result)
        self.assertFalse((self.folder / "run").exists())

    def test_configurations_that_differ(self):
        """Each rank gets another seed."""
        script = self.folder / "differ.sh"
        script.write_text('#!/bin/sh\nexec "$BRIM_BINARY" "$@" seed=$OMPI_COMM_WORLD_RANK\n')
        script.chmod(0o755)
        result = self.ranks(2, "run", *SMALL, status=2, program=script)
        self.assert_error(result, "rank 1 has another configuration than rank 0: 'seed' differs")
        self.assertEqual(result.err.count("error: "), 1, result)

    def test_an_invalid_number_of_ranks(self):
        result = self.ranks(2, "run", *SMALL, "dist.ranks=3", status=2)
        self.assert_error(result, "dist.ranks is 3, but 2 ranks were started")
        self.assertEqual(result.err.count("error: "), 1, result)


if __name__ == "__main__":
    main()
