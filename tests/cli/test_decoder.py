"""Tests model=decoder and model=hf: networks of Hugging Face's transformers, from its files."""

import json
import pathlib
import shutil
import struct

import tensors
from support import NO_FIT, USAGE, Case, main, plain

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "decoder"
CONTEXT, TOKENS = 12, 23
STEP = ["training.steps=1", "optimizer=sgd", "optimizer.lr=1", "optimizer.momentum=0", "optimizer.weight_decay=0",
        "schedule=constant", "training.clip_norm=0", "memory.timing=false"]


class Decoder(Case):
    def write_tokens(self, rows):
        """Samples that overlap in one token: the last label of a sample is the first token of the next."""
        (self.folder / "tokens").mkdir(exist_ok=True)
        flat = [token for row in rows for token in row]
        (self.folder / "tokens" / "train.bin").write_bytes(struct.pack(f"<{len(flat)}H", *flat))

    def data(self, **more):
        keys = {"path": "tokens", "context": CONTEXT, "vocabulary": TOKENS, "stride": CONTEXT + 1, **more}
        return ["dataset=tokens", *(f"dataset.{key}={value}" for key, value in keys.items())]

    def copy(self, name, **changes):
        """Copies a golden model with changes in its config.json; None removes a key."""
        shutil.copytree(GOLDEN / name, self.folder / "model")
        path = self.folder / "model" / "config.json"
        config = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}, indent=2))


class Golden(Decoder):
    def test_loss_and_gradients_equal_those_of_transformers(self):
        """One step of SGD with a rate of 1 subtracts the gradient from the weights. In double precision it is right to
        1e-9 of the parameter's largest gradient."""
        folders = sorted(GOLDEN.iterdir())
        self.assertGreaterEqual(len(folders), 19)
        for folder in folders:
            with self.subTest(folder.name):
                answers, _ = tensors.read(folder / "answers.safetensors")
                weights, _ = tensors.read(folder / "model.safetensors")
                _, (samples, length), flat = answers.pop("tokens")
                self.write_tokens([flat[i * length:(i + 1) * length] for i in range(samples)])
                run = f"runs/{folder.name}"
                self.brim("train", "model=hf", f"model.weights={folder}", *self.data(), *STEP, "backend=reference",
                          f"training.batch_size={samples}", f"run.dir={run}")
                loss = self.records(run)[0]["loss"]
                self.assertAlmostEqual(loss, answers.pop("loss")[2][0], delta=1e-12)
                after, _ = tensors.read(self.folder / run / "checkpoints" / "last" / "model.safetensors")
                self.assertEqual(after.keys(), answers.keys())
                largest = max(abs(g) for _, _, values in answers.values() for g in values)
                for name, (_, _, gradient) in answers.items():
                    got = [before - now for before, now in zip(weights[name][2], after[name][2])]
                    worst = max(abs(a - b) for a, b in zip(got, gradient))
                    self.assertLess(worst, 1e-9 * largest, name)

    @plain
    def test_cpu_differs_by_rounding_only(self):
        self.write_tokens([[(7 * i + n) % TOKENS for n in range(CONTEXT + 1)] for i in range(4)])
        for folder in sorted(GOLDEN.iterdir()):
            with self.subTest(folder.name):
                losses = []
                for backend in ("cpu", "reference"):
                    run = f"runs/{folder.name}-{backend}"
                    self.brim("train", "model=hf", f"model.weights={folder}", *self.data(), *STEP[1:],
                              "training.steps=3", "optimizer.lr=0.1", f"backend={backend}", "training.batch_size=2",
                              f"run.dir={run}")
                    losses.append([line["loss"] for line in self.records(run) if line["split"] == "train"])
                for got, want in zip(*losses):
                    self.assertAlmostEqual(got, want, delta=1e-4)


