"""Tests memory.recompute: it saves memory by more work, and changes no bit."""

import shutil
import xml.etree.ElementTree

from support import FULL, NO_FIT, SANITIZED, Case, main

COMMON = ["dataset=synthetic", "dataset.train_count=256", "dataset.test_count=32", "training.batch_size=32",
          "training.eval_batch_size=8", "backend=cpu", "backend.threads=1", "memory.timing=false"]
MODELS = {
    "cnn": ["model=cnn", "model.width=4", "dataset.shape=[1,12,12]"],
    "lightcnn": ["model=lightcnn", "model.width=4", "dataset.shape=[3,16,16]"],
    "mental_state": ["model=mental_state", "model.width=8", "model.hidden=8", "dataset.shape=[1,4,32]"],
    "emotion_cnn": ["model=emotion_cnn", "dataset.shape=[1,28,28]", "dataset.classes=7"],
    "vit": ["model=vit", "model.depth=3", "model.width=12", "model.dropout=0.1", "dataset.shape=[1,12,12]"],
    "vit without dropout": ["model=vit", "model.depth=3", "model.width=12", "model.dropout=0",
                            "dataset.shape=[1,12,12]"],
}
DEEP_VIT = ["model=vit", "model.depth=8", "model.width=32", "model.heads=4", "model.patch=4", "model.dropout=0",
            "dataset.shape=[1,28,28]", "training.batch_size=64"]
STEPS = 20 if FULL and not SANITIZED else 6


