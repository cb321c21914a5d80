"""Tests built-in models: their sizes, that they learn, and that memory decisions do not change their numbers."""

import json
import shutil
import statistics
from array import array

from support import Case, main

# model with its options, sample shape, classes, number of parameters
SIZES = [
    ("mlp", "[1,28,28]", 10, 535818),
    ("cnn", "[1,28,28]", 10, 1199882),
    ("fedavg_cnn", "[1,28,28]", 10, 1663370),
    ("lightcnn", "[1,28,28]", 10, 24058),
    ("emotion_cnn", "[1,48,48]", 7, 2345607),
    ("temperature_lstm", "[1,28,28]", 10, 4 * 50 * (28 + 50 + 2) + 51 * 10),
    # the summands: conv1, conv2, both directions of the LSTM, four projections, norm, fc
    ("mental_state", "[1,14,64]", 4,
     64 * (14 * 3 + 1) + 128 * (64 * 3 + 1) + 2 * 4 * 64 * (128 + 64 + 2) + 4 * 129 * 128 + 256 + 129 * 4),
    ("vit", "[1,28,28]", 10, 5353738),
    ("vit_tiny", "[3,224,224]", 1000, 5717416),  # the sizes of timm's models such as vit_tiny_patch16_224
    ("vit_small", "[3,224,224]", 1000, 22050664),
    ("vit_base", "[3,224,224]", 1000, 86567656),
    ("vit_large", "[3,224,224]", 1000, 304326632),
    ("resnet18", "[3,224,224]", 1000, 11689512),  # torchvision's size
    ("resnet50", "[3,224,224]", 1000, 25557032),
    ("resnet18", "[3,32,32]", 10, 11173962),  # with a 3x3 stem
    ("resnet50", "[3,32,32]", 10, 23520842),
    # Hugging Face's CLIPVisionModelWithProjection: its vision tower, the projection; the head
    ("clip_vit_b32", "[3,224,224]", 10, 87456000 + 768 * 512 + 513 * 10),
    ("clip_vit_b16", "[3,224,224]", 10, 85799424 + 768 * 512 + 513 * 10),
    ("clip_vit_l14", "[3,224,224]", 10, 303179776 + 1024 * 768 + 769 * 10),
    ("clip_vit_l14 model.features=pooled", "[3,224,224]", 10, 303179776 + 1025 * 10),
]

TINY = {
    "lightcnn": ["model=lightcnn", "model.width=4", "model.dropout=0.2", "dataset.shape=[1,12,12]"],
    "lightcnn-group-norm": ["model=lightcnn", "model.width=4", "model.norm=group", "dataset.shape=[3,9,10]"],
    "fedavg_cnn": ["model=fedavg_cnn", "model.width=2", "dataset.shape=[1,12,12]"],
    "temperature_lstm": ["model=temperature_lstm", "model.hidden=9", "model.layers=2", "model.dropout=0.1",
                         "dataset.shape=[1,6,5]"],
    "mental_state": ["model=mental_state", "model.width=6", "model.hidden=8", "dataset.shape=[1,3,20]"],
    "vit": ["model=vit", "model.depth=2", "model.width=12", "model.heads=2", "model.patch=3", "model.dropout=0.1",
            "dataset.shape=[1,9,12]"],
    "vit-mean": ["model=vit", "model.depth=1", "model.width=8", "model.heads=1", "model.pool=mean",
                 "dataset.shape=[3,12,8]"],
    "resnet18": ["model=resnet18", "model.width=3", "dataset.shape=[1,12,10]"],
    "resnet18-large": ["model=resnet18", "model.width=2", "model.stem=imagenet", "model.zero_init_residual=true",
                       "dataset.shape=[3,20,20]"],
    "clip_vit": ["model=clip_vit", "model.depth=2", "model.width=12", "model.heads=2", "model.patch=3",
                 "model.projection=7", "dataset.shape=[1,9,12]"],
}
COMMON = ["dataset=synthetic", "dataset.train_count=104", "dataset.test_count=32", "training.epochs=2",
          "observe.log_every_steps=1"]