class Cap(Decoder):
    def test_a_cap_of_logits_is_a_part_of_the_loss(self):
        """With many classes the loss computes the logits itself and caps them. Loss, gradients and answers are the
        same."""
        self.write_tokens([[(7 * i + n) % TOKENS for n in range(CONTEXT + 1)] for i in range(4)])
        words = ["model=decoder", "model.layers=1", "model.heads=2", "model.width=16", "model.mlp_width=8",
                 "model.logit_softcap=0.05", *self.data(vocabulary=4100), *STEP, "backend=reference",
                 "training.batch_size=4"]
        plan = self.brim("plan", *words, "--json").out
        self.assertIn("linear_cross_entropy+grad", plan)
        for name, fuse in ("apart", "none"), ("together", "all"):
            self.brim("train", *words, f"graph.fuse={fuse}", f"run.dir=runs/{name}")
        loss, other = (self.records(f"runs/{name}")[0]["loss"] for name in ("apart", "together"))
        self.assertAlmostEqual(loss, other, delta=1e-12)
        apart, together = (tensors.read(self.folder / f"runs/{name}/checkpoints/last/model.safetensors")[0]
                           for name in ("apart", "together"))
        for name, (_, _, values) in apart.items():
            self.assertLess(max(abs(a - b) for a, b in zip(values, together[name][2])), 1e-12, name)
        with self.subTest("smoothed labels, for which the loss cannot cap"):
            plan = self.brim("plan", *words, "loss.label_smoothing=0.1", "--json").out
            self.assertNotIn("linear_cross_entropy", plan)


