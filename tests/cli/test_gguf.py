"""Tests GGUF files: model=hf reads their network, weights and tokenizer; brim export writes them, and whole folders."""

import json
import pathlib
import shutil
import struct

import tensors
from support import LOAD, USAGE, Case, main, plain

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "decoder"
TOKENS = ["<|end|>", "<|start|>", *"abcdefghijklmnop", "\u0120", "ab", "cd", "abcd", "\u0120ab"]
CONTEXT = 12
STEP = ["training.steps=1", "training.batch_size=4", "schedule=constant", "optimizer=sgd", "optimizer.lr=0",
        "backend=reference", "memory.timing=false"]


def tokenizer(**changes):
    """Returns a byte-level tokenizer of 23 tokens."""
    added = [{"id": i, "content": TOKENS[i], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i in range(2)]
    words = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "vocab": {token: i for i, token in enumerate(TOKENS)}, "merges": ["a b", "c d", "ab cd", "\u0120 ab"]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": words, "post_processor": None, "decoder": words, "model": model, **changes}


def metadata(path):
    """Returns the keys of a GGUF file with their values, leaving out long arrays, and the types of its tensors."""
    data, at = path.read_bytes(), 24
    forms = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(form):
        nonlocal at
        value, = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size:at].decode()

    def value(kind):
        if kind != 9:
            return text() if kind == 8 else take(forms[kind])
        kind, count = take("I"), take("Q")
        return [value(kind) for _ in range(count)]

    count, keys = struct.unpack_from("<QQ", data, 8)
    values = {}
    for _ in range(keys):
        key = text()
        values[key] = value(take("I"))
    types = {}
    for _ in range(count):
        name = text()
        dims = [take("Q") for _ in range(take("I"))]
        types[name] = (take("I"), dims)
        take("Q")
    return values, types


class Gguf(Case):
    def make(self, name="llama_llama3", config=None, **changes):
        """Makes a folder of a small model with a tokenizer, and tokens to train on."""
        folder = self.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(GOLDEN / name, folder)
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **(config or {})}, indent=2))
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer(**changes)))
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|start|>", "eos_token": "<|end|>"}))
        (folder / "chat_template.jinja").write_text("{{ messages }}")
        (self.folder / "tokens").mkdir(exist_ok=True)
        flat = [(7 * i + n) % 23 for i in range(4) for n in range(CONTEXT + 1)]
        (self.folder / "tokens" / "train.bin").write_bytes(struct.pack(f"<{len(flat)}H", *flat))

    def data(self):
        return ["dataset=tokens", "dataset.path=tokens", f"dataset.context={CONTEXT}", "dataset.vocabulary=23",
                f"dataset.stride={CONTEXT + 1}"]

    def tune(self, **more):
        self.make(**more)
        self.brim("train", "model=hf_lora", "model.weights=model", *self.data(), "training.steps=2",
                  "training.batch_size=4", "backend=reference", "memory.timing=false", "run.dir=run")

    def export(self, *words, status=0):
        return self.brim("export", "run", "--merge", *words, status=status)

    def loss(self, weights):
        shutil.rmtree(self.folder / "again", ignore_errors=True)
        self.brim("train", "model=hf", f"model.weights={weights}", *self.data(), *STEP, "run.dir=again")
        return self.records("again")[0]["loss"]


