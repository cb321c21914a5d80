"""Tests how often `brim plan` plans, builds graphs and searches for a recompute. These counts decide its time on any
machine."""

import json
import re

from support import NO_FIT, Case, main

LLAMA = {"model_type": "llama", "vocab_size": 500, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 6,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 3000,
         "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False}


class PlanCounts(Case):
    def counts(self, *words, status=None):
        """Returns the counts of a plan with one micro-batch, so that brim compares few plans."""
        result = self.brim("--verbose", "plan", "--no-timing", "--json", "training.effective_batch_size=1",
                           "training.batch_size=1", "memory.limit_mb=100000", *words, status=status)
        self.cards = json.loads(result.out).get("cards")
        counts = re.search(r"planning took (\d+) plans, (\d+) graphs, (\d+) placements, (\d+) searches", result.err)
        return [int(count) for count in counts.groups()]

    def test_no_plan_is_made_twice(self):
        """brim plans the choice; micro-batches 2 and 4; and recompute=blocks, full, and auto within three budgets."""
        plans, _, _, searches = self.counts("model=mlp", "backend=cpu")
        self.assertLessEqual(plans, 8)
        self.assertLessEqual(searches, 1)

    def test_a_chosen_level_is_planned_once(self):
        """brim makes the same plans as above, and one with recompute=none. It searches once for each micro-batch,
        and once for the plan that fits with backend=reference."""
        plans, _, _, searches = self.counts("model=cnn", "backend=cpu", "memory.recompute=auto",
                                            "memory.recompute_budget_mb=1")
        self.assertLessEqual(plans, 10)
        self.assertLessEqual(searches, 4)

    def test_what_fits_on_a_card_takes_few_plans(self):
        """Nothing fits on cards that are smaller than the parameters, and brim needs no plan to find that."""
        (self.folder / "model").mkdir()
        words = ["model=hf_lora", "model.weights=model", "dataset=text", "dataset.path=text.txt", "precision=bf16",
                 "dataset.test_fraction=0", "dataset.context=100", "backend=cpu"]
        (self.folder / "text.txt").write_text("In the beginning was the Word. " * 2000)
        large = {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 90, "vocab_size": 50000,
                 "head_dim": 128, "num_attention_heads": 64, "num_key_value_heads": 8}
        (self.folder / "model" / "config.json").write_text(json.dumps(large))
        plans, _, _, searches = self.counts(*words, status=NO_FIT)
        self.assertLessEqual(plans, 10)  # includes recompute=auto, which the error suggests if it fits
        self.assertLessEqual(searches, 1)
        (self.folder / "model" / "config.json").write_text(json.dumps(LLAMA))
        self.assertLessEqual(self.counts(*words)[0], 60)
        self.assertLess(self.cards["samples"], 1000)  # the largest micro-batch has all of them
        self.assertEqual(self.cards["rows"][-1]["largest"]["batch_size"], self.cards["samples"])


if __name__ == "__main__":
    main()