class Family(Decoder):
    def config(self, *words, status=0):
        return self.brim("config", "model=hf", "model.weights=model", *self.data(), *words, status=status)

    @plain
    def test_keys_come_from_config_json(self):
        self.copy("llama_llama3")
        original = json.loads((self.folder / "model" / "config.json").read_text())
        out = self.config("--origins").out
        self.assertRegex(out, rf"layers: {original['num_hidden_layers']} +# model/config.json:\d+:\d+")
        self.assertRegex(out, r"rope_type: \"llama3\" +# model/config.json:\d+:\d+")
        self.assertRegex(out, r"id: decoder ")
        self.assertIn("layers: 1 ", self.config("model.layers=1", "--origins").out)

    @plain
    def test_keys_of_version_4_mean_the_same(self):
        self.copy("llama_llama3")
        new = self.config().out
        rope = json.loads((self.folder / "model" / "config.json").read_text())["rope_parameters"]
        theta = rope.pop("rope_theta")
        shutil.rmtree(self.folder / "model")
        self.copy("llama_llama3", rope_parameters="absent", rope_scaling=rope, rope_theta=theta, dtype="absent",
                  torch_dtype="bfloat16")
        self.assertEqual(self.config().out, new)

    def test_what_brim_does_not_know_is_refused_with_its_place(self):
        for changes, message in [
            ({"model_type": "gemma4"}, r"brim does not know models of the type 'gemma4'\n.*config.json:\d+:\d+"),
            ({"num_local_experts": 8}, r"brim does not know the key 'num_local_experts' of a llama model"),
            ({"logit_scale": 2}, r"brim does not know the key 'logit_scale' of a llama model\n.*config.json:\d+:\d+"),
            ({"hidden_act": "gelu"}, r"model with hidden_act: gelu; it must be silu or swish or gelu_pytorch_tanh"),
            ({"attention_dropout": 0.1}, r"attention_dropout: 0.1; it must be 0 or 0.0"),
            ({"rope_parameters": {"rope_type": "axial", "rope_theta": 1e4}}, r"'model.rope_type' must be one of"),
            ({"partial_rotary_factor": 0.5}, r"brim does not know the key 'partial_rotary_factor' of a llama model"),
            ({"rope_parameters": {"rope_type": "yarn", "turns": 1}}, r"the key 'rope_parameters.turns'"),
            ({"hidden_size": None}, r"'hidden_size' must not be null"),
            ({"rope_parameters": []}, r"'rope_parameters' must be a map"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, r"rope_scaling and rope_parameters: remove one"),
            ({"vocab_size": "absent"}, r"config.json has no 'vocab_size'"),
            ({"hidden_size": "wide"}, r"'model.width' .*'wide'"),
            ({"model_type": "absent"}, r"does not name its model_type"),
        ]:
            with self.subTest(str(changes)):
                shutil.rmtree(self.folder / "model", ignore_errors=True)
                self.copy("llama_llama3", **changes)
                result = self.finish(self.start("config", "model=hf", "model.weights=model", *self.data()))
                self.assertNotEqual(result.status, 0)
                self.assertRegex(result.err, message)

    @plain
    def test_a_window_is_one_whatever_the_order_of_the_keys(self):
        for last in "sliding_window", "max_position_embeddings":
            shutil.rmtree(self.folder / "model", ignore_errors=True)
            self.copy("mistral_llama3", sliding_window="absent", max_position_embeddings="absent")
            path = self.folder / "model" / "config.json"
            keys = {"sliding_window": 8, "max_position_embeddings": 64}
            config = {**json.loads(path.read_text()), **dict(sorted(keys.items(), key=lambda item: item[0] == last))}
            path.write_text(json.dumps(config))
            out = self.config().out
            self.assertIn("\n  window: 8\n", out)
            self.assertIn("\n  context: 64\n", out)

    @plain
    def test_null_means_what_it_means_to_transformers(self):
        self.copy("qwen2_llama3", num_key_value_heads=None)
        self.assertIn("\n  kv_heads: 0\n", self.config().out)

    @plain
    def test_null_tie_word_embeddings_is_false_as_in_transformers(self):
        self.copy("gemma_default", tie_word_embeddings=None)
        self.assertIn("\n  tied: false\n", self.config().out)

    def test_a_list_may_have_numbers_for_more_blocks_than_there_are_but_not_for_fewer(self):
        """A model with fewer blocks than its original may have the lists of the original in its config.json."""
        self.write_tokens([[0] * (CONTEXT + 1)] * 4)
        self.copy("smollm3_llama3")
        weights, _ = tensors.read(self.folder / "model" / "model.safetensors")
        tensors.write(self.folder / "model" / "model.safetensors",
                      {name: value for name, value in weights.items() if "layers.1" not in name})
        words = ["plan", "model=hf", "model.weights=model", *self.data(), "backend=cpu", "--no-timing"]
        self.brim(*words, "model.layers=1")
        result = self.brim(*words, "model.layers=3", status=USAGE)
        self.assertIn("model.rope_layers has 2 numbers for 3 blocks", result.err)

    def test_kinds_of_blocks_are_numbers_for_windows(self):
        self.copy("gemma2_default", layer_types=["full_attention", "sliding_attention"])
        self.assertIn("\n  window_layers: [0, 1]\n", self.config().out)
        shutil.rmtree(self.folder / "model")
        self.copy("gemma2_default", layer_types=["full_attention", "chunked_attention"])
        self.assertIn("model.window_layers", self.config(status=USAGE).err)

    @plain
    def test_the_last_blocks_of_qwen_have_a_window_if_its_switch_is_on(self):
        """max_window_layers is the number of blocks without a window. If config.json also has layer_types, which
        transformers 5 writes, brim takes that list instead."""
        for changes, *values in (({}, 3, 1, "[0, 1]"), ({"layer_types": "absent"}, 3, 1, "[]"),
                                 ({"layer_types": None, "sliding_window": None}, 0, 1, "[]"),
                                 ({"use_sliding_window": False}, 0, 0, "[]"),
                                 ({"use_sliding_window": "absent"}, 0, 0, "[]")):
            with self.subTest(changes):
                shutil.rmtree(self.folder / "model", ignore_errors=True)
                self.copy("qwen2_window", **changes)
                out = self.config().out
                for key, value in zip(("window", "window_from", "window_layers"), values):
                    self.assertIn(f"\n  {key}: {value}\n", out)
        for changes, message in (({"max_window_layers": "absent"}, "config.json has no 'max_window_layers'"),
                                 ({"use_sliding_window": "yes"}, "'use_sliding_window' must be true or false")):
            shutil.rmtree(self.folder / "model")
            self.copy("qwen2_window", **changes)
            result = self.finish(self.start("config", "model=hf", "model.weights=model", *self.data()))
            self.assert_error(result, message)

    @plain
    def test_max_window_layers_and_layer_types_are_the_same_network(self):
        losses = []
        self.write_tokens([[i % TOKENS for i in range(k, k + CONTEXT + 1)] for k in range(4)])
        for name, changes in (("types", {}), ("number", {"layer_types": "absent"}),
                              ("none", {"use_sliding_window": False})):
            shutil.rmtree(self.folder / "model", ignore_errors=True)
            self.copy("qwen2_window", **changes)
            self.train(name, "model=hf", "model.weights=model", *self.data(), *STEP, "training.batch_size=4")
            losses.append(self.records(name)[0]["loss"])
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])

    def test_old_names_of_longrope(self):
        rope = {"type": "su", "short_factor": [1.5], "long_factor": [2.5]}
        for name in "su", "yarn":
            shutil.rmtree(self.folder / "model", ignore_errors=True)
            self.copy("phi3_longrope", rope_parameters="absent", rope_theta=1e4, partial_rotary_factor=0.5,
                      rope_scaling={**rope, "type": name})
            out = self.config().out
            self.assertIn("\n  rope_type: longrope\n", out)
            self.assertIn("\n  rope_long: [2.5]\n", out)

    def test_config_json_is_json(self):
        """config.json may have characters as two halves of UTF-16, as json.dump writes them, and more nodes than YAML
        may have."""
        self.copy("llama_llama3", _name_or_path="\U0001F600", id2label={str(i): f"LABEL_{i}" for i in range(12000)})
        self.assertIn("rope_type", self.config().out)
        path = self.folder / "model" / "config.json"
        for text, message in [('{"model_type": "llama", }', "a key must be a text\n  model/config.json:1:25"),
                              ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
                              ('{"a": yes}', "not JSON: 'yes'\n  model/config.json:1:7"),
                              ('{"a": "\\ud83d"}', "half of a surrogate pair without its other half"),
                              ('{"a": [1}', "a comma or ']' is missing"),
                              ("[" * 100, "nested deeper than 64"),
                              ("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull")]:
            path.write_text(text)
            result = self.finish(self.start("config", "model=hf", "model.weights=model", *self.data()))
            self.assertNotEqual(result.status, 0)
            self.assertIn(message, result.err)

    @plain
    def test_text_in_config_json_is_not_interpolated(self):
        self.copy("llama_llama3", hidden_act="${seed}")
        result = self.config(status=USAGE)
        self.assertIn("with hidden_act: ${seed}", result.err)

    @plain
    def test_the_folder_may_be_set_in_a_file(self):
        self.copy("llama_llama3")
        (self.folder / "my" / "experiment").mkdir(parents=True)
        (self.folder / "my" / "experiment" / "mine.yaml").write_text(
            "defaults:\n  - override /model: hf\nmodel:\n  weights: model\n")
        out = self.brim("--config-path", "my", "config", "experiment=mine", *self.data()).out
        self.assertIn("rope_type: \"llama3\"", out)

    def test_a_wrong_file_of_a_family(self):
        self.copy("llama_llama3")
        (self.folder / "my" / "family").mkdir(parents=True)
        for text, message in [("model: [a]", "'model' of a family's file must be a map"),
                              ("keys: [a]", "'keys' of a family's file must be a map"),
                              ("only: {hidden_act: silu}", "'only' of a family's file must be a map"),
                              ("values: {a: b}", "'values' of a family's file must be a map"),
                              ("inside: [a]", "'inside' of a family's file must be a name"),
                              ("required: hidden_size", "'required' of a family's file must be a list"),
                              ("harmles: [a]", "a family's file has no section 'harmles'")]:
            (self.folder / "my" / "family" / "llama.yaml").write_text(text + "\n")
            result = self.brim("--config-path", "my", "config", "model=hf", "model.weights=model", *self.data(),
                               status=USAGE)
            self.assertIn(message, result.err)

    def test_missing_folders(self):
        for words, message in [
            ([], "model=hf reads the network from the folder in model.weights, which is not set"),
            (["model.weights=nowhere"], "cannot open the folder 'nowhere' of model.weights: No such file"),
        ]:
            result = self.finish(self.start("config", "model=hf", *self.data(), *words))
            self.assertNotEqual(result.status, 0)
            self.assertIn(message, result.err)

    @plain
    def test_the_table_may_have_more_rows_than_there_are_tokens_but_not_fewer(self):
        self.copy("llama_llama3")
        self.write_tokens([[0] * (CONTEXT + 1)] * 4)
        words = ["plan", "model=hf", "model.weights=model", "backend=cpu", "--no-timing"]
        self.brim(*words, *self.data(vocabulary=5))
        result = self.brim(*words, *self.data(vocabulary=1000), status=USAGE)
        self.assertRegex(result.err, r"the dataset has 1000 tokens, but the embedding has only \d+ rows")