class Export(Gguf):
    def test_a_gguf_has_the_network_of_the_folder(self):
        """The loss must have the same bits. It depends on names, order of rows, frequencies and sizes."""
        for name in ("llama_default", "llama_llama3", "llama_linear", "llama_yarn", "llama_longrope", "qwen2_llama3",
                     "qwen3_default", "phi3_default", "phi3_longrope", "olmo2_default", "granite_yarn"):
            with self.subTest(name):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                self.tune(name=name)
                self.export("--format", "hf", "-o", "tuned", "--force")
                self.export("--format", "gguf", "-o", "tuned.gguf", "--force")
                far = 1e-6 if name.endswith("longrope") else 0  # the GGUF stores its amplitude in 32 bits
                self.assertAlmostEqual(self.loss("tuned"), self.loss("tuned.gguf"), delta=far)

    @plain
    def test_updates_alone_are_not_a_whole_model(self):
        self.tune()
        for name, output in ("gguf", "a.gguf"), ("hf", "a"):
            result = self.brim("export", "run", "--format", name, "-o", output, status=USAGE)
            self.assert_error(result, f"--format {name} is for whole models", "--merge adds the updates")
            self.assertFalse((self.folder / output).exists())

    def test_norms_of_gemma_have_one_added(self):
        """By llama.cpp's convention the file has 1 + w in single precision, so losses differ by rounding."""
        types = {"gemma": None, "gemma2": ["sliding_attention", "full_attention"],
                 "gemma3_text": ["sliding_attention"] * 2}
        for name, layers in types.items():
            with self.subTest(name):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                config = {"layer_types": layers, "query_pre_attn_scalar": 8} if layers else None
                self.tune(name=f"{name}_default", config=config)
                self.export("--format", "hf", "-o", "tuned", "--force")
                self.export("--format", "gguf", "-o", "tuned.gguf", "--force")
                self.assertAlmostEqual(self.loss("tuned"), self.loss("tuned.gguf"), delta=1e-5)

    @plain
    def test_fused_layers_of_phi3_stay_fused(self):
        self.tune(name="phi3_default")
        self.export("--format", "gguf", "-o", "tuned.gguf")
        _, types = metadata(self.folder / "tuned.gguf")
        self.assertIn("blk.0.attn_qkv.weight", types)
        self.assertIn("blk.0.ffn_up.weight", types)

    def test_a_folder_is_whole(self):
        self.tune()
        result = self.export("--format", "hf", "-o", "tuned", "--dtype", "bf16")
        self.assertIn("28 tensors in tuned, with configuration, tokenizer and chat template of ",
                      result.err + result.out)
        folder, base = self.folder / "tuned", self.folder / "model"
        self.assertEqual(sorted(path.name for path in folder.iterdir()),
                         ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json",
                          "tokenizer_config.json"])
        for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((folder / name).read_bytes(), (base / name).read_bytes())
        config = json.loads((folder / "config.json").read_text())
        before = json.loads((base / "config.json").read_text())
        self.assertEqual(config, {**before, "dtype": "bfloat16"})
        values, _ = tensors.read(folder / "model.safetensors")
        self.assertTrue(all(kind == "BF16" for kind, _, _ in values.values()))
        self.assertIn("'tuned' exists already", self.export("--format", "hf", "-o", "tuned", status=USAGE).err)
        self.export("--format", "hf", "-o", "tuned", "--force")
        self.assertEqual(json.loads((folder / "config.json").read_text()), before)
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name.startswith(".")], [])

    def test_a_gguf_has_tokenizer_and_template(self):
        self.tune()
        for word, kind in (("f32", 0), ("f16", 1), ("bf16", 30)):
            self.export("--format", "gguf", "--dtype", word, "-o", f"{word}.gguf")
            values, types = metadata(self.folder / f"{word}.gguf")
            self.assertEqual(types["blk.0.attn_q.weight"], (kind, [16, 24]))
            self.assertEqual(types["blk.0.attn_norm.weight"], (0, [16]))  # vectors stay in single precision
        rows = types["token_embd.weight"][1][1]
        self.assertEqual(values["general.architecture"], "llama")
        self.assertEqual(values["llama.attention.head_count_kv"], 2)
        self.assertEqual(values["tokenizer.ggml.pre"], "gpt-2")
        self.assertEqual(values["tokenizer.ggml.tokens"],
                         TOKENS + [f"[PAD{i}]" for i in range(len(TOKENS), rows)])
        self.assertEqual(values["tokenizer.ggml.merges"], ["a b", "c d", "ab cd", "\u0120 ab"])
        self.assertEqual(values["tokenizer.ggml.token_type"][:3], [3, 3, 1])
        self.assertEqual((values["tokenizer.ggml.bos_token_id"], values["tokenizer.ggml.eos_token_id"]), (1, 0))
        self.assertEqual(values["tokenizer.chat_template"], "{{ messages }}")

    def test_a_folder_of_a_gguf_has_its_files(self):
        """The test makes a GGUF of a folder, a folder of that GGUF, and a GGUF of the new folder, which must have the
        same network."""
        self.tune()
        self.export("--format", "gguf", "-o", "base.gguf")
        self.brim("train", "model=hf_lora", "model.weights=base.gguf", *self.data(), "training.steps=1",
                  "training.batch_size=4", "backend=reference", "memory.timing=false", "run.dir=second")
        self.brim("export", "second", "--merge", "--format", "hf", "-o", "back")
        self.brim("export", "second", "--merge", "--format", "gguf", "-o", "back.gguf")
        back = self.folder / "back"
        self.assertEqual(self.loss("back"), self.loss("back.gguf"))
        made = json.loads((back / "tokenizer.json").read_text())
        self.assertEqual(made["model"]["vocab"], tokenizer()["model"]["vocab"])
        self.assertEqual(made["model"]["merges"], tokenizer()["model"]["merges"])
        about = json.loads((back / "tokenizer_config.json").read_text())
        self.assertEqual((about["bos_token"], about["eos_token"], about["chat_template"]),
                         ("<|start|>", "<|end|>", "{{ messages }}"))
        config = json.loads((back / "config.json").read_text())
        self.assertEqual(config["rope_scaling"]["rope_type"], "llama3")
        self.assertEqual(config["architectures"], ["LlamaForCausalLM"])

    def test_what_cannot_be_written_is_refused_and_leaves_nothing(self):
        self.tune()
        for words, message in [
            (["--format", "gguf", "-o", "x.safetensors"], "the name of a GGUF file must end in .gguf"),
            (["--format", "hf", "--dtype", "q8_0", "-o", "x"], "--dtype must be f32, bf16, f16 or"),
            (["--format", "gguf", "--dtype", "int4", "-o", "x.gguf"], "got 'int4'"),
        ]:
            self.assert_error(self.export(*words, status=USAGE), message)
        for name, config, message in [
            ("mistral_llama3", {"sliding_window": 5}, "GGUF cannot express 'sliding_window' of config.json"),
            ("qwen2_window", {}, "GGUF cannot express 'use_sliding_window' of config.json"),
            ("smollm3_llama3", {"no_rope_layers": [0, 1]}, "another 'no_rope_layers': GGUF cannot express"),
            ("gemma2_default", {"query_pre_attn_scalar": 8}, "GGUF cannot express 'layer_types' of config.json"),
            ("llama_dynamic", {}, "GGUF cannot express 'rope_type' of config.json"),
            ("llama_gelu", {}, "GGUF cannot express 'hidden_act' of config.json"),
            ("llama_mscale", {}, "GGUF cannot express 'mscale' of config.json"),
            *(("gemma2_default", {"layer_types": ["sliding_attention", "full_attention"], key: None},
               f"GGUF cannot express '{key}' of config.json")
              for key in ("attn_logit_softcapping", "final_logit_softcapping", "sliding_window")),
            ("gemma3_text_default", {"layer_types": ["sliding_attention"] * 2, "sliding_window": None},
             "GGUF cannot express 'sliding_window' of config.json"),
        ]:
            with self.subTest(name):
                shutil.rmtree(self.folder / "run")
                self.tune(name=name, config=config)
                self.assert_error(self.export("--format", "gguf", "-o", "x.gguf", status=USAGE), message)
        shutil.rmtree(self.folder / "run")
        self.tune()
        path = self.folder / "model" / "tokenizer.json"
        digits = {"type": "Digits", "individual_digits": False}
        for changes, message in [
            ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, tokenizer()["pre_tokenizer"]]}},
             "brim knows no name of llama.cpp for its pre_tokenizer"),
            ({"normalizer": {"type": "Lowercase"}}, "its normalizer is not the one"),
            ({"pre_tokenizer": None}, "neither byte-level nor has byte_fallback"),
        ]:
            path.write_text(json.dumps(tokenizer(**changes)))
            self.assert_error(self.export("--format", "gguf", "-o", "x.gguf", status=USAGE), message)
        path.unlink()
        self.assert_error(self.export("--format", "gguf", "-o", "x.gguf", status=USAGE), "no tokenizer.json in ")
        self.assertEqual([p.name for p in self.folder.iterdir() if "x" in p.name[:2]], [])


    @plain
    def test_keys_without_effect_are_left_out(self):
        """transformers ignores mscale and mscale_all_dim if one of them is missing, or with attention_factor. swish is
        silu."""
        rope = json.loads((GOLDEN / "llama_mscale/config.json").read_text())["rope_parameters"]
        for changes in {"mscale_all_dim": None}, {"mscale": 0}, {"attention_factor": 1.3}:
            with self.subTest(changes):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                self.tune(name="llama_mscale", config={
                    "hidden_act": "swish",
                    "rope_parameters": {k: v for k, v in (rope | changes).items() if v is not None}})
                self.export("--format", "hf", "-o", "tuned", "--force")
                self.export("--format", "gguf", "-o", "m.gguf", "--force")
                self.assertEqual(self.loss("tuned"), self.loss("m.gguf"))


