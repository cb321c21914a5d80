"""Tests model=lora around a language model: backbone=gpt2 keeps its head, so that only the adapters are trained."""

import shutil
import unittest

import tensors
from support import SANITIZED, USAGE, Case, main, plain
from test_text import token_file
from test_weights_layouts import make_gpt2

SIZES = {"layers": 2, "heads": 2, "width": 16, "context": 16}
TEXT = "the memory of a step is known before that step begins. " * 60
OTHER = "that memory begins before the step is known of a step. " * 60
COMMON = ["dataset.context=16", "training.batch_size=8", "backend.threads=1", "memory.timing=false",
          "training.num_workers=0", "optimizer.lr=1e-2"]
DATA = ["dataset=text", "dataset.path=a.txt", *COMMON]
MODEL = ["model=gpt2", *(f"model.{key}={value}" for key, value in SIZES.items()), "model.dropout=0"]
BACKBONE = ["backbone=gpt2", *(f"backbone.{key}={value}" for key, value in SIZES.items())]
LORA = ["model=lora", *BACKBONE]
STILL = ["optimizer=sgd", "optimizer.lr=0", "training.steps=1"]  # a step that changes nothing
LAYERS = [f"transformer.h.{i}.attn.c_attn" for i in (0, 1)]


class Language(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "a.txt").write_text(TEXT, encoding="utf-8")

    def trained(self, run):
        return tensors.read(self.folder / run / "checkpoints/last/model.safetensors")[0]

    def loss(self, run, *words):
        return self.brim("eval", run, "--json", *words).json["loss"]

    def generated(self, run):
        return self.brim("generate", run, "--prompt", "the memory", "--tokens", "20", "--temperature", "0").out


class Training(Language):
    def test_only_adapters_are_trained_and_saved_for_a_text(self):
        (self.folder / "b.txt").write_text(OTHER, encoding="utf-8")
        self.train("before", *MODEL, *DATA, "training.epochs=8")
        self.train("run", *LORA, *DATA, "dataset.path=b.txt", "model.weights=before", "training.epochs=5")
        self.assertEqual(set(self.trained("run")), {f"{layer}.lora_{part}.weight" for layer in LAYERS for part in "AB"})
        self.assertLess(self.summary("run")["test_loss"], self.loss("before", "dataset.path=b.txt") - 0.3)
        self.assertEqual(self.loss("run"), self.summary("run")["test_loss"])
        self.assertTrue(self.generated("run").startswith("the memory"))
        self.assertNotEqual(self.generated("run"), self.generated("before"))

    @plain
    def test_a_plan_has_states_of_adapters_only(self):
        for store in ("fp32", "bf16"):
            words = [*LORA, *DATA, f"backbone.store={store}"]
            plan = self.brim("plan", *words, "--json", "--no-timing").json
            # each c_attn has 8 * 16 down and 48 * 8 up
            self.assertEqual(plan["trained_parameters"], 2 * 8 * (16 + 48))
            self.assertEqual(plan["classes"]["gradients"], 4 * plan["trained_parameters"])
            self.train(store, *words, "training.steps=2")
            summary = self.summary(store)
            self.assertEqual(summary["planned_peak_bytes"], plan["peak_bytes"])
            self.assertEqual(summary["device_peak_bytes"], plan["peak_bytes"])
        self.assertNotEqual(self.summary("fp32")["test_loss"], self.summary("bf16")["test_loss"])

    @plain
    def test_a_resumed_run_leaves_the_same_bytes(self):
        words = [*LORA, *DATA, "training.steps=12", "training.checkpoint_every_steps=4", "training.keep_checkpoints=9"]
        for name, more in (("wide", []), ("small", ["backbone.store=bf16"])):
            self.train(f"{name}-whole", *words, *more)
            shutil.copytree(self.folder / f"{name}-whole", self.folder / f"{name}-cut", symlinks=True)
            (self.folder / f"{name}-cut/summary.json").unlink()
            for step in (8, 12):
                shutil.rmtree(self.checkpoint(f"{name}-cut", step))
            self.brim("train", "--resume", f"{name}-cut")
            self.assert_same_checkpoint(f"{name}-whole", f"{name}-cut", 12)

    def test_files_of_tokens_with_a_large_vocabulary(self):
        """With a large vocabulary the loss contains the product with the frozen embedding."""
        (self.folder / "data").mkdir()
        (self.folder / "data/x_train.bin").write_bytes(token_file([7 * i % 5000 for i in range(600)]))
        words = ["dataset=tokens", "dataset.path=data", "dataset.vocabulary=5000", *COMMON, "memory.recompute=blocks"]
        self.train("inside", *LORA, *words, "training.steps=3")
        self.train("apart", *LORA, *words, "training.steps=3", "graph.fuse=[]")
        self.assertAlmostEqual(self.summary("inside")["test_loss"], self.summary("apart")["test_loss"], places=4)
        self.assertLess(self.summary("inside")["planned_peak_bytes"], self.summary("apart")["planned_peak_bytes"])
        self.assertEqual(self.brim("generate", "inside", "--prompt", "7 14", "--tokens", "2").out.split()[:2],
                         ["7", "14"])

    @unittest.skipIf(SANITIZED, "sanitizers keep memory")
    @plain
    def test_the_host_has_room_for_the_embedding_while_it_is_placed(self):
        (self.folder / "data").mkdir()
        (self.folder / "data/x_train.bin").write_bytes(token_file([7 * i % 50000 for i in range(600)]))
        words = [*LORA, "dataset=tokens", "dataset.path=data", "dataset.vocabulary=50000", *COMMON,
                 "backbone.width=256"]
        for store in ("fp32", "bf16"):
            self.train(store, *words, f"backbone.store={store}", "training.steps=1")
            summary = self.summary(store)
            predicted, taken = summary["predicted_rss_bytes"], summary["rss_peak_bytes"]
            self.assertLess(abs(predicted - taken), max(0.05 * taken, 8 << 20), (predicted, taken))
        term = "largest frozen weight, while it is placed"
        self.assertNotIn(term, self.brim("plan", *words, "--no-timing").out)
        self.assertIn(term, self.brim("plan", *words, "backbone.store=bf16", "--no-timing").out)

    def test_weights_of_hugging_face_load_into_the_backbone(self):
        tensors.write(self.folder / "gpt2/model.safetensors", make_gpt2(width=16), {"format": "pt"})
        result = self.train("run", *LORA, *DATA, *STILL, "model.weights=gpt2")
        self.assertIn("using map hf_gpt2, recognised by tensor names", result.err)
        self.train("plain", *MODEL, *DATA, *STILL, "model.weights=gpt2")
        self.assertAlmostEqual(self.summary("run")["test_loss"], self.summary("plain")["test_loss"], places=6)

    def test_errors_name_the_backbone(self):
        cases = [(["model=linear_probe", *BACKBONE], "samples of dataset 'text' are tokens",
                  "use model=lora to fine-tune"),
                 ([*LORA, "dataset.context=17"], "only 16 positions have an embedding", "its keys are backbone.*"),
                 (["model=lora"], "clip_vit: samples must be images", "backbone=OPTION chooses another"),
                 ([*LORA, "model.lora_targets=[lm_head]"],
                  "no linear layer's name is or ends in a target (targets: lm_head)",
                  "h.*.mlp.c_proj")]
        for words, *texts in cases:
            with self.subTest(texts[0]):
                self.assert_error(self.brim("plan", *DATA, *words, status=USAGE), *texts)


