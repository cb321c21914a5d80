"""Tests samples of several documents: tokens see their own document only, at their own positions."""

import pathlib
import random
import struct

import tensors
from support import BINARY, NO_FIT, USAGE, Case, main, plain

PLUGINS = pathlib.Path(BINARY).parent.parent / "lib" / "brim" / "plugins"
TOKENS, LENGTH = 19, 24
STEP = ["training.steps=1", "optimizer=sgd", "optimizer.lr=1", "optimizer.momentum=0", "optimizer.weight_decay=0",
        "schedule=constant", "training.clip_norm=0", "memory.timing=false"]
MODELS = {
    "gpt2": ["model=gpt2", "model.layers=2", "model.heads=2", "model.width=12", "model.dropout=0"],
    "decoder": ["model=decoder", "model.layers=2", "model.heads=4", "model.kv_heads=2", "model.width=16",
                "model.mlp_width=20"],
    "window": ["model=decoder", "model.layers=2", "model.heads=2", "model.width=12", "model.mlp_width=20",
               "model.window=4", "model.window_layers=[0,1]", "model.attention_softcap=1.5"],
}


class Documents(Case):
    def write(self, name, documents, end=0):
        """Writes the documents, each of which begins with token 0, and then `end`: the label of the last token."""
        flat = [token for document in documents for token in document] + [end]
        (self.folder / name).mkdir()
        (self.folder / name / "train.bin").write_bytes(struct.pack(f"<{len(flat)}H", *flat))

    def data(self, name, context, separator=0):
        return ["dataset=tokens", f"dataset.path={name}", f"dataset.context={context}",
                f"dataset.vocabulary={TOKENS}", f"dataset.separator={separator}"]

    def draw(self, lengths, seed=1):
        rng = random.Random(seed)
        return [[0] + [rng.randrange(1, TOKENS) for _ in range(length - 1)] for length in lengths]

    def first_step(self, run, *words):
        """Returns the loss of one step and the gradients, which SGD with a rate of 1 subtracts from the weights."""
        self.brim("train", *words, *STEP, f"run.dir={run}")
        after, _ = tensors.read(self.folder / run / "checkpoints" / "last" / "model.safetensors")
        return self.records(run)[0]["loss"], {name: values for name, (_, _, values) in after.items()}


class Packed(Documents):
    def test_a_packed_row_has_the_loss_and_the_gradients_of_its_documents(self):
        """Each document of a row also runs alone, in a sample of its own length. The means of their losses and
        gradients, weighted by tokens, are those of the row, to 1e-12 in double precision and to 1e-6 on the cpu."""
        lengths = [7, 1, 11, 5]
        documents = self.draw(lengths)
        self.write("packed", documents)
        for i, document in enumerate(documents):
            self.write(f"alone{i}", [document])
        for backend, delta in ("reference", 1e-12), ("cpu", 1e-6):
            for name, model in MODELS.items():
                with self.subTest(f"{backend} {name}"):
                    words = [*model, f"backend={backend}", "training.batch_size=1", "model.context=24"]
                    loss, weights = self.first_step(f"runs/{backend}-{name}", *words, *self.data("packed", LENGTH))
                    alone = [self.first_step(f"runs/{backend}-{name}{i}", *words, *self.data(f"alone{i}", length, -1))
                             for i, length in enumerate(lengths)]
                    mean = sum(length * one for length, (one, _) in zip(lengths, alone)) / LENGTH
                    self.assertAlmostEqual(loss, mean, delta=delta)
                    for key, values in weights.items():
                        for i, value in enumerate(values):
                            want = sum(length * one[key][i] for length, (_, one) in zip(lengths, alone)) / LENGTH
                            self.assertAlmostEqual(value, want, delta=delta, msg=key)

    @plain
    def test_documents_matter(self):
        self.write("packed", self.draw([7, 1, 11, 5]))
        words = [*MODELS["decoder"], "backend=reference", "training.batch_size=1"]
        apart, _ = self.first_step("apart", *words, *self.data("packed", LENGTH))
        together, _ = self.first_step("together", *words, *self.data("packed", LENGTH, -1))
        self.assertGreater(abs(apart - together), 1e-4)


