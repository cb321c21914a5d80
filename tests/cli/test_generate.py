"""Tests brim generate with models that have no run: folders as Hugging Face has them, their generation_config.json, and
the memory that generating takes. tests/text/test_generate.c compares its programs with whole samples."""

import json
import pathlib
import shutil

from support import LOAD, USAGE, Case, main, plain

TOKENIZER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizers" / "llama2.json"
TEXT = "the memory of a step is known before that step begins. " * 60
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16, "head_dim": 6,
         "intermediate_size": 24, "max_position_embeddings": 64}
MODEL = ["model=decoder", "model.layers=2", "model.heads=4", "model.kv_heads=2", "model.width=16", "model.head_size=6",
         "model.mlp_width=24", "dataset=text", "dataset.path=a.txt", "dataset.tokens=hf", "dataset.tokenizer=model",
         "dataset.context=24", "training.batch_size=8", "training.steps=60", "optimizer.lr=2e-2", "backend.threads=1",
         "memory.timing=false"]


class Generate(Case):
    """The tests have a run, and its model in the folder `model`."""

    def setUp(self):
        super().setUp()
        (self.folder / "a.txt").write_text(TEXT, encoding="utf-8")
        (self.folder / "model").mkdir()
        shutil.copy(TOKENIZER, self.folder / "model" / "tokenizer.json")
        self.train("run", *MODEL)
        shutil.copy(self.folder / "run/checkpoints/last/model.safetensors", self.folder / "model")
        rows = len(json.loads(TOKENIZER.read_text())["model"]["vocab"])
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": rows,
                  "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                  "tie_word_embeddings": True, **SIZES}
        (self.folder / "model/config.json").write_text(json.dumps(config))

    def generate(self, *words):
        return self.brim("generate", *words, "--json").json

    def write_defaults(self, **values):
        (self.folder / "model/generation_config.json").write_text(json.dumps(values))

    def tokens(self, *words):
        result = self.generate("model", "--prompt", "the memory", "--tokens", "9", *words)
        return [sample["tokens"] for sample in result["samples"]]


class Model(Generate):
    def test_a_folder_continues_texts_like_a_run_of_it(self):
        words = ["--prompt", "the memory of", "--tokens", "8", "--num-samples", "3", "--seed", "5"]
        run, model = self.generate("run", *words), self.generate("model", *words)
        self.assertEqual(run["samples"], model["samples"])
        self.assertEqual((model["model"], run["run"]), ("model", "run"))
        self.assertNotIn("checkpoint", model)
        greedy = self.brim("generate", "model", "--prompt", "the memory of", "--tokens", "6", "--temperature", "0").out
        self.assertTrue(TEXT.startswith(greedy.strip()), greedy)
        self.brim("generate", "./model/", "backend=reference", "--tokens", "2")

    @plain
    def test_the_model_sees_as_many_tokens_as_it_allows(self):
        self.generate("model", "--prompt", TEXT, "--tokens", "3")
        self.assertEqual(len(self.generate("run", "--tokens", "40", "--context", "60")["samples"][0]["tokens"]), 40)
        result = self.brim("generate", "model", "--context", "65", status=USAGE)
        self.assert_error(result, "samples have 65 tokens, more than model.context 64")

    def test_the_plan_has_the_cache(self):
        words = ["--prompt", "x", "--tokens", "10", "--plan", "backend=reference"]
        prompt = len(self.generate("model", "--prompt", "x", "--tokens", "1")["prompt_tokens"])
        for samples in (1, 3, 30):  # at most 8 side by side
            plan = self.generate("model", *words, "--num-samples", str(samples))
            # Bytes of a layer's keys: two heads of 6 values, in double precision.
            keys = min(samples, 8) * (prompt + 10) * 2 * 6 * 8
            self.assertEqual(plan["classes"]["cache"], 2 * 2 * ((keys + 63) // 64 * 64))
        out = self.brim("generate", "run", *words).out
        self.assertRegex(out, rf"1 text of up to {prompt + 10} tokens\n\npeak .*, exactly \d+ bytes, in ")
        self.assertRegex(out, r"\n  cache +\d")
        self.assertNotIn("cache", self.brim("plan", *MODEL).out)


class Defaults(Generate):
    @plain
    def test_the_text_ends_at_the_models_own_tokens(self):
        whole = self.tokens("--temperature", "0")[0]
        self.write_defaults(eos_token_id=[0, whole[4]])
        self.assertEqual(self.tokens("--temperature", "0")[0], whole[:whole.index(whole[4])])
        self.write_defaults(eos_token_id=whole[2])
        self.assertEqual(self.tokens("--temperature", "0")[0], whole[:whole.index(whole[2])])

    def test_sampling_follows_the_models_values_unless_words_say_otherwise(self):
        several = self.tokens("--num-samples", "3")
        self.assertEqual(self.tokens(), self.tokens("--temperature", "0"))  # the result is the same without the file
        greedy, drawn = self.tokens("--temperature", "0"), self.tokens("--seed", "3", "--top-k", "7", "--top-p", "0.9",
                                                                       "--temperature", "1.5")
        self.write_defaults(do_sample=False, temperature=1.5)
        self.assertEqual(self.tokens(), greedy)
        self.write_defaults(temperature=1.5)  # has no effect without do_sample, as in transformers
        self.assertEqual(self.tokens(), greedy)
        self.assertEqual(self.tokens("--num-samples", "3"), several)  # several texts must differ
        self.assertEqual(self.tokens("--num-samples", "3", "--temperature", "0"), 3 * greedy)
        self.write_defaults(do_sample=True, temperature=1.5, top_k=7, top_p=0.9)
        self.assertEqual(self.tokens("--seed", "3"), drawn)
        self.assertEqual(self.tokens("--temperature", "0"), greedy)
        self.assertEqual(self.tokens("--top-k", "1"), greedy)

    @plain
    def test_repeated_tokens_are_penalized(self):
        repeated = self.tokens("--temperature", "0", "--repetition-penalty", "1000")[0]
        self.assertEqual(len(set(repeated)), len(repeated))
        self.write_defaults(do_sample=False, repetition_penalty=1000.0)
        self.assertEqual(self.tokens()[0], repeated)

    def test_errors_are_reported(self):
        for values, text in (({"eos_token_id": "end"}, "eos_token_id must be the number of a token"),
                             ({"do_sample": True, "top_p": 2}, "top_p must be a number in"),
                             ({"do_sample": 1}, "do_sample must be true or false")):
            with self.subTest(text):
                self.write_defaults(**values)
                self.assert_error(self.brim("generate", "model", status=LOAD), text)
        (self.folder / "model/generation_config.json").write_text("{")
        self.assert_error(self.brim("generate", "model", status=LOAD), "model/generation_config.json:1:")
        result = self.brim("generate", "model", "--checkpoint", "best", status=USAGE)
        self.assert_error(result, "--checkpoint is for runs")
        self.assert_error(self.brim("generate", "nowhere", status=LOAD), "there is no run or model 'nowhere'")


if __name__ == "__main__":
    main()