class Inside(Decoder):
    def test_the_language_model_of_a_model_with_images(self):
        """brim reads the map text_config of gemma3, with the names of tensors of transformers 4 and 5."""
        plain = GOLDEN / "gemma3_text_linear"
        self.write_tokens([[(7 * i + n) % TOKENS for n in range(CONTEXT + 1)] for i in range(4)])
        weights, _ = tensors.read(plain / "model.safetensors")
        inner = json.loads((plain / "config.json").read_text())
        inner["tie_word_embeddings"] = True
        weights.pop("lm_head.weight", None)
        picture = {"vision_tower.a.weight": ("F32", [1], [0]), "multi_modal_projector.b.weight": ("F32", [1], [0])}
        outer = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": inner,
                 "vision_config": {"hidden_size": 1152}, "mm_tokens_per_image": 256, "dtype": inner.pop("dtype")}
        for name, config, named in [
            ("alone", {**inner, "dtype": outer["dtype"]}, weights),
            ("four", outer, {f"language_model.{name}": value for name, value in weights.items()} | picture),
            ("five", outer, {name.replace("model.", "model.language_model.", 1): value
                             for name, value in weights.items()} | {f"model.{k}": v for k, v in picture.items()}),
        ]:
            tensors.write(self.folder / name / "model.safetensors", named)
            (self.folder / name / "config.json").write_text(json.dumps(config))
            self.brim("train", "model=hf", f"model.weights={name}", *self.data(), *STEP, "backend=reference",
                      "training.batch_size=4", f"run.dir=runs/{name}")
        losses = {self.records(f"runs/{name}")[0]["loss"] for name in ("alone", "four", "five")}
        self.assertEqual(len(losses), 1, losses)
        (self.folder / "four" / "config.json").write_text(json.dumps({**outer, "tie_word_embeddings": False}))
        result = self.brim("config", "model=hf", "model.weights=four", *self.data(), status=USAGE)
        self.assertIn("cannot build a gemma3 model with tie_word_embeddings: false", result.err)

    @plain
    def test_a_pointer_of_git_lfs_is_named(self):
        self.copy("llama_llama3")
        self.write_tokens([[0] * (CONTEXT + 1)] * 4)
        (self.folder / "model" / "model.safetensors").write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
        result = self.finish(self.start("train", "model=hf", "model.weights=model", *self.data(), *STEP))
        self.assertIn("git lfs pull", result.err)