class Models(Case):
    def test_they_have_the_size_that_they_are_known_by(self):
        for model, shape, classes, values in SIZES:
            with self.subTest(model):
                plan = self.brim("plan", "--json", "--no-timing", *f"model={model}".split(), "dataset=synthetic",
                                 f"dataset.shape={shape}", f"dataset.classes={classes}", "training.batch_size=16")
                self.assertEqual(json.loads(plan.out)["parameters"], values)

    def test_they_learn(self):
        for name, words in TINY.items():
            with self.subTest(name):
                self.train(f"learn {name}", *COMMON, *words, "dataset.train_count=1024", "dataset.noise=0.2",
                           "training.batch_size=32", "optimizer.lr=1e-2", "training.epochs=6")
                self.assertGreater(self.summary(f"learn {name}")["test_accuracy"], 0.8)

    def test_threads_and_micro_batches_change_no_bit(self):
        for name, words in TINY.items():
            with self.subTest(name):
                runs = [(64, 1, 1), (32, 2, 2), (16, 4, 1)]
                for batch, accumulation, threads in runs:
                    self.train(f"{name} {batch}", *COMMON, *words, f"training.batch_size={batch}",
                               f"training.gradient_accumulation_steps={accumulation}", f"backend.threads={threads}",
                               "training.grain=16")
                for batch, *_ in runs[1:]:
                    self.assert_same_checkpoint(f"{name} 64", f"{name} {batch}", 4)

    def test_a_resumed_run_ends_with_the_same_bytes(self):
        for name, words in TINY.items():
            with self.subTest(name):
                words = [*COMMON, *words, "training.batch_size=32", "training.ema_decay=0.9", "training.steps=4",
                         "training.checkpoint_every_steps=2", "training.keep_checkpoints=9"]
                self.train(f"whole {name}", *words)
                self.train(f"cut {name}", *words)
                self.forget_after(f"cut {name}", 2)
                self.brim("train", "--resume", f"cut {name}")
                self.assert_same_checkpoint(f"whole {name}", f"cut {name}", 4)

    def forget_after(self, run, step):
        """Makes a finished run look like one that ended after the checkpoint of a step."""
        self.folder.joinpath(run, "summary.json").unlink()
        for entry in self.folder.joinpath(run, "checkpoints").iterdir():
            if entry.is_symlink():
                entry.unlink()
            elif entry != self.checkpoint(run, step):
                shutil.rmtree(entry)

    def tensors_of(self, run):
        """Returns shape and values of each tensor in the checkpoint after one step."""
        content = (self.checkpoint(run, 1) / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        return {name: (entry["shape"], array("f", content[start:][slice(*entry["data_offsets"])]))
                for name, entry in header.items() if name != "__metadata__"}

    def test_residual_networks_start_as_torchvisions(self):
        words = [*COMMON, "model=resnet18", "model.width=8", "dataset.shape=[3,20,20]", "training.steps=1",
                 "optimizer=sgd", "optimizer.lr=1e-30", "optimizer.weight_decay=0"]
        for zero in ("false", "true"):
            self.train(zero, *words, f"model.zero_init_residual={zero}")
            tensors = self.tensors_of(zero)
            self.assertEqual(set(tensors["layer1.0.bn1.weight"][1]), {1})
            self.assertEqual(set(tensors["layer2.0.downsample.1.weight"][1]), {1})
            start = 0 if zero == "true" else 1
            self.assertLess(max(abs(value - start) for value in tensors["layer4.1.bn2.weight"][1]), 1e-20)
            shape, values = tensors["layer4.0.conv1.weight"]
            self.assertEqual(shape, [64, 32, 3, 3])
            # the variance follows the number of outputs, not the number of inputs as in torch.nn.Conv2d
            self.assertAlmostEqual(statistics.pstdev(values) / (2 / (64 * 9)) ** 0.5, 1, delta=0.02)
            self.assertLess(max(abs(value) for value in tensors["fc.weight"][1]), 64 ** -0.5)

    def test_a_residual_network_takes_images_only(self):
        result = self.brim("plan", *COMMON, "model=resnet50", "augment.flip=false", "dataset.shape=[108]", status=2)
        self.assert_error(result, "resnet50: samples must be images, [channels,rows,columns]")

    def test_a_vision_transformer_has_the_tensors_that_timm_names(self):
        self.train("run", *COMMON, *TINY["vit"], "training.steps=1")
        shapes = {name: shape for name, (shape, _) in self.tensors_of("run").items()}
        expected = {"cls_token": [1, 1, 12], "pos_embed": [1, 13, 12], "patch_embed.proj.weight": [12, 1, 3, 3],
                    "patch_embed.proj.bias": [12], "norm.weight": [12], "norm.bias": [12], "head.weight": [10, 12],
                    "head.bias": [10]}
        for i in range(2):
            for name, shape in [("norm1", [12]), ("attn.qkv", [36, 12]), ("attn.proj", [12, 12]), ("norm2", [12]),
                                ("mlp.fc1", [48, 12]), ("mlp.fc2", [12, 48])]:
                expected[f"blocks.{i}.{name}.weight"], expected[f"blocks.{i}.{name}.bias"] = shape, shape[:1]
        self.assertEqual(shapes, expected)

    def test_a_vision_transformer_needs_a_whole_number_of_patches(self):
        words = [*COMMON, *TINY["vit"]]
        self.assert_error(self.brim("plan", *words, "model.patch=4", status=2),
                          "vit: model.patch must divide images of 9x12, but 4 does not")
        self.assert_error(self.brim("plan", *words, "model.heads=5", status=2),
                          "vit: model.heads must divide model.width 12, but 5 does not")
        self.assert_error(self.brim("plan", *words, "model.mlp_ratio=0.01", status=2),
                          "vit: model.mlp_ratio 0.01 leaves no values between the MLP's layers")
        self.assert_error(self.brim("plan", *words, "augment.flip=false", "dataset.shape=[108]", status=2),
                          "vit: samples must be images, [channels,rows,columns]")

    def test_micro_batches_that_cut_norm_groups_are_refused(self):
        words = [*COMMON, *TINY["lightcnn"], "training.gradient_accumulation_steps=2"]
        result = self.brim("train", *words, "training.batch_size=24", status=2)
        self.assert_error(result, "training.batch_size 24 is not a multiple of training.norm_group 16")
        self.brim("plan", *words, "training.batch_size=24", "training.norm_group=8")
        table = self.brim("plan", "--json", *words, "training.batch_size=32").json["table"]
        self.assertEqual([row["batch_size"] for row in table], [16, 32, 64, 128, 256])


if __name__ == "__main__":
    main()