class Steps(Documents):
    def words(self):
        rng = random.Random(2)
        self.write("many", self.draw([rng.randrange(1, 40) for _ in range(60)]))
        return ["train", *self.data("many", LENGTH), *MODELS["window"], "backend=cpu", "memory.timing=false",
                "training.steps=4", "training.checkpoint_every_steps=2", "dataset.validation_fraction=0.2",
                "training.effective_batch_size=8"]

    @plain
    def test_micro_batches_and_threads_do_not_change_a_bit(self):
        words = self.words()
        files = ["model.safetensors", "optimizer.safetensors"]
        self.brim(*words, "training.batch_size=8", "backend.threads=1", "run.dir=whole")
        for batch in 1, 2, 4:
            self.brim(*words, f"training.batch_size={batch}", f"backend.threads={batch}", f"run.dir=by{batch}")
            self.assert_same_checkpoint("whole", f"by{batch}", 4, files)
        self.brim(*words, "training.batch_size=2", "memory.recompute=full", "run.dir=again")
        self.assert_same_checkpoint("whole", "again", 4, files)

    def test_a_run_is_resumed_with_the_same_bits(self):
        words = [*self.words(), "training.batch_size=4"]
        self.brim(*words, "run.dir=whole")
        self.brim(*words, "run.dir=half", status=NO_FIT, env={"BRIM_FAULT": "step:3:begin:1+"})
        self.brim("train", "--resume", "half")
        self.assert_same_checkpoint("whole", "half", 4, ["model.safetensors", "optimizer.safetensors"])
        self.assertIn("validation", {record["split"] for record in self.records("whole")})

    def test_bf16_runs(self):
        self.brim(*self.words(), "precision=bf16", "training.batch_size=4", "run.dir=small")
        self.assertLess(self.records("small")[-1]["loss"], 4)

    def test_a_text_is_continued(self):
        self.brim(*self.words(), "training.batch_size=4", "run.dir=run")
        tokens = self.brim("generate", "run", "--tokens", "5", "--prompt", "0 3 4").out.split()
        self.assertTrue(all(0 <= int(token) < TOKENS for token in tokens), tokens)


class Checks(Documents):
    def test_brim_check_reads_tokens_and_places(self):
        self.write("many", self.draw([7, 11, 30, 60]))
        out = self.brim("check", PLUGINS / "dataset" / "tokens.so", *self.data("many", LENGTH)[1:]).out
        self.assertIn("4 threads read the same as one", out)
        self.assertNotIn("FAILED", out)

    @plain
    def test_the_plan_counts_the_places(self):
        self.write("many", self.draw([7, 11, 30, 60]))
        words = ["plan", *MODELS["decoder"], "backend=cpu", "training.batch_size=2", "--no-timing", "--json"]
        apart, together = (self.brim(*words, *self.data("many", LENGTH, separator)).json
                           for separator in (0, -1))
        places = 2 * LENGTH * 4
        self.assertGreaterEqual(apart["peak_bytes"], together["peak_bytes"] + places, apart)


class Refusals(Documents):
    def test_a_separator_outside_the_vocabulary(self):
        self.write("many", self.draw([7, 11, 30]))
        result = self.brim("plan", *self.data("many", LENGTH, TOKENS), *MODELS["decoder"], status=USAGE)
        self.assertIn(f"dataset.separator is {TOKENS}, but tokens are 0 to {TOKENS - 1}", result.err)

    @plain
    def test_bytes_have_no_end_of_text(self):
        (self.folder / "a.txt").write_text("a text " * 40)
        result = self.brim("plan", "dataset=text", "dataset.path=a.txt", "dataset.documents=true", *MODELS["decoder"],
                           status=USAGE)
        self.assertIn("dataset.documents needs a token that ends a text, which bytes lack", result.err)


if __name__ == "__main__":
    main()