class Reading(Gguf):
    def test_keys_have_their_origin_in_the_file(self):
        self.tune()
        self.export("--format", "gguf", "-o", "m.gguf")
        out = self.brim("config", "model=hf", "model.weights=m.gguf", *self.data(), "--origins").out
        self.assertRegex(out, r"layers: 2 +# m.gguf: llama.block_count")
        self.assertRegex(out, r"rope_type: \"?llama3\"? +# m.gguf: rope_freqs.weight")
        self.assertRegex(out, r"qkv_bias: true +# m.gguf: blk.0.attn_output.bias")

    def test_text_becomes_the_tokens_of_the_folder(self):
        self.tune()
        self.export("--format", "gguf", "-o", "m.gguf")
        (self.folder / "text.txt").write_text("abcd ab cdcd ab abab cdab " * 8)
        losses = []
        for where in ("model", "m.gguf"):
            self.brim("train", "model=hf", "model.weights=m.gguf", "dataset=text", "dataset.path=text.txt",
                      "dataset.tokens=hf", f"dataset.tokenizer={where}", "dataset.context=8", "dataset.cache=cache",
                      *STEP, f"run.dir={where}-run")
            losses.append(self.records(f"{where}-run")[0]["loss"])
        self.assertEqual(*losses)

    def test_one_file_of_several_is_refused_with_a_way_to_join_them(self):
        key = b"split.count"
        head = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(key)) + key + struct.pack("<IH", 2, 3)
        (self.folder / "a-00002-of-00003.gguf").write_bytes(head + bytes(64))
        result = self.brim("config", "model=hf", "model.weights=a-00002-of-00003.gguf", *self.data(), status=LOAD)
        self.assert_error(result, "is one of the 3 files of a model", "llama-gguf-split --merge")

    def test_what_brim_does_not_know_is_refused_with_its_place(self):
        self.tune()
        self.export("--format", "gguf", "-o", "good.gguf")
        good = (self.folder / "good.gguf").read_bytes()
        bad = self.folder / "bad.gguf"

        def message(data):
            bad.write_bytes(data)
            result = self.finish(self.start("config", "model=hf", "model.weights=bad.gguf", *self.data()))
            self.assertIn(result.status, (USAGE, LOAD))
            return result.err

        self.assertIn("bad.gguf' is not a GGUF file that brim can read: tensor 'blk.1.", message(good[:-600]))
        self.assertIn("it has only 20 bytes", message(good[:20]))
        self.assertRegex(message(good.replace(b"llama", b"bloom")),
                         r"bad.gguf': brim does not know the general.architecture 'bloom'\n.*it knows: llama, qwen2")
        self.assertRegex(message(good.replace(b"llama.context_length", b"llama.expert_length!")),
                         r"brim does not know the key 'llama.expert_length!' of a llama model\n.*bad.gguf: llama.exp")
        at = good.index(b"blk.0.attn_q.weight") + 19 + 4 + 16
        self.assertIn("tensor 'blk.0.attn_q.weight' has type Q2_K; brim reads",
                      message(good[:at] + struct.pack("<I", 10) + good[at + 4:]))
        bad.write_bytes(good.replace(b"gpt-2", b"gpt-9"))
        (self.folder / "text.txt").write_text("abcd ab " * 30)
        result = self.brim("train", "model=hf", "model.weights=bad.gguf", "dataset=text", "dataset.path=text.txt",
                           "dataset.tokens=hf", "dataset.tokenizer=bad.gguf", *STEP, status=LOAD)
        self.assertIn("brim does not know how tokenizer.ggml.pre 'gpt-9' splits text into words", result.err)


if __name__ == "__main__":
    main()
