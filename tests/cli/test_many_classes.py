"""Tests training and evaluation with 5000 classes without whole logits or a confusion matrix; brim says which outputs
it omits."""


from support import FAILED, SMALL, Case, main, plain

MANY = [*SMALL, "dataset.classes=5000", "training.epochs=2", "observe.top_k=1000"]
LEFT_OUT = ("omitted with 5000 classes: F1, per-class figures and the confusion matrix, which need fewer than "
            "4096 classes")


class ManyClasses(Case):
    def evaluate(self, run):
        return self.brim("eval", run, "--json").json

    def test_omitted_outputs_are_announced_and_null(self):
        said = self.train("run", *MANY).out
        self.assertEqual(said.count(LEFT_OUT), 1)
        summary = self.summary("run")
        self.assertEqual(summary["left_out"], LEFT_OUT)
        self.assertIsNone(summary["test_f1"])
        self.assertNotIn("test_confusion", summary)
        self.assertNotIn("test_classes", summary)
        self.assertRegex(said, rf"test loss {summary['test_loss']:.4f}, accuracy .* %, top-1000 accuracy [\d.]+ %\n")
        details = [event["detail"] for event in self.records("run", "events.jsonl")
                   if event["event"] == "scores_left_out"]
        self.assertEqual(details, [LEFT_OUT])
        evaluated = [record for record in self.records("run") if record["split"] == "test"]
        self.assertEqual([record["f1"] for record in evaluated], [None, None])

    @plain
    def test_eval_has_the_figures_of_training_and_names_the_omitted_ones(self):
        self.train("run", *MANY)
        result, summary = self.evaluate("run"), self.summary("run")
        for key in ("loss", "accuracy", "accuracy_top1000"):
            self.assertEqual(result[key], summary[f"test_{key}"])
        self.assertTrue(0 < result["accuracy_top1000"] < 1)
        self.assertEqual((result["f1"], result["per_class"], result["confusion"]), (None, None, None))
        self.assertEqual(result["left_out"], LEFT_OUT)
        text = self.brim("eval", "run").out
        self.assertIn(f"\n\n{LEFT_OUT}\n", text)
        self.assertNotIn("macro F1", text)

    @plain
    def test_fewer_classes_have_all_figures(self):
        said = self.train("run", *MANY, "dataset.classes=30").out
        self.assertNotIn("left out", said)
        self.assertNotIn("left_out", self.summary("run"))
        self.assertEqual(len(self.evaluate("run")["per_class"]), 30)

    def test_a_matrix_of_more_than_256_classes_is_counted_and_not_written(self):
        left_out = "omitted with 257 classes: the confusion matrix, which is written for up to 256"
        said = self.train("run", *MANY, "dataset.classes=257").out
        summary, result = self.summary("run"), self.evaluate("run")
        self.assertEqual(said.count(left_out), 1)
        self.assertEqual((summary["left_out"], result["left_out"]), (left_out, left_out))
        self.assertNotIn("test_confusion", summary)
        self.assertIsNone(result["confusion"])
        self.assertEqual((len(summary["test_classes"]), len(result["per_class"])), (257, 257))
        self.assertEqual(result["f1"], summary["test_f1"])
        self.assertEqual(result["per_class"][5]["support"], summary["test_classes"][5]["support"])
        self.assertIn(f"\n\n{left_out}\n", self.brim("eval", "run").out)
        self.assertIn(left_out, self.read("run", "report.html"))

    @plain
    def test_figures_are_those_of_whole_logits(self):
        self.train("inside", *MANY)
        self.train("whole", *MANY, "graph.fuse=none")
        inside, whole = self.summary("inside"), self.summary("whole")
        for key in ("train_loss", "test_loss"):
            self.assertAlmostEqual(inside[key], whole[key], delta=1e-5 * whole[key])
        for key in ("train_accuracy", "test_accuracy", "test_accuracy_top1000"):
            self.assertAlmostEqual(inside[key], whole[key], delta=0.02) # rounding may change a prediction
        logits = 128 * 5000 * 4 # the plan has at most half of the logits at a time, or a fifth with recompute
        self.assertLess(inside["planned_peak_bytes"] + 0.45 * logits, whole["planned_peak_bytes"])
        self.train("again", *MANY, "memory.recompute=blocks")
        self.assertLess(self.summary("again")["planned_peak_bytes"] + 0.75 * logits, whole["planned_peak_bytes"])
        self.assert_same_checkpoint("again", "inside", self.steps("inside")[-1])

    def test_averages_and_smaller_numbers(self):
        for k, words in enumerate((["training.ema_decay=0.5"], ["precision=bf16"], ["precision=fp16"])):
            self.train(f"run{k}", *MANY, *words)
            self.train(f"whole{k}", *MANY, *words, "graph.fuse=none")
            inside, whole = self.summary(f"run{k}")["test_loss"], self.summary(f"whole{k}")["test_loss"]
            self.assertAlmostEqual(inside, whole, delta=1e-3 * whole, msg=str(words))
            self.assertEqual(self.evaluate(f"run{k}")["loss"], inside)

    def test_updates_in_the_backward_pass_see_the_loss_first(self):
        for update in ("step", "fused_backward"):
            self.train(update, *MANY, f"optimizer.update={update}", "observe.log_every_steps=1")
        self.assert_same_records("step", "fused_backward")
        last = self.steps("step")[-1]
        self.assert_same_checkpoint("step", "fused_backward", last, files=["model.safetensors", "state.json"])
        run = self.train("diverges", *MANY, "optimizer.update=fused_backward", "optimizer=sgd", "optimizer.lr=1e30",
                         "training.steps=4", status=FAILED)
        self.assert_error(run, "the loss of step 2 is not a number", "the step was not committed")

    @plain
    def test_memory_does_not_grow_with_the_square_of_the_classes(self):
        def transient(classes):
            words = [*MANY, f"dataset.classes={classes}", "memory.recompute=blocks"]
            plan = self.brim("plan", *words, "--json").json
            parts = plan["classes"]
            return plan["peak_bytes"] - parts["parameters"] - parts["gradients"] - parts["optimizer"]

        self.assertLess(transient(50000), transient(5000) + 2**20)


if __name__ == "__main__":
    main()