class Exports(Language):
    def setUp(self):
        super().setUp()
        tensors.write(self.folder / "gpt2/model.safetensors", make_gpt2(width=16), {"format": "pt"})
        self.train("run", *LORA, *DATA, "model.weights=gpt2", "training.steps=20", "model.lora_r=4",
                   "model.lora_targets=[c_attn,c_fc]")

    def test_merged_it_is_a_plain_gpt2(self):
        self.brim("export", "run", "--merge", "--format", "hf", "-o", "merged.safetensors")
        merged, before = tensors.read(self.folder / "merged.safetensors")[0], make_gpt2(width=16)
        self.assertEqual(len(merged), 28)
        for name, (_, shape, values) in merged.items():
            kind, old_shape, old = before[name.removeprefix("transformer.")]
            self.assertEqual(shape, old_shape)
            changed = name.endswith(("c_attn.weight", "c_fc.weight"))
            self.assertEqual(list(values) != list(old), changed, name)
        config = self.json("config.json")
        self.assertEqual((config["n_layer"], config["n_head"], config["n_embd"], config["vocab_size"]), (2, 2, 16, 256))
        self.train("plain", *MODEL, *DATA, *STILL, "model.weights=merged.safetensors")
        self.assertAlmostEqual(self.loss("plain"), self.loss("run"), places=5)
        self.assertEqual(self.generated("plain"), self.generated("run"))

    def test_adapters_are_written_as_peft_keeps_them(self):
        self.brim("export", "run", "--format", "peft", "-o", "adapter")
        config = self.json("adapter", "adapter_config.json")
        self.assertEqual((config["r"], config["target_modules"], config["modules_to_save"]),
                         (4, ["c_attn", "c_fc"], None))
        self.assertEqual((config["fan_in_fan_out"], config["task_type"]), (True, "CAUSAL_LM"))
        found = tensors.read(self.folder / "adapter/adapter_model.safetensors")[0]
        own = self.trained("run")
        self.assertEqual(set(found), {f"base_model.model.{name}" for name in own})
        self.assertEqual(found["base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"][:2], ("F32", [48, 4]))
        for name, value in own.items():
            self.assertEqual(found[f"base_model.model.{name}"], value)

    @plain
    def test_changes_in_peft_are_those_of_the_merged_weights(self):
        """PEFT adds (B A) times alpha / r, transposed because of fan_in_fan_out, to the weights."""
        self.brim("export", "run", "--format", "peft", "-o", "adapter")
        self.brim("export", "run", "--merge", "--format", "hf", "-o", "merged.safetensors")
        found = tensors.read(self.folder / "adapter/adapter_model.safetensors")[0]
        merged, before = tensors.read(self.folder / "merged.safetensors")[0], make_gpt2(width=16)
        for layer in ("h.0.attn.c_attn", "h.1.mlp.c_fc"):
            (_, (r, width), a), (_, (out, _), b) = (
                found[f"base_model.model.transformer.{layer}.lora_{part}.weight"] for part in "AB")
            delta = [16 / r * sum(b[o * r + k] * a[k * width + i] for k in range(r)) for i in range(width)
                     for o in range(out)]
            for got, old, change in zip(merged[f"transformer.{layer}.weight"][2], before[f"{layer}.weight"][2], delta):
                self.assertAlmostEqual(got, old + change, delta=1e-6)


if __name__ == "__main__":
    main()
