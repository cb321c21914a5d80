"""memory.recompute: less memory for more work, and the same numbers to the bit."""

import json

from support import NO_FIT, Case, main

COMMON = ["dataset=synthetic", "dataset.train_count=256", "dataset.test_count=32", "training.batch_size=32",
          "training.eval_batch_size=8", "backend=cpu", "backend.threads=1"]
MODELS = {
    "cnn": ["model=cnn", "model.width=4", "dataset.shape=[1,12,12]"],
    "lightcnn": ["model=lightcnn", "model.width=4", "dataset.shape=[3,16,16]"],
    "mental_state": ["model=mental_state", "model.width=8", "model.hidden=8", "dataset.shape=[1,4,32]"],
    "emotion_cnn": ["model=emotion_cnn", "dataset.shape=[1,28,28]", "dataset.classes=7"],
}
STEPS = 20


class Recompute(Case):
    def plan(self, *words):
        return json.loads(self.brim("plan", "--json", *COMMON, *words).out)

    def least(self, words):
        """Of all the plans that auto makes, the one of the least memory: no plan fits into a MiB less its parameters."""
        return self.plan(*words, "memory.recompute=auto", "memory.recompute_budget_mb=1")

    def test_every_kind_trains_to_the_same_bits(self):
        for name, words in MODELS.items():
            again = 0
            for kind in ("none", "blocks", "full", "auto"):
                with self.subTest(f"{name}, {kind}"):
                    run = f"{name}-{kind}"
                    self.train(run, *COMMON, *words, f"training.steps={STEPS}", f"memory.recompute={kind}",
                               "memory.recompute_budget_mb=1")
                    told = self.json(run, "plan.json")["recompute"]
                    self.assertEqual(told["kind"], kind)
                    again += told["operations"]
                    self.assert_same_checkpoint(f"{name}-none", run, STEPS, context=f"({name}, {kind})")
                    self.assert_same_records(f"{name}-none", run)
            self.assertGreater(again, 0, name)

    def test_auto_makes_a_run_fit_that_would_not(self):
        words = ["model=lightcnn", "model.width=16", "dataset.shape=[3,32,32]", "training.batch_size=128"]
        most, least = self.plan(*words), self.least(words)
        self.assertLess(least["peak_bytes"] + (2 << 20), most["peak_bytes"])
        limit = (most["peak_bytes"] + least["peak_bytes"]) // 2 // (1 << 20) + 1
        run = [*COMMON, *words, f"memory.limit_mb={limit}", "training.steps=2", "dataset.test_count=0"]
        self.assert_error(self.train("none", *run, status=NO_FIT), "the run needs", f"memory.limit_mb allows {limit}")
        self.train("auto", *run, "memory.recompute=auto")
        told = self.json("auto", "plan.json")
        self.assertLessEqual(told["peak_bytes"], limit << 20)
        self.assertGreater(told["recompute"]["operations"], 0)
        self.assertEqual(self.summary("auto")["planned_peak_bytes"], told["peak_bytes"])

    def test_what_does_not_fit_even_so_is_refused(self):
        words = ["model=lightcnn", "model.width=16", "dataset.shape=[3,32,32]", "training.batch_size=128"]
        limit = self.least(words)["peak_bytes"] // (1 << 20)
        result = self.train("run", *COMMON, *words, f"memory.limit_mb={limit}", "memory.recompute=auto", status=NO_FIT)
        self.assert_error(result, "the run needs", f"memory.limit_mb allows {limit}")

    def test_a_budget_is_a_limit_that_the_user_sets(self):
        words = ["model=lightcnn", "model.width=16", "dataset.shape=[3,32,32]", "training.batch_size=128"]
        most, least = self.plan(*words)["peak_bytes"], self.least(words)["peak_bytes"]
        work = peak = None
        for budget in range(most // (1 << 20) + 1, least // (1 << 20), -2):
            plan = self.plan(*words, "memory.recompute=auto", f"memory.recompute_budget_mb={budget}")
            self.assertLessEqual(plan["peak_bytes"], budget << 20)
            if peak is not None:
                self.assertLessEqual(plan["peak_bytes"], peak)
                self.assertGreaterEqual(plan["recompute"]["flops"], work)
            peak, work = plan["peak_bytes"], plan["recompute"]["flops"]

    def test_the_plan_says_what_is_made_again_and_what_it_costs(self):
        words = [*MODELS["lightcnn"], "memory.recompute=blocks"]
        told = self.plan(*words)["recompute"]
        self.assertEqual(told["kind"], "blocks")
        self.assertGreater(told["operations"], 0)
        self.assertGreater(told["flops"], 0)
        self.assertTrue(0 < told["share"] < 1)
        text = self.brim("plan", *COMMON, *words).out
        self.assertIn(f"recompute=blocks: {told['operations']} operations again, {100 * told['share']:.1f} % more work "
                      "in a step\n", text)
        self.assertNotIn("recompute", self.brim("plan", *COMMON, *MODELS["lightcnn"]).out)

    def test_the_old_name_means_blocks(self):
        old = self.plan(*MODELS["lightcnn"], "training.gradient_checkpointing=true")
        self.assertEqual(old["recompute"], self.plan(*MODELS["lightcnn"], "memory.recompute=blocks")["recompute"])
        self.assertEqual(self.plan(*MODELS["lightcnn"], "training.gradient_checkpointing=false")["recompute"],
                         {"kind": "none", "operations": 0, "flops": 0, "share": 0})


if __name__ == "__main__":
    main()