@plain
class Scale(Decoder):
    def test_the_factor_of_embeddings_is_rounded_to_the_type_of_the_weights(self):
        """sqrt(8) is 2.828125 in bfloat16: transformers multiplies in the type of the folder's weights."""
        self.write_tokens([[(7 * i + n) % TOKENS for n in range(CONTEXT + 1)] for i in range(4)])
        losses = []
        for run, words in ("rounded", ["0", "model.weights_type=bfloat16"]), ("given", ["2.828125"]), ("single", ["0"]):
            scale, *more = words
            self.brim("train", "model=decoder", "model.layers=1", "model.heads=2", "model.width=8", "model.mlp_width=8",
                      f"model.embedding_scale={scale}", *more, *self.data(), *STEP, "backend=reference",
                      "training.batch_size=4", f"run.dir=runs/{run}")
            losses.append(self.records(f"runs/{run}")[0]["loss"])
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])


class Runs(Decoder):
    def test_a_run_of_updates_is_resumed_without_its_folder(self):
        """The run's config.yaml has the whole network. brim reads only the backbone's weights again."""
        self.copy("llama_llama3")
        self.write_tokens([[(5 * i + n) % TOKENS for n in range(CONTEXT + 1)] for i in range(8)])
        words = ["train", "model=hf_lora", "model.weights=model", *self.data(), "backend=cpu", "backend.threads=1",
                 "training.batch_size=2", "memory.timing=false", "training.checkpoint_every_steps=2",
                 "training.steps=4"]
        self.brim(*words, "run.dir=whole")
        self.brim(*words, "run.dir=half", status=NO_FIT, env={"BRIM_FAULT": "step:3:begin:1+"})
        (self.folder / "model" / "config.json").unlink()
        self.brim("train", "--resume", "half")
        self.assert_same_checkpoint("whole", "half", 4, ["model.safetensors", "optimizer.safetensors"])
        names = set(tensors.read(self.folder / "whole/checkpoints/last/model.safetensors")[0])
        for layer in ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj"):
            self.assertTrue(any(layer in name for name in names), names)
        self.assertFalse(any("embed_tokens" in name for name in names), names)


if __name__ == "__main__":
    main()
