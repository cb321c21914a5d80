"""Tests weights in the layouts of published models: torchvision's ResNet, and Hugging Face's CLIP and GPT-2. The files
are generated here, with the real names and shapes."""

import random

import tensors
from support import LOAD, Case, main, plain

SMALL = ["training.epochs=1", "training.batch_size=16", "backend.threads=1", "memory.timing=false"]
IMAGES = ["dataset=synthetic", "dataset.shape=[3,32,32]", "dataset.train_count=32", "dataset.test_count=16", *SMALL]
RESNET = ["model=resnet18", "model.width=8", *IMAGES]
CLIP = ["model=clip_vit", "model.depth=2", "model.width=32", "model.heads=2", "model.projection=16",
        "model.patch=8", *IMAGES]
GPT2 = ["model=gpt2", "model.layers=2", "model.width=8", "model.heads=2", "model.context=16", "dataset=text",
        "dataset.path=text.txt", "dataset.context=16", *SMALL]
STILL = ["optimizer=sgd", "optimizer.lr=0", "training.steps=1"]  # a step that changes nothing
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def made(shape, seed):
    """Makes a tensor of random numbers that fp32 represents exactly."""
    count = 1
    for dim in shape:
        count *= dim
    numbers = random.Random(seed)
    return "F32", list(shape), [numbers.randrange(-256, 256) / 1024 for _ in range(count)]


def make_gpt2(layers=2, width=8, context=16, vocabulary=256):
    """Makes the tensors of model.safetensors of huggingface.co/gpt2, in a smaller size."""
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (context, width), "ln_f.weight": (width,),
              "ln_f.bias": (width,)}
    for i in range(layers):
        for name, shape in {"ln_1.weight": (width,), "ln_1.bias": (width,), "ln_2.weight": (width,),
                            "ln_2.bias": (width,), "attn.c_attn.weight": (width, 3 * width),
                            "attn.c_attn.bias": (3 * width,), "attn.c_proj.weight": (width, width),
                            "attn.c_proj.bias": (width,), "mlp.c_fc.weight": (width, 4 * width),
                            "mlp.c_fc.bias": (4 * width,), "mlp.c_proj.weight": (4 * width, width),
                            "mlp.c_proj.bias": (width,)}.items():
            shapes[f"h.{i}.{name}"] = shape
    found = {name: made(shape, name) for name, shape in shapes.items()}
    for i in range(layers):
        found[f"h.{i}.attn.bias"] = ("F32", [1, 1, context, context], [1.0] * context ** 2)
        found[f"h.{i}.attn.masked_bias"] = ("F32", [], [-10000.0])
    return found


class Layouts(Case):
    def parameters(self, run):
        return tensors.read(self.folder / run / "checkpoints/last/model.safetensors")[0]

    def exported(self, run, layout):
        self.brim("export", run, "--format", layout, "-o", f"{run}.safetensors", "--force")
        return tensors.read(self.folder / f"{run}.safetensors")[0]

    def test_torchvisions_resnet(self):
        self.train("first", *RESNET)
        out = self.exported("first", "torchvision")
        self.assertEqual(out, self.parameters("first"))
        self.assertIn("layer4.1.bn2.running_var", out)
        for name in [name[:-len("running_var")] for name in out if name.endswith("running_var")]:
            out[name + "num_batches_tracked"] = ("I64", [], [4])
        tensors.write(self.folder / "resnet.safetensors", out, {"format": "pt"})
        result = self.train("again", *RESNET, *STILL, "model.weights=resnet.safetensors")
        self.assertIn("using map torchvision_resnet, recognised by tensor names, ignoring 20 that", result.err)
        again = self.parameters("again")
        for name, values in self.parameters("first").items():
            if "running" not in name:  # running averages change during a step
                self.assertEqual(again[name], values)

    def test_clip_of_hugging_face_with_its_text_tower(self):
        self.train("first", *CLIP)
        out = self.exported("first", "hf")
        self.assertIn("vision_model.encoder.layers.1.self_attn.out_proj.weight", out)
        for name in ("head.weight", "head.bias"):
            del out[name]
        out["logit_scale"] = ("F32", [], [4.6])
        out["text_projection.weight"] = made((16, 12), "text")
        out["text_model.embeddings.position_ids"] = ("I64", [1, 7], range(7))
        out["vision_model.embeddings.position_ids"] = ("I64", [1, 17], range(17))
        tensors.write_shards(self.folder / "clip", out)
        result = self.brim("plan", *CLIP, "model.weights=clip", status=LOAD)
        self.assert_error(result, "to start with a new 'head', set model.weights_except='head.*'")
        result = self.train("again", *CLIP, *STILL, "model.weights=clip", "model.weights_except=head.*")
        self.assertIn("using map hf_clip, recognised by tensor names, ignoring 4 that the model does not use",
                      result.err)
        again = self.parameters("again")
        for name, values in self.parameters("first").items():
            if not name.startswith("head."):
                self.assertEqual(again[name], values)

    def test_gpt2_of_hugging_face(self):
        (self.folder / "text.txt").write_text("To be, or not to be, that is the question. " * 40)
        found = make_gpt2()
        for prefix, tied in (("", False), ("transformer.", True)):
            file = {prefix + name: value for name, value in found.items()}
            if tied:
                file["lm_head.weight"] = found["wte.weight"]
            tensors.write(self.folder / "gpt2/model.safetensors", file, {"format": "pt"})
            run = f"run{int(tied)}"
            result = self.train(run, *GPT2, *STILL, "model.weights=gpt2")
            self.assertIn("using map hf_gpt2, recognised by tensor names, ignoring 4 that the model does not use",
                          result.err)
            own = self.parameters(run)
            out = self.exported(run, "hf")
            for name, value in found.items():
                if name.endswith("attn.bias") or name.endswith("masked_bias"):
                    continue
                inside = tensors.transposed(value) if name.endswith(TRANSPOSED) else value
                self.assertEqual(list(own["transformer." + name][2]), list(inside[2]), name)
                self.assertEqual(out["transformer." + name][1], value[1])
                self.assertEqual(list(out["transformer." + name][2]), list(value[2]), name)
            self.assertEqual(len(out), 28)
            config = self.json("config.json")
            self.assertEqual((config["n_layer"], config["n_head"], config["n_embd"], config["n_positions"]),
                             (2, 2, 8, 16))
            self.assertEqual((config["vocab_size"], config["architectures"]), (256, ["GPT2LMHeadModel"]))
            self.assertEqual(config["layer_norm_epsilon"], 1e-5)
        self.assertEqual(self.summary("run0")["test_loss"], self.summary("run1")["test_loss"])

    @plain
    def test_an_untied_last_layer_is_refused(self):
        (self.folder / "text.txt").write_text("To be, or not to be, that is the question. " * 40)
        found = make_gpt2()
        found["lm_head.weight"] = made((256, 8), "another")
        tensors.write(self.folder / "gpt2.safetensors", found)
        result = self.train("run", *GPT2, "model.weights=gpt2.safetensors", status=LOAD)
        self.assert_error(result, "'lm_head.weight' and 'wte.weight' have different values")


if __name__ == "__main__":
    main()
