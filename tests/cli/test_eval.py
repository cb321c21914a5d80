"""Tests brim eval, which evaluates a run's checkpoint with the memory of an evaluation, and leaves the run
unchanged."""


from support import LOAD, NO_FIT, SMALL, SMALL_CNN, USAGE, Case, main, plain


class Eval(Case):
    def run_small(self, *overrides, run="run"):
        self.train(run, *SMALL, "training.epochs=3", *overrides)

    def evaluate(self, *words):
        return self.brim("eval", *words, "--json").json

    @plain
    def test_figures_are_those_that_training_found(self):
        self.run_small()
        result, summary = self.evaluate("run"), self.summary("run")
        self.assertEqual(result["split"], "test")
        self.assertEqual(result["samples"], 64)
        self.assertEqual(result["loss"], summary["test_loss"])
        self.assertEqual(result["accuracy"], summary["test_accuracy"])
        self.assertEqual(result["confusion"], summary["test_confusion"])

    def test_figures_of_classes_follow_from_the_confusion_matrix(self):
        self.run_small("dataset.noise=6")
        result = self.evaluate("run")
        confusion = result["confusion"]
        self.assertEqual(sum(map(sum, confusion)), 64)
        self.assertGreater(sum(confusion[i][k] for i in range(10) for k in range(10) if i != k), 0, "nothing is wrong")
        for row in result["per_class"]:
            k = row["class"]
            right, labelled = confusion[k][k], sum(confusion[k])
            taken = sum(line[k] for line in confusion)
            self.assertEqual(row["support"], labelled)
            self.assertAlmostEqual(row["recall"], right / labelled)
            self.assertAlmostEqual(row["precision"], right / taken if taken else 0)
            self.assertAlmostEqual(row["f1"], 2 * right / (labelled + taken))
        self.assertAlmostEqual(result["f1"], sum(row["f1"] for row in result["per_class"]) / 10)

    @plain
    def test_text_has_loss_accuracy_classes_and_confusion(self):
        self.run_small()
        text, summary = self.brim("eval", "run").out, self.summary("run")
        self.assertIn(f"test loss {summary['test_loss']:.4f}, accuracy {100 * summary['test_accuracy']:.2f} %, ", text)
        self.assertIn(f"macro F1 {summary['test_f1']:.4f} (64 samples)", text)
        self.assertRegex(text, r"(?m)^class  precision  recall +f1  support$")
        self.assertRegex(text, r"(?m)^label  0 ")

    def test_accuracy_among_the_top_answers(self):
        self.run_small("observe.top_k=3")
        result = self.evaluate("run")
        self.assertEqual(result["accuracy_top3"], self.summary("run")["test_accuracy_top3"])
        self.assertGreaterEqual(result["accuracy_top3"], result["accuracy"])
        self.assertIn("top-3 accuracy", self.brim("eval", "run").out)

    @plain
    def test_losses_are_weighted_and_smoothed_as_in_training(self):
        self.run_small("loss.label_smoothing=0.1", "loss.class_weights=[1,2,3,4,5,6,7,8,9,10]")
        result, summary = self.evaluate("run"), self.summary("run")
        self.assertEqual((result["loss"], result["f1"]), (summary["test_loss"], summary["test_f1"]))

    def test_averaged_weights_are_evaluated(self):
        self.run_small("training.ema_decay=0.9")
        self.assertEqual(self.evaluate("run")["loss"], self.summary("run")["test_loss"])

    @plain
    def test_the_best_checkpoint_is_taken_if_there_is_one(self):
        self.run_small("dataset.validation_fraction=0.25", "training.keep_checkpoints=9", "optimizer.lr=0.5")
        best = (self.folder / "run/checkpoints/best").resolve()
        last = (self.folder / "run/checkpoints/last").resolve()
        self.assertEqual(self.evaluate("run")["checkpoint"], str(best))
        self.assertEqual(self.evaluate("run", "--checkpoint", "last")["checkpoint"], str(last))

    @plain
    def test_checkpoints_are_named_by_step_and_by_path(self):
        self.run_small("training.keep_checkpoints=9")
        first = self.evaluate("run", "--checkpoint", "step-00000002")
        self.assertEqual(first["step"], 2)
        self.assertEqual(self.evaluate("run", "--checkpoint=run/checkpoints/step-00000002"), first)
        self.assertNotEqual(self.evaluate("run")["loss"], first["loss"])

    def test_validation_data_can_be_requested(self):
        self.run_small("dataset.validation_fraction=0.25")
        result = self.evaluate("run", "--split", "validation", "--checkpoint", "last")
        self.assertEqual(result["samples"], 64)
        self.assertEqual(result["loss"], self.summary("run")["validation_loss"])

    @plain
    def test_without_a_test_split_validation_data_is_taken(self):
        self.run_small("dataset.validation_fraction=0.25", "dataset.test_count=0")
        self.assertEqual(self.evaluate("run")["split"], "validation")
        self.assert_error(self.brim("eval", "run", "--split", "test", status=USAGE), "no test split")

    @plain
    def test_the_run_is_unchanged(self):
        self.run_small()
        before = self.tree("run")
        self.evaluate("run")
        self.assertEqual(self.tree("run"), before)

    @plain
    def test_only_the_memory_of_evaluation_is_used(self):
        self.run_small("model.hidden=[512,512]")
        planned = self.summary("run")["planned_peak_bytes"]
        self.assertLess(self.evaluate("run")["device_peak_bytes"], planned / 2)

    @plain
    def test_overrides_change_the_evaluation(self):
        self.run_small()
        self.assertEqual(self.evaluate("run", "dataset.test_count=32")["samples"], 32)
        other = self.evaluate("run", "backend=reference", "training.eval_batch_size=10")
        self.assertAlmostEqual(other["loss"], self.summary("run")["test_loss"], places=5)

    @plain
    def test_figures_do_not_depend_on_the_batch(self):
        self.train("run", *SMALL_CNN, "training.epochs=1", "dataset.test_count=50")
        whole = self.evaluate("run", "training.eval_batch_size=50")
        cut = self.evaluate("run", "training.eval_batch_size=16")
        self.assertEqual(whole["confusion"], cut["confusion"])
        self.assertAlmostEqual(whole["loss"], cut["loss"], places=6)

    def test_a_budget_is_kept_and_a_fitting_one_suggested(self):
        self.train("run", *SMALL_CNN, "training.epochs=1", "model.width=64")
        result = self.brim("eval", "run", "memory.limit_mb=4", status=NO_FIT)
        self.assert_error(result, "the evaluation needs", "memory.limit_mb allows 4.0 MiB")
        fitting = [word for word in result.err.split() if word.startswith("training.eval_batch_size=")]
        self.assertEqual(len(fitting), 1, result)
        self.brim("eval", "run", "memory.limit_mb=4", *fitting)


