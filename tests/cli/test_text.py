"""Tests language models of text: training, evaluation, generation and resuming, with bytes, GPT-2's tokens and token
files."""

import json
import os
import pathlib
import shutil
import signal
import struct
import time
import unittest

from support import FAILED, LOAD, SANITIZED, USAGE, Case, main, plain, some_of

BPE = pathlib.Path(__file__).resolve().parents[1] / "golden" / "bpe"
KINDS = BPE.parent / "tokenizers"
# The text has an odd length, so that windows begin at odd offsets too.
TEXT = "the memory of a step is known before that step begins. " * 60
MODEL = ["model=gpt2", "model.layers=1", "model.heads=2", "model.width=16", "model.context=16", "model.dropout=0",
         "dataset.context=16", "training.batch_size=8", "optimizer.lr=1e-2", "backend.threads=1", "memory.timing=false"]
BYTES = ["dataset=text", "dataset.path=a.txt", *MODEL]
GPT2 = [*BYTES, "dataset.tokens=gpt2", f"dataset.tokenizer={BPE}"]


def token_file(tokens, header=True):
    """Returns a token file in llm.c's format or numpy's."""
    head = struct.pack("<3i", 20240520, 1, len(tokens)) + bytes(1012) if header else b""
    return head + struct.pack(f"<{len(tokens)}H", *tokens)


class Text(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "a.txt").write_text(TEXT, encoding="utf-8")

    def generate(self, run, *words):
        return self.brim("generate", run, "--json", *words).json


