"""Tests the errors for options that do not fit together: the fault, the origin of the value, and the remedy."""

import pathlib
import unittest

import image_sets
from support import BINARY, LOAD, SMALL, USAGE, Case, main, plain

PLUGINS = pathlib.Path(BINARY).parents[1].joinpath("lib/brim/plugins/dataset")
READS_PICTURES = PLUGINS.joinpath("image_folder.so").exists()
READS_TEXT = PLUGINS.joinpath("text.so").exists()
TEXT = ["model=gpt2_tiny", "dataset=text", "dataset.path=book.txt", "memory.timing=false"]


class Outputs(Case):
    """If brim cannot write an output, it reports a usage error before any work."""

    def test_a_missing_folder(self):
        self.train("run", *SMALL, "training.steps=1")
        for words in (["export", "run", "--output", "nofolder/x.safetensors"],
                      ["export", "run", "--format", "peft", "-o", "nofolder/adapter/"],
                      ["predict", "run", "a.png", "-o", "nofolder/x.csv"],
                      ["report", "run", "-o", "nofolder/x.html"],
                      ["compare", "run", "-o", "nofolder/x.svg"],
                      ["plan", *SMALL, "-o", "nofolder/x.svg"]):
            result = self.brim(*words, status=USAGE)
            self.assert_error(result, "there is no folder 'nofolder'", "make it first, or name another")
        self.assertFalse((self.folder / "nofolder").exists())

    @plain
    def test_a_file_is_where_the_folder_would_be(self):
        (self.folder / "taken").write_text("mine")
        self.train("run", *SMALL, "training.steps=1")
        result = self.brim("export", "run", "-o", "taken/x.safetensors", status=USAGE)
        self.assert_error(result, "'taken' is a file, not a folder")
        self.assert_error(self.train("taken/run", *SMALL, status=USAGE),
                          "cannot make folder 'taken': a file has this name")

    @plain
    def test_the_run_is_looked_for_first(self):
        (self.folder / "model.safetensors").write_text("mine")
        result = self.brim("export", "nowhere", status=LOAD)
        self.assert_error(result, "there is no run 'nowhere'")
        self.assertNotIn("exists already", result.err)


class Options(Case):
    def test_an_option_is_shown_with_its_plugin_and_its_settings(self):
        said = self.brim("plugins", "model/gpt2_tiny").out
        for part in ("model/gpt2_tiny: an option of the plugin model/gpt2\n", "configs/model/gpt2_tiny.yaml",
                     "sets    id: gpt2\n", "          layers: 4\n", "\nmodel/gpt2: GPT-2, a language model"):
            self.assertIn(part, said)
        said = self.brim("plugins", "dataset/fashion_mnist", "--json").json
        self.assertEqual([p["id"] for p in said["plugins"]], ["idx"])
        self.assertEqual(said["option"]["name"], "fashion_mnist")

    @plain
    def test_the_users_options_are_shown_too(self):
        (self.folder / "mine/model").mkdir(parents=True)
        (self.folder / "mine/model/wide.yaml").write_text("id: mlp\nhidden: [4096]\n")
        self.assertIn("hidden: [4096]", self.brim("--config-path", "mine", "plugins", "model/wide").out)
        self.assert_error(self.brim("plugins", "model/wide", status=USAGE), "no plugin 'wide' of kind 'model'")


@unittest.skipUnless(READS_PICTURES, "this build reads no pictures")
@plain
class Pictures(Case):
    def setUp(self):
        super().setUp()
        image_sets.write_folder(self.folder / "pictures", train=6, test=2)
        self.words = ["dataset=image_folder", "dataset.path=pictures", "memory.timing=false"]

    def test_gray_is_one_word(self):
        self.brim("plan", *self.words, "dataset.gray=true")

    def test_transform_none_leaves_them_as_they_are(self):
        said = self.brim("config", *self.words, "transform=none").out
        self.assertIn("transform:\n  size: []\n  resize: 0\n  interpolation: bilinear\n  normalize: dataset\n", said)
        self.brim("plan", *self.words, "dataset.gray=true", "transform=none", "transform.size=32")


@unittest.skipUnless(READS_TEXT, "this build reads no text")
class Texts(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "book.txt").write_text(" ".join(str(i) for i in range(4000)))

    def test_a_vocabulary_without_its_tokens_is_refused(self):
        result = self.brim("plan", *TEXT, "dataset.tokenizer=vocabulary", status=USAGE)
        self.assert_error(result, "dataset.tokenizer is for dataset.tokens=gpt2 and dataset.tokens=hf",
                          "set dataset.tokens=hf too")

    @plain
    def test_mirroring_is_not_mentioned(self):
        self.assertNotIn("augment.flip", self.brim("plan", *TEXT).err)

    @plain
    def test_a_requested_mirror_is_refused(self):
        self.assert_error(self.brim("plan", *TEXT, "augment.flip=true", status=USAGE), "'augment.flip' needs images",
                          "command line, argument")


class Kinds(Case):
    """If the model and the data are for different kinds of samples, the error names both kinds and the models that
    fit."""

    def refused(self, *words):
        return self.brim("plan", "memory.timing=false", *words, status=USAGE)

    def test_rows_of_numbers(self):
        (self.folder / "t.csv").write_text("a,b,kind\n" + "".join(f"{i},{i * i},{i % 3}\n" for i in range(40)))
        table = ["dataset=csv", "dataset.path=t.csv"]
        for answers, said in ((["dataset.label=kind"], "one of 3 classes"), (["dataset.targets=[b]"], "1 real number")):
            for model in ("cnn", "emotion_cnn", "fedavg_cnn", "lightcnn", "resnet18", "vit"):
                self.assert_error(self.refused(*table, *answers, f"model={model}"),
                                  f"{model}: samples must be images, [channels,rows,columns]", "model=mlp",
                                  "samples of dataset 'csv' are real numbers [2]; the target is " + said)
            self.assert_error(self.refused(*table, *answers, "model=gpt2_tiny"), "gpt2: samples must be tokens",
                              "dataset=text", "model=mlp")
        self.assert_error(self.refused(*table, "dataset.label=kind", "model=mlp", "transform=imagenet"),
                          "'transform.size' needs images", "transform/imagenet.yaml:", "transform=none")

    def test_images(self):
        self.assert_error(self.refused("dataset=synthetic", "dataset.shape=[1,8,8]", "model=gpt2_tiny"),
                          "gpt2: samples must be tokens", "for images use model=cnn",
                          "samples of dataset 'synthetic' are images [1, 8, 8]; the target is one of 10 classes")

    @unittest.skipUnless(READS_TEXT, "this build reads no text")
    def test_tokens(self):
        (self.folder / "book.txt").write_text(" ".join(str(i) for i in range(4000)))
        for model, takes in (("cnn", "images"), ("mlp", "real numbers"), ("mental_state", "real numbers"),
                             ("temperature_lstm", "real numbers"), ("resnet50", "images")):
            self.assert_error(self.refused(*TEXT, f"model={model}"), f"{model}: samples must be {takes}",
                              "for tokens use model=gpt2", "are 256 tokens each, of a vocabulary of 256")


if __name__ == "__main__":
    main()
