"""A run on conversations that is killed at changes of its files drawn from a seed, and resumed until it is done, ends
with the bytes of an undisturbed run: adapters, optimizer, state and records."""

import json
import random
import unittest

import language_models
from support import FAULT_SHIM, FULL, SANITIZED, Case, killed, main

KILLS = 40 if FULL else 8
SEED, STEPS = 29, 24
DATA = ["dataset=chat", "dataset.path=a.jsonl", "dataset.context=64", "dataset.validation_fraction=0.1"]
TRAIN = ["model=hf_lora", "model.weights=model", "model.lora_dropout=0.1", "memory.timing=false", "optimizer.lr=1e-2",
         f"training.steps={STEPS}", "training.effective_batch_size=8", "training.checkpoint_every_steps=3",
         "training.eval_every_steps=6"]
WORDS = "the memory of a step is known before it begins and no sample sees another one".split()


@unittest.skipIf(SANITIZED or not FAULT_SHIM, "the shim and a sanitizer cannot both be preloaded")
class Kills(Case):
    def setUp(self):
        super().setUp()
        self.draw = random.Random(SEED)
        self.shim = {"LD_PRELOAD": FAULT_SHIM, "BRIM_FILES_FOLDER": str(self.folder)}
        language_models.write(self.folder / "model")
        (self.folder / "a.jsonl").write_text("".join(self.row() for _ in range(240)))

    def row(self):
        return json.dumps({"messages": [{"role": "user", "content": self.text(6)},
                                        {"role": "assistant", "content": self.text(9)}]}) + "\n"

    def text(self, most):
        return " ".join(self.draw.choice(WORDS) for _ in range(self.draw.randint(1, most)))

    def words(self, run, *words):
        begun = (self.folder / run / "config.yaml").exists()
        return ["train", *(["--resume", run] if begun else [f"run.dir={run}", *TRAIN, *DATA, *words])]

    def kill(self, run, *words):
        """Starts or resumes the run, and kills it at a drawn change of its files or of the kept tokens. Returns False
        if the run ended before."""
        at = self.draw.randint(1, self.changes // 2)
        result = self.brim(*self.words(run, *words), status=None, env={**self.shim, "BRIM_FILES_KILL_AT": str(at)})
        if not killed(result):
            self.assertEqual(result.status, 0, result)
        return killed(result)

    def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(self):
        report = self.folder.with_suffix(".changes")
        self.addCleanup(report.unlink)
        self.brim(*self.words("whole"), "training.batch_size=8", env={**self.shim, "BRIM_FILES_REPORT": str(report)})
        self.changes = int(report.read_text())
        for path in (self.folder / "cache").rglob("chat-*"):
            path.unlink()
        kills, runs = 0, 0
        while kills < KILLS:
            run = f"cut{runs}"
            words = [f"training.batch_size={self.draw.choice([1, 2, 4, 8])}",
                     f"backend.threads={self.draw.randint(1, 2)}",
                     f"memory.recompute={self.draw.choice(['none', 'full'])}"]
            while kills < KILLS and self.kill(run, *words):
                kills += 1
            if not (self.folder / run / "summary.json").exists():
                self.brim(*self.words(run, *words))
            with self.subTest(run=run, kills=kills, words=words):
                self.assertEqual(self.steps(run)[-1], STEPS)
                self.assert_same_checkpoint("whole", run, STEPS,
                                            ["model.safetensors", "optimizer.safetensors", "state.json"])
                self.assert_same_records("whole", run)
            runs += 1


if __name__ == "__main__":
    main()