class Bytes(Text):
    @plain
    def test_text_is_learnt_evaluated_and_resumed(self):
        self.train("run", *BYTES, "model.layers=2", "training.epochs=40", "dataset.validation_fraction=0.1")
        self.assertLess(self.summary("run")["test_loss"], 0.1)
        self.assertIn("perplexity", self.brim("eval", "run", "--split", "validation").out)
        result = self.generate("run", "--prompt", "the memory of a ", "--tokens", "20", "--temperature", "0")
        self.assertEqual(result["prompt_tokens"], list(b"the memory of a "))
        self.assertEqual(result["samples"][0]["text"], "step is known before")
        self.assertEqual(result["samples"][0]["tokens"], list(b"step is known before"))
        plain = self.brim("generate", "run", "--prompt", "the memory of a ", "--tokens", "4", "--temperature", "0")
        self.assertEqual(plain.out, "the memory of a step\n")

    @plain
    def test_the_seed_decides_the_samples(self):
        self.train("run", *BYTES, "training.steps=5")
        def drawn(*words):
            return [s["text"] for s in self.generate("run", "--tokens", "30", *words)["samples"]]
        first = drawn("--seed", "3", "--num-samples", "3")
        self.assertEqual(len(set(first)), 3)
        self.assertEqual(drawn("--seed", "3", "--num-samples", "2"), first[:2])
        self.assertNotEqual(drawn("--seed", "4"), first[:1])
        greedy = drawn("--temperature", "0")
        self.assertEqual(drawn("--top-k", "1"), greedy)
        self.assertEqual(drawn("--top-p", "1e-9"), greedy)

    def test_several_texts_are_separated_and_a_prompt_may_be_a_file(self):
        self.train("run", *BYTES, "training.steps=2")
        (self.folder / "prompt").write_text("é\n", encoding="utf-8")
        out = self.brim("generate", "run", "--prompt-file", "prompt", "--tokens", "3", "--num-samples", "2").out
        first, second = out.split("---\n")
        self.assertTrue(first.startswith("é\n") and second.startswith("é\n"), out)

    @plain
    def test_a_resumed_run_ends_like_an_uninterrupted_one(self):
        busy = [*BYTES, "training.steps=8", "training.checkpoint_every_steps=4", "model.dropout=0.1"]
        self.train("whole", *busy)
        shutil.copytree(self.folder / "whole", self.folder / "part", symlinks=True)
        shutil.rmtree(self.checkpoint("part", 8))
        (self.folder / "part/summary.json").unlink()
        (self.folder / "part/checkpoints/last").unlink()
        (self.folder / "part/checkpoints/last").symlink_to("step-00000004")
        self.brim("train", "--resume", "part")
        self.assert_same_checkpoint("whole", "part", 8)

    def test_validation_and_test_may_have_separate_texts(self):
        (self.folder / "val").mkdir()
        for name, words in (("1.txt", TEXT[:700]), ("2.txt", TEXT[:300]), ("3.md", TEXT)):
            (self.folder / "val" / name).write_text(words, encoding="utf-8")
        (self.folder / "b.txt").write_text(TEXT[:500], encoding="utf-8")
        own = ["dataset.validation=val", "dataset.test=b.txt"]
        self.train("run", *BYTES, "training.steps=3", *own)
        for split, count in (("validation", 999 // 16), ("test", 499 // 16)):
            result = self.brim("eval", "run", "--split", split, "--json").json
            self.assertEqual(result["samples"], count)
        self.assertIsNotNone(self.summary("run").get("validation_loss"))
        result = self.train("both", *BYTES, *own, "dataset.validation_fraction=0.1", status=USAGE)
        self.assert_error(result, "'dataset.validation_fraction' is 0.1, but dataset 'text' has its own validation")

    def test_errors_are_reported(self):
        cases = [(["dataset.path=nowhere.txt"], LOAD, "cannot find the text 'nowhere.txt'"),
                 (["dataset.files=*.md", "dataset.path=."], LOAD, "no file '*.md' in '.'"),
                 (["dataset.context=4000"], LOAD, "are too few: a sample needs 4001 consecutive tokens"),
                 (["dataset.context=17"], USAGE, "samples have 17 tokens, but only 16 positions have an embedding"),
                 (["model.heads=3"], USAGE, "model.heads must divide model.width 16"),
                 (["dataset.test_fraction=0.001"], LOAD, "dataset.test_fraction is 0.001"),
                 (["dataset.tokens=gpt2"], USAGE, "needs dataset.tokenizer")]
        for words, status, text in cases:
            with self.subTest(text):
                self.assert_error(self.train("run", *BYTES, *words, status=status), text)


class Generate(Text):
    def test_wrong_options_are_reported(self):
        self.train("run", *BYTES, "training.steps=1")
        for words, text in ((["--tokens", "0"], "--tokens must be a whole number in [1,"),
                            (["--tokens", "x"], "got 'x'"), (["--temperature", "-1"], "--temperature must be a number"),
                            (["--top-p", "0"], "--top-p must be greater than 0"),
                            (["--prompt", "a", "--prompt-file", "b"], "exclude each other")):
            with self.subTest(text):
                self.assert_error(self.brim("generate", "run", *words, status=USAGE), text)
        self.assert_error(self.brim("generate", status=USAGE), "brim generate RUN --prompt TEXT")
        self.assert_error(self.brim("generate", "run", "--prompt-file", "no", status=LOAD), "cannot open 'no'")

    def test_an_interrupted_text_ends_where_it_is(self):
        self.train("run", *BYTES, "training.steps=1")
        for words in ([], ["--json"]):
            process = self.start("generate", "run", "--prompt", "the", "--tokens", "100000000", *words)
            if not words:
                self.assertEqual(process.stdout.read(8)[:3], "the")
            else:
                self.wait_until_caught(process.pid)
            process.send_signal(signal.SIGINT)
            result = self.finish(process, 130)
            self.assertEqual(result.err, "")
            self.assertTrue(result.out.endswith("\n"), result.out[-80:])
            if words:
                self.assertEqual(json.loads(result.out)["prompt_tokens"], list(b"the"))

    def wait_until_caught(self, process):
        """Waits until the process handles SIGINT."""
        while True:
            status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii")
            caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
            if int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1:
                return
            time.sleep(0.01)

    @plain
    def test_other_models_do_not_continue_texts(self):
        self.train("run", "model=mlp", "dataset=synthetic", "dataset.train_count=64", "dataset.test_count=0",
                   "training.steps=1", "memory.timing=false")
        self.assert_error(self.brim("generate", "run", status=USAGE), "cannot continue a text")


class Gpt2(Text):
    def test_tokens_are_made_once(self):
        left = self.folder / "cache/brim/tokens-0.bin.brim-part"  # a killed process left this file
        left.parent.mkdir(parents=True)
        left.write_bytes(b"")
        first = self.train("run", *GPT2, "training.steps=3")
        self.assertIn("tokenizing 'a.txt'", first.err)
        self.assertFalse(left.exists())
        kept = list((self.folder / "cache" / "brim").glob("tokens-*.bin"))
        self.assertEqual(len(kept), 1)
        again = self.train("again", *GPT2, "training.steps=3")
        self.assertNotIn("tokenizing", again.err)
        self.assert_same_checkpoint("run", "again", 3)
        kept[0].write_bytes(kept[0].read_bytes()[:-2])  # brim makes the damaged file again
        self.assertIn("tokenizing", self.train("third", *GPT2, "training.steps=3").err)
        self.assert_same_checkpoint("run", "third", 3)
        (self.folder / "a.txt").write_text(TEXT + "more", encoding="utf-8")
        self.assertIn("tokenizing", self.train("other", *GPT2, "training.steps=3").err)
        before = (self.folder / "a.txt").stat()
        (self.folder / "a.txt").write_text(TEXT + "less", encoding="utf-8")
        os.utime(self.folder / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertIn("tokenizing", self.train("alike", *GPT2, "training.steps=3").err, "of the same size and time")

    @unittest.skipIf(SANITIZED, "sanitizers keep memory")
    @plain
    def test_kept_tokens_are_in_memory_once(self):
        """Two splits are parts of the same 22 MiB of tokens, which count once."""
        (self.folder / "a.txt").write_text(TEXT * 8000, encoding="utf-8")
        words = [*GPT2, "dataset.stride=100000", "training.steps=1", "dataset.cache=kept"]
        self.train("first", *words)
        self.train("second", *words)
        summary = self.summary("second")
        predicted, taken = summary["predicted_rss_bytes"], summary["rss_peak_bytes"]
        self.assertLess(abs(predicted - taken), max(0.05 * taken, 8 << 20), (predicted, taken))

    @plain
    def test_it_works_without_a_cache(self):
        (self.folder / "file").write_text("")
        result = self.train("run", *GPT2, "training.steps=2", "dataset.cache=file/in/a/file")
        self.assertIn("cannot cache the tokens", result.err)

    @plain
    def test_the_kept_tokens_are_files_of_tokens(self):
        self.train("text", *GPT2, "training.steps=3", "dataset.cache=kept", "dataset.test_fraction=0")
        name = next((self.folder / "kept").glob("tokens-*.bin")).name
        vocabulary = len(json.loads((BPE / "vocab.json").read_text()))
        self.train("tokens", "dataset=tokens", "dataset.path=kept", f"dataset.train={name}", *MODEL, "training.steps=3",
                   f"dataset.vocabulary={vocabulary}")
        self.assert_same_checkpoint("text", "tokens", 3, files=["model.safetensors"])

    @plain
    def test_generation_continues_until_the_text_ends(self):
        self.train("run", *GPT2, "training.epochs=30")
        result = self.generate("run", "--prompt", "the memory of", "--tokens", "6", "--temperature", "0")
        self.assertTrue(TEXT.startswith("the memory of" + result["samples"][0]["text"]), result)
        self.generate("run", "--tokens", "3")  # generation begins a text as after the end of another one

    def test_errors_are_reported(self):
        (self.folder / "latin1.txt").write_bytes("Größe ".encode("latin-1") * 200)
        cases = [(["dataset.path=latin1.txt"], "'latin1.txt' is not UTF-8 at byte 2"),
                 (["dataset.tokenizer=."], "no vocabulary in '.'"),
                 (["dataset.tokenizer=nowhere"], "https://huggingface.co/")]
        for words, text in cases:
            with self.subTest(text):
                self.assert_error(self.train("run", *GPT2, *words, status=LOAD), text)


class HuggingFace(Text):
    """The tests use tokenizers whose ids tests/text/test_tokenizer.c pins."""

    def words(self, name, *words):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        shutil.copy(KINDS / f"{name}.json", folder / "tokenizer.json")
        return [*BYTES, "dataset.tokens=hf", f"dataset.tokenizer={name}", *words]

    @plain
    def test_text_is_learnt_evaluated_and_continued(self):
        for name in some_of(("llama2", "llama3", "unigram"), 3):
            with self.subTest(name):
                self.train(f"run_{name}", *self.words(name, "training.epochs=40"))
                self.assertIn("perplexity", self.brim("eval", f"run_{name}").out)
                result = self.generate(f"run_{name}", "--prompt", "the memory of", "--tokens", "6", "--temperature",
                                       "0")
                self.assertTrue(TEXT.startswith("the memory of" + result["samples"][0]["text"]), result)

    def test_a_prompt_begins_with_the_token_that_begins_a_text(self):
        self.train("run", *self.words("llama2", "training.steps=2"))
        result = self.generate("run", "--prompt", "x", "--tokens", "1")
        self.assertEqual(result["prompt_tokens"][0], 1)
        self.assertGreater(len(result["prompt_tokens"]), 1) # more tokens than the prompt's one byte

    def test_more_tokens_than_bytes_are_kept(self):
        (self.folder / "a.txt").write_text("\ufdfa" * 200)
        words = self.words("words", "dataset.test_fraction=0", "training.steps=1")
        cases = [["none", "Lowercase"], ["more", "NFKD"]]
        for name, kind in cases:
            tree = json.loads((self.folder / "words/tokenizer.json").read_text())
            tree["normalizer"] = {"type": kind}
            tree["model"]["fuse_unk"] = False
            (self.folder / "words/tokenizer.json").write_text(json.dumps(tree))
            self.train(name, *words, f"dataset.cache={name}")
        sizes = [next((self.folder / name).glob("tokens-*.bin")).stat().st_size for name, _ in cases]
        self.assertGreater(sizes[1], sizes[0] + 200)

    @plain
    def test_files_that_have_the_end_of_text_are_no_clients(self):
        (self.folder / "many").mkdir()
        for i in range(3):
            (self.folder / f"many/{i}.txt").write_text(TEXT + ("</s> and more" if i == 1 else ""))
        words = ["dataset.path=many", "dataset.client=file", "partition=natural", "total_clients=3",
                 "clients_per_round=1", "rounds=1"]
        result = self.brim("federate", "run.dir=run", *self.words("unigram"), *words, status=LOAD)
        self.assert_error(result, "into 3 files at the end-of-text tokens, but there are 3 of these")

    @plain
    def test_other_tokenizers_are_not_gpt2s(self):
        result = self.train("run", *self.words("llama3"), "dataset.tokens=gpt2", status=USAGE)
        self.assert_error(result, "is not GPT-2's byte-pair encoding", "dataset.tokens=hf")
        result = self.train("run", *BYTES, "dataset.tokens=hf", status=USAGE)
        self.assert_error(result, "dataset.tokens=hf needs dataset.tokenizer")


class Tokens(Text):
    WORDS = ["dataset=tokens", "dataset.path=data", "dataset.vocabulary=50", *MODEL]

    def setUp(self):
        super().setUp()
        (self.folder / "data").mkdir()
        self.put("x_train_000001.bin", 400)
        self.put("x_train_000000.bin", 300)

    def put(self, name, count, header=True, first=0):
        (self.folder / "data" / name).write_bytes(token_file([(first + 7 * i) % 50 for i in range(count)], header))

    def test_shards_are_learnt_and_resumed_from_tokens(self):
        self.put("x_val_000000.bin", 200)
        self.train("run", *self.WORDS, "training.epochs=25")
        self.assertLess(self.summary("run")["validation_loss"], 0.5)
        result = self.brim("generate", "run", "--prompt", "0 7 14 21 28", "--tokens", "5", "--temperature", "0")
        self.assertEqual(result.out, "0 7 14 21 28 35 42 49 6 13\n")
        self.assertEqual(self.generate("run", "--prompt", "43,0", "--tokens", "1")["prompt_tokens"], [43, 0])
        for prompt, text in (("a b", "'a b' is not one"), ("50", "token 1 is 50; tokens are 0 to 49")):
            result = self.brim("generate", "run", "--prompt", prompt, status=USAGE)
            self.assert_error(result, text)
            self.assertEqual(result.out, "")  # no output for a refused request
        self.assert_error(self.brim("generate", "run", status=USAGE), "give the first ones as --prompt")

    def test_raw_files_are_read_too(self):
        for name in ("x_train_000000.bin", "x_train_000001.bin"):
            path = self.folder / "data" / name
            path.with_name("raw_" + name).write_bytes(path.read_bytes()[1024:])
        self.train("header", *self.WORDS, "training.steps=3", "dataset.train=x_train*")
        self.train("raw", *self.WORDS, "training.steps=3", "dataset.train=raw_*")
        self.assert_same_checkpoint("header", "raw", 3, files=["model.safetensors"])

    @plain
    def test_files_may_be_larger_than_the_memory(self):
        """brim maps files, so the system can reclaim their pages."""
        larger = 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.put("x_train_000000.bin", 300, header=False)
        for name, words in (("data/x_train_000000.bin", self.WORDS), ("a.txt", BYTES)):
            with self.subTest(name):
                os.truncate(self.folder / name, larger)
                plan = self.brim("plan", "--json", *words, f"dataset.stride={1 << 20}", "--no-timing")
                self.assertGreater(json.loads(plan.out)["host"]["data_bytes"], larger // 2)

    def test_a_file_that_becomes_shorter_is_named(self):
        for name, words in (("data/x_train_000000.bin", self.WORDS), ("a.txt", BYTES)):
            with self.subTest(name):
                process = self.start("train", "run.dir=run", *words, "training.steps=1000000",
                                     "training.checkpoint_every_steps=20", "training.eval_every_steps=1000000")
                while not (self.folder / "run/checkpoints/last").exists() and process.poll() is None:
                    time.sleep(0.01)
                os.truncate(self.folder / name, 0)
                result = self.finish(process, FAILED)
                self.assertIn(f"{name}' was truncated while it was in use: it has 0 bytes now, and byte ", result.err)
                self.assertIn("brim train --resume run", result.err)
                shutil.rmtree(self.folder / "run")

    def test_errors_are_reported(self):
        self.put("high.bin", 100, first=1)
        (self.folder / "data/high.bin").write_bytes(token_file([*range(40), 60, *range(40)]))
        (self.folder / "data/cut.bin").write_bytes(token_file(list(range(40)))[:-1])
        cases = [(["dataset.path=nowhere"], "cannot read the dataset's folder 'nowhere'"),
                 (["dataset.train=none*.bin"], "no file 'none*.bin' in 'data'"),
                 (["dataset.validation=none.bin"], "no file 'none.bin' in 'data'"),
                 (["dataset.train=high.bin"], "token 40 is 60, but the vocabulary has 50 tokens"),
                 (["dataset.train=cut.bin"], "is shorter than its header says"),
                 (["dataset.format=uint32"], "states uint16, but dataset.format is uint32")]
        for words, text in cases:
            with self.subTest(text):
                self.assert_error(self.train("run", *self.WORDS, *words, status=LOAD), text)


if __name__ == "__main__":
    main()