class Mistakes(Case):
    @plain
    def test_without_a_run(self):
        self.assert_error(self.brim("eval", status=USAGE), "brim eval RUN")

    @plain
    def test_a_folder_that_is_no_run(self):
        self.assert_error(self.brim("eval", "nowhere", status=LOAD), "there is no run 'nowhere'")

    def test_missing_checkpoints(self):
        self.train("run", *SMALL, "training.epochs=1")
        self.assert_error(self.brim("eval", "run", "--checkpoint", "step-9", status=LOAD), "no checkpoint 'step-9'",
                          "looked for 'run/checkpoints/step-9' and 'step-9'")
        self.assert_error(self.brim("eval", "run", "--checkpoint", "best", status=LOAD), "validation_fraction")
        for path in sorted((self.folder / "run/checkpoints").iterdir()):
            path.rename(self.folder / path.name)
        self.assert_error(self.brim("eval", "run", status=LOAD), "'run' has no checkpoint yet")

    @plain
    def test_another_model_is_refused(self):
        self.train("run", *SMALL, "training.epochs=1")
        self.assert_error(self.brim("eval", "run", "model.hidden=[17]", status=LOAD), "another model",
                          "the model needs F32 [17, 64]")

    def test_a_damaged_checkpoint_is_refused(self):
        self.train("run", *SMALL, "training.epochs=1")
        path = self.folder / "run/checkpoints/last/model.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        self.assert_error(self.brim("eval", "run", status=LOAD), "model.safetensors")

    @plain
    def test_validation_data_that_was_not_kept(self):
        self.train("run", *SMALL, "training.epochs=1")
        self.assert_error(self.brim("eval", "run", "--split", "validation", status=USAGE),
                          "dataset.validation_fraction is 0")
        self.assert_error(self.brim("eval", "run", "--split", "train", status=USAGE), "--split must be test or valid")

    @plain
    def test_a_wrong_override_names_its_word(self):
        self.train("run", *SMALL, "training.epochs=1")
        self.assert_error(self.brim("eval", "run", "training.batch_sise=1", status=USAGE), "argument 2")


if __name__ == "__main__":
    main()
