"""Tests augmentation plugins in training: the built-in ones and one from outside the tree."""

import os
import pathlib
import shutil

from support import USAGE, Case, main

BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"]) / "augment"
STEPS = 6
RUN = ["dataset=synthetic", "dataset.train_count=218", "dataset.test_count=32", "dataset.shape=[1,10,10]", "model=cnn",
       "model.width=16", "backend=cpu", "backend.threads=1", "training.effective_batch_size=64",
       "training.batch_size=64", "augment.flip=false", f"training.steps={STEPS}"]


class Augment(Case):
    def assert_same(self, one, other):
        self.assert_same_checkpoint(one, other, STEPS, files=["model.safetensors", "optimizer.safetensors"])

    def test_an_external_augmentation_without_effect_changes_nothing(self):
        self.train("outside", *RUN, "augmentation=bad", f"--plugin-path={BAD}")
        self.train("own", *RUN)
        self.assert_same("outside", "own")

    def test_loader_threads_and_micro_batches_change_nothing(self):
        words = [*RUN, "augmentation=[erase,cutmix]", "augmentation.erase.probability=1"]
        self.train("one", *words, "training.num_workers=0")
        self.train("other", *words, "training.num_workers=3", "training.batch_size=16")
        self.assert_same("one", "other")
        self.train("plain", *RUN)
        files = [self.checkpoint(run, STEPS) / "model.safetensors" for run in ("one", "plain")]
        self.assertNotEqual(files[0].read_bytes(), files[1].read_bytes())

    def test_another_list_is_refused_when_a_run_is_resumed(self):
        self.train("run", *RUN, "augmentation=cutmix", "training.checkpoint_every_steps=3")
        (self.folder / "run" / "summary.json").unlink()
        shutil.rmtree(self.checkpoint("run", STEPS))
        file = self.folder / "run" / "config.yaml"
        text = file.read_text()
        self.assertIn("id: [cutmix]", text)
        file.write_text(text.replace("id: [cutmix]", "id: [cutmix, erase]"))
        self.assert_error(self.brim("train", "--resume", "run", status=USAGE), "augmentation.id")

    def test_mixing_augmentations_are_refused_with_clients(self):
        result = self.brim("config", *RUN[:-1], "total_clients=4", "rounds=1", "augmentation=cutmix", status=USAGE)
        self.assert_error(result, "'augmentation' cannot be combined with total_clients=4: a sample's partner may "
                                  "belong to another client")


if __name__ == "__main__":
    main()