class Recompute(Case):
    plans = {}  # cached by overrides, because several tests need the same plan

    def plan(self, *words):
        if words not in self.plans:
            self.plans[words] = self.brim("plan", "--json", "--no-timing", *COMMON, *words).json
        return self.plans[words]

    def least(self, words):
        """Returns the plan of auto with the least memory, because no plan fits into the budget of 1 MiB."""
        return self.plan(*words, "memory.recompute=auto", "memory.recompute_budget_mb=1")

    def test_every_kind_trains_to_the_same_bits(self):
        for name, words in MODELS.items():
            again = 0
            for kind in ("none", "blocks", "full", "auto"):
                with self.subTest(f"{name}, {kind}"):
                    run = f"{name.replace(' ', '-')}-{kind}"
                    self.train(run, *COMMON, *words, f"training.steps={STEPS}", f"memory.recompute={kind}",
                               "memory.recompute_budget_mb=1")
                    reported = self.json(run, "plan.json")["recompute"]
                    self.assertEqual(reported["kind"], kind)
                    again += reported["operations"]
                    none = f"{name.replace(' ', '-')}-none"
                    self.assert_same_checkpoint(none, run, STEPS, context=f"({name}, {kind})")
                    self.assert_same_records(none, run)
            self.assertGreater(again, 0, name)

    def test_every_budget_down_to_the_floor_trains_to_the_same_bits_with_dropout(self):
        words = [*COMMON, *MODELS["vit"], "model.width=48", "training.batch_size=64", f"training.steps={STEPS}"]
        most, least = (p["peak_bytes"] / (1 << 20) for p in (self.plan(*words), self.least(words)))
        self.train("none", *words)
        work = []
        for name, share in (("half", 0.5), ("quarter", 0.25), ("floor", 0)):
            with self.subTest(name):
                budget = int(least + share * (most - least)) + 1
                self.train(name, *words, "memory.recompute=auto", f"memory.recompute_budget_mb={budget}")
                reported = self.json(name, "plan.json")
                self.assertLessEqual(reported["peak_bytes"], budget << 20)
                work.append(reported["recompute"]["flops"])
                self.assert_same_checkpoint("none", name, STEPS, context=f"({name})")
                self.assert_same_records("none", name)
        self.assertTrue(0 < work[0] < work[1] < work[2], work)

    def test_a_run_resumes_with_another_recompute_to_the_same_bits(self):
        words = [*COMMON, *MODELS["vit"], "training.steps=8", "training.checkpoint_every_steps=4",
                 "training.keep_checkpoints=3"]
        self.train("whole", *words)
        for was, now in (("none", "auto"), ("full", "none"), ("none", "blocks")):
            with self.subTest(f"{was}, {now}"):
                run = self.folder / f"{was}-{now}"
                self.train(run.name, *words, f"memory.recompute={was}")
                (run / "summary.json").unlink()
                shutil.rmtree(self.checkpoint(run.name, 8))
                text = (run / "config.yaml").read_text()
                for old, new in ((f"recompute: {was}\n", f"recompute: {now}\n"),
                                 ("recompute_budget_mb: 0\n", "recompute_budget_mb: 1\n")):
                    self.assertEqual(text.count(old), 1, old)
                    text = text.replace(old, new)
                (run / "config.yaml").write_text(text)
                reported = self.brim("train", "--resume", run.name).out
                self.assertIn("after step 4 of 8", reported)
                if now == "none":
                    self.assertNotIn("recompute=", reported)
                else:
                    self.assertRegex(reported, f"recompute={now}: [1-9][0-9]* operations recomputed")
                self.assert_same_checkpoint("whole", run.name, 8)

    def test_auto_makes_a_run_fit_that_would_not(self):
        words = ["model=lightcnn", "model.width=16", "dataset.shape=[3,32,32]", "training.batch_size=128"]
        most, least = self.plan(*words), self.least(words)
        self.assertLess(least["peak_bytes"] + (2 << 20), most["peak_bytes"])
        limit = (most["peak_bytes"] + least["peak_bytes"]) // 2 // (1 << 20) + 1
        run = [*COMMON, *words, f"memory.limit_mb={limit}", "training.steps=2", "dataset.test_count=0"]
        self.assert_error(self.train("none", *run, status=NO_FIT), "the run needs", f"memory.limit_mb allows {limit}")
        self.train("auto", *run, "memory.recompute=auto")
        reported = self.json("auto", "plan.json")
        self.assertLessEqual(reported["peak_bytes"], limit << 20)
        self.assertGreater(reported["recompute"]["operations"], 0)
        self.assertEqual(self.summary("auto")["planned_peak_bytes"], reported["peak_bytes"])

    def test_a_fused_norm_is_made_again_without_its_sum(self):
        """Fusing to save time costs hardly any memory: a norm fused with the sum before it needs less than 1 % more."""
        apart = [*DEEP_VIT, "graph.fuse=[bias_activation,norm_activation,dropout_add]"]
        none = self.plan(*DEEP_VIT)
        third = [f"memory.recompute_budget_mb={none['peak_bytes'] // 3 >> 20}", "memory.recompute=auto"]
        self.assertLessEqual(self.plan(*DEEP_VIT, *third)["peak_bytes"], none["peak_bytes"] // 3)
        self.assertLess(self.least(DEEP_VIT)["peak_bytes"], none["peak_bytes"] / 3.5)
        self.assertLess(self.least(DEEP_VIT)["peak_bytes"], 1.01 * self.least(apart)["peak_bytes"])
        self.assertLess(self.plan(*DEEP_VIT, *third)["recompute"]["flops"],
                        1.01 * self.plan(*apart, *third)["recompute"]["flops"])
        self.assertEqual(self.plan(*DEEP_VIT, "memory.recompute=blocks")["peak_bytes"],
                         self.plan(*apart, "memory.recompute=blocks")["peak_bytes"])

    def test_full_lies_between_blocks_and_the_least(self):
        for name, words in [*MODELS.items(), ("deep", DEEP_VIT)]:
            with self.subTest(name):
                full = self.plan(*words, "memory.recompute=full")["peak_bytes"]
                self.assertLessEqual(full, self.plan(*words, "memory.recompute=blocks")["peak_bytes"])
        self.assertLessEqual(self.least(DEEP_VIT)["peak_bytes"], full)

    def test_a_run_that_does_not_fit_is_pointed_to_recompute_where_that_helps(self):
        most, least = self.plan(*DEEP_VIT)["peak_bytes"], self.least(DEEP_VIT)["peak_bytes"]
        run = [*COMMON, *DEEP_VIT, f"memory.limit_mb={(most + least) // 2 >> 20}"]
        self.assert_error(self.train("none", *run, status=NO_FIT), "memory.recompute=auto would fit, with ",
                          " % more work in a step")
        result = self.train("less", *COMMON, *DEEP_VIT, f"memory.limit_mb={least // 2 >> 20}", status=NO_FIT)
        self.assertNotIn("memory.recompute", result.err)

    def test_a_smaller_batch_is_not_suggested_for_the_smallest(self):
        one = [*COMMON, *DEEP_VIT, "training.batch_size=1", "memory.limit_mb=1"]
        result = self.train("run", *one, status=NO_FIT)
        self.assert_error(result, "training.batch_size=1 is already the smallest possible")
        self.assertNotIn("no smaller training.batch_size", result.err)

    def test_a_run_that_does_not_fit_with_recompute_is_refused(self):
        words = ["model=lightcnn", "model.width=16", "dataset.shape=[3,32,32]", "training.batch_size=128"]
        limit = self.least(words)["peak_bytes"] // (1 << 20)
        result = self.train("run", *COMMON, *words, f"memory.limit_mb={limit}", "memory.recompute=auto", status=NO_FIT)
        self.assert_error(result, "the run needs", f"memory.limit_mb allows {limit}")

    def test_a_budget_is_a_limit_that_the_user_sets(self):
        words = ["model=lightcnn", "model.width=16", "dataset.shape=[3,32,32]", "training.batch_size=128"]
        most, least = self.plan(*words)["peak_bytes"], self.least(words)["peak_bytes"]
        work = peak = None
        for budget in range(most // (1 << 20) + 1, least // (1 << 20), -2 if FULL and not SANITIZED else -16):
            plan = self.plan(*words, "memory.recompute=auto", f"memory.recompute_budget_mb={budget}")
            self.assertLessEqual(plan["peak_bytes"], budget << 20)
            if peak is not None:
                self.assertLessEqual(plan["peak_bytes"], peak)
                self.assertGreaterEqual(plan["recompute"]["flops"], work)
            peak, work = plan["peak_bytes"], plan["recompute"]["flops"]

    def test_the_plan_shows_recomputed_operations_and_their_cost(self):
        words = [*MODELS["lightcnn"], "memory.recompute=blocks"]
        reported = self.plan(*words)["recompute"]
        self.assertEqual(reported["kind"], "blocks")
        self.assertGreater(reported["operations"], 0)
        self.assertGreater(reported["flops"], 0)
        self.assertTrue(0 < reported["share"] < 1)
        text = self.brim("plan", *COMMON, *words).out
        self.assertIn(f"recompute=blocks: {reported['operations']} operations recomputed, "
                      f"{100 * reported['share']:.1f} % more work in a step, predicted to take ", text)
        self.assertNotIn("recompute=", self.brim("plan", *COMMON, *MODELS["lightcnn"]).out)

    def test_training_starts_with_a_line_about_recompute(self):
        words = [*COMMON, *MODELS["lightcnn"], "training.steps=1", "dataset.test_count=0"]
        reported = self.train("blocks", *words, "memory.recompute=blocks").out
        count = self.json("blocks", "plan.json")["recompute"]["operations"]
        self.assertIn(f"recompute=blocks: {count} operations recomputed, ", reported)
        reported = self.train("auto", *words, "memory.recompute=auto").out
        self.assertIn("recompute=auto: nothing is recomputed", reported)
        self.assertNotIn("recompute", self.train("none", *words).out)

    def picture(self, *words):
        """Returns the titles of the rectangles, by class, and all texts of the picture that brim plan draws."""
        self.brim("plan", *COMMON, *words, "-o", "plan.svg", "--force")
        tag = "{http://www.w3.org/2000/svg}"
        root = xml.etree.ElementTree.parse(self.folder / "plan.svg").getroot()
        titles = {}
        for rect in root.iter(tag + "rect"):
            for title in rect.iter(tag + "title"):
                titles.setdefault(rect.get("class"), []).append(title.text)
        return titles, " ".join("".join(text.itertext()) for text in root.iter(tag + "text"))

    def test_the_picture_shows_recompute_the_limit_and_the_peak(self):
        words = [*MODELS["lightcnn"], "memory.recompute=blocks", "memory.limit_mb=1"]
        titles, texts = self.picture(*words)
        self.assertTrue(any("dropped after operation" in title for title in titles["ka"]))
        self.assertTrue(any("conv2d" in title for title in titles["kf"]))
        self.assertIn("limit 1.0 MiB", texts)
        self.assertIn("most memory in use: ", texts)
        self.assertIn("recompute=blocks: ", texts)
        self.assertNotIn("ka", self.picture(*MODELS["lightcnn"])[0])

    def test_a_picture_of_another_kind_is_refused(self):
        result = self.brim("plan", *COMMON, "-o", "plan.png", status=2)
        self.assert_error(result, "plan.png", "must end in .svg")

    def test_the_old_name_means_blocks(self):
        old = self.plan(*MODELS["lightcnn"], "training.gradient_checkpointing=true")
        self.assertEqual(old["recompute"], self.plan(*MODELS["lightcnn"], "memory.recompute=blocks")["recompute"])
        self.assertEqual(self.plan(*MODELS["lightcnn"], "training.gradient_checkpointing=false")["recompute"],
                         {"kind": "none", "operations": 0, "flops": 0, "share": 0})


if __name__ == "__main__":
    main()
