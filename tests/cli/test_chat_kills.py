"""A run on conversations that is killed at moments drawn from a seed, and resumed until it is done, ends with the bytes
of an undisturbed run: adapters, optimizer, state and records."""

import json
import os
import random

import language_models
from support import FULL, Case, killed, main

KILLS = 40 if FULL else 8
SEED, STEPS = 29, 24
DATA = ["dataset=chat", "dataset.path=a.jsonl", "dataset.context=64", "dataset.validation_fraction=0.1"]
TRAIN = ["model=hf_lora", "model.weights=model", "model.lora_dropout=0.1", "memory.timing=false", "optimizer.lr=1e-2",
         f"training.steps={STEPS}", "training.effective_batch_size=8", "training.checkpoint_every_steps=3",
         "training.eval_every_steps=6"]
WORDS = "the memory of a step is known before it begins and no sample sees another one".split()


class Kills(Case):
    def setUp(self):
        super().setUp()
        self.draw = random.Random(SEED)
        language_models.write(self.folder / "model")
        (self.folder / "a.jsonl").write_text("".join(self.row() for _ in range(240)))

    def row(self):
        return json.dumps({"messages": [{"role": "user", "content": self.text(6)},
                                        {"role": "assistant", "content": self.text(9)}]}) + "\n"

    def text(self, most):
        return " ".join(self.draw.choice(WORDS) for _ in range(self.draw.randint(1, most)))

    def names(self, *folders):
        """Returns the names in the folders of records, checkpoints and kept tokens, with the sizes of the files."""
        found = []
        for folder in folders:
            for path, _, files in os.walk(self.folder / folder):
                for name in files:
                    try:
                        found.append((path, name, os.lstat(os.path.join(path, name)).st_size))
                    except FileNotFoundError:  # the file was renamed meanwhile
                        found.append((path, name, None))
        return found

    def moment(self, run):
        """Returns a condition that becomes true after a drawn number of changes of the run's files and of the kept
        tokens."""
        folders = run, "cache"
        seen, changes = [self.names(*folders)], self.draw.randint(1, 60)

        def changed():
            names = self.names(*folders)
            if names != seen[-1]:
                seen.append(names)
            return len(seen) > changes
        return changed

    def words(self, run, *words):
        begun = (self.folder / run / "config.yaml").exists()
        return ["train", *(["--resume", run] if begun else [f"run.dir={run}", *TRAIN, *DATA, *words])]

    def kill(self, run, *words):
        """Starts or resumes the run and kills it at a drawn moment. Returns False if it ended before."""
        moment = self.moment(run)
        process = self.start(*self.words(run, *words))
        while process.poll() is None and not moment():
            pass
        process.kill()
        result = self.finish(process)
        if not killed(result):
            self.assertEqual(result.status, 0, result)
        return killed(result)

    def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(self):
        self.brim(*self.words("whole"), "training.batch_size=8")
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
