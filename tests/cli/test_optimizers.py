"""Tests memory-saving optimizers, and updates in the backward pass: their memory, and the same numbers."""

import array
import json
import os
import pathlib
import shutil
import struct

from support import FAILED, LOAD, NO_FIT, USAGE, Case, main

# fc1.weight has 64 * 144 values: enough for 8-bit states. The last step of an epoch has 90 samples of 128.
COMMON = ["dataset=synthetic", "dataset.train_count=218", "dataset.test_count=32", "training.batch_size=128",
          "backend=cpu", "backend.threads=1", "memory.timing=false"]
CNN = ["model=cnn", "model.width=16", "dataset.shape=[1,10,10]"]
NORMS = ["model=lightcnn", "model.width=4", "dataset.shape=[3,16,16]"]  # batch norm
BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"]) / "optimizer"
OPTIMIZERS = ["adamw", "adam", "yogi", "adagrad", "sgd", "lion", "adafactor", "adamw8bit"]
FUSED = "optimizer.update=fused_backward"
STEPS = 6


def rounded(count):
    """Returns the bytes of a tensor in the plan."""
    return (count + 63) // 64 * 64


def parameters_of_cnn(width=16, side=10, classes=10):
    fc1 = 2 * width * ((side - 4) // 2) ** 2
    return [(width, 1, 3, 3), (width,), (2 * width, width, 3, 3), (2 * width,), (4 * width, fc1), (4 * width,),
            (classes, 4 * width), (classes,)]


def count_of(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


class Base(Case):
    def plan(self, *words):
        return self.brim("plan", "--json", *COMMON, *words).json

    def go_back(self, run, *steps):
        """Makes the run look as if it had been stopped before these steps."""
        (self.folder / run / "summary.json").unlink()
        for step in steps:
            shutil.rmtree(self.checkpoint(run, step))

    def tensors(self, run, step, name="optimizer.safetensors"):
        """Returns the names of a file's tensors, with types and shapes."""
        data = (self.checkpoint(run, step) / name).read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        return {key: (value["dtype"], value["shape"]) for key, value in header.items() if key != "__metadata__"}


class Optimizers(Base):
    def test_states_take_exactly_the_stated_bytes(self):
        shapes = parameters_of_cnn()
        full = sum(rounded(4 * count_of(s)) for s in shapes)
        factored = sum(rounded(4 * s[0]) + rounded(4 * count_of(s[1:])) if len(s) > 1 else rounded(4 * s[0])
                       for s in shapes)
        small = sum(2 * rounded(4 * count_of(s)) if count_of(s) < 4096 else
                    2 * (rounded(count_of(s)) + rounded(4 * -(-count_of(s) // 256))) for s in shapes)
        for name, expected in (("adamw", 2 * full), ("yogi", 2 * full), ("adagrad", full), ("sgd", full),
                               ("lion", full), ("adafactor", factored),
                               ("adafactor optimizer.beta1=0.9", factored + full), ("adamw8bit", small)):
            plan = self.plan(*CNN, *f"optimizer={name}".split())
            self.assertEqual(plan["classes"]["optimizer"], expected, name)
        big = ["model=cnn", "dataset.shape=[1,28,28]"]
        share = [self.plan(*big, f"optimizer={name}")["classes"]["optimizer"] for name in ("adamw8bit", "adamw")]
        self.assertLess(share[0], 0.26 * share[1])

    def test_checkpoints_name_states_with_types_and_shapes_of_their_own(self):
        self.train("eight", *COMMON, *CNN, "optimizer=adamw8bit", "training.steps=1")
        tensors = self.tensors("eight", 1)
        self.assertEqual(tensors["fc1.weight.exp_avg"], ("U8", [64, 288]))
        self.assertEqual(tensors["fc1.weight.exp_avg_absmax"], ("F32", [72]))
        self.assertEqual(tensors["fc1.bias.exp_avg_sq"], ("F32", [64]))
        self.assertNotIn("fc1.bias.exp_avg_absmax", tensors)
        self.train("factor", *COMMON, *CNN, "optimizer=adafactor", "training.steps=1")
        tensors = self.tensors("factor", 1)
        self.assertEqual(tensors["conv2.weight.exp_avg_sq_row"], ("F32", [32]))
        self.assertEqual(tensors["conv2.weight.exp_avg_sq_col"], ("F32", [144]))
        self.assertEqual(tensors["conv2.bias.exp_avg_sq"], ("F32", [32]))
        self.assertNotIn("conv2.weight.exp_avg", tensors)

    def test_they_resume_and_neither_threads_nor_micro_batches_change_a_bit(self):
        for name in ("yogi", "adagrad optimizer.initial_accumulator=0.1 optimizer.lr_decay=0.1", "lion", "adafactor",
                     "adafactor optimizer.beta1=0.9", "adamw8bit", "adam optimizer.bias_correction=false", "muon",
                     "muon optimizer.nesterov=false optimizer.adjust=match_rms_adamw", "adan",
                     "schedulefree optimizer.warmup_steps=2"):
            with self.subTest(name):
                words = [*COMMON, *CNN, *f"optimizer={name}".split(), f"training.steps={STEPS}",
                         "training.checkpoint_every_steps=3", "training.keep_checkpoints=9"]
                run = name.replace(" ", "-")
                self.train(run, *words)
                self.train(f"{run}-cut", *words, "training.batch_size=32", "training.gradient_accumulation_steps=4",
                           "backend.threads=2")
                self.assert_same_checkpoint(run, f"{run}-cut", STEPS)
                self.go_back(run, STEPS)
                self.brim("train", "--resume", run)
                self.assert_same_checkpoint(run, f"{run}-cut", STEPS)

    def test_they_learn(self):
        words = ["model=mlp", "model.hidden=[64]", "dataset=synthetic", "dataset.shape=[1,8,8]",
                 "dataset.train_count=4096", "dataset.test_count=512", "training.batch_size=64", "training.epochs=4",
                 "backend.threads=1"]
        for name, lr in (("adamw", 3e-3), ("yogi", 1e-2), ("adagrad", 3e-2), ("lion", 2e-3), ("adafactor", 5e-2),
                         ("adamw8bit", 3e-3), ("muon", 2e-2), ("adan", 1e-2)):
            self.train(name, *words, f"optimizer={name}", f"optimizer.lr={lr}")
        self.train("schedulefree", *words, "optimizer=schedulefree", "optimizer.lr=1e-2", "schedule=constant")
        tried = [name for name in [*OPTIMIZERS, "muon", "adan", "schedulefree"] if name not in ("adam", "sgd")]
        accuracy = {name: self.summary(name)["test_accuracy"] for name in tried}
        self.assertGreater(accuracy["adamw"], 0.5)
        for name, value in accuracy.items():
            self.assertGreater(value, accuracy["adamw"] - 0.05, accuracy)

    def test_help_describes_them(self):
        for name, parts in (("yogi", ["Zaheer", "initial_accumulator", "bias_correction"]),
                            ("adagrad", ["Duchi", "lr_decay"]), ("lion", ["Chen", "beta2", "0.99"]),
                            ("adafactor", ["Shazeer", "beta2_decay"]), ("adamw8bit", ["Dettmers", "weight_decay"])):
            out = self.brim("plugins", f"optimizer/{name}").out
            for part in parts:
                self.assertIn(part, out)


class Outside(Base):
    """An optimizer plugin from outside the tree, written as a formula (tests/bad_plugins/optimizer.c)."""

    RUN = [*COMMON, *CNN, "optimizer=bad", f"--plugin-path={BAD}", f"training.steps={STEPS}"]

    def test_other_options_keep_its_bits(self):
        self.train("plain", *self.RUN, "training.checkpoint_every_steps=3", "training.keep_checkpoints=9")
        self.assertEqual(self.tensors("plain", STEPS)["fc1.weight.momentum"], ("F32", [64, 288]))
        for run, words in (("offload", ["memory.offload=optimizer"]), ("fused", [FUSED]),
                           ("cut", ["training.batch_size=32", "training.gradient_accumulation_steps=4",
                                    "backend.threads=2"])):
            self.train(run, *self.RUN, *words)
            self.assert_same_checkpoint("plain", run, STEPS, context=f"({run})")
        self.go_back("plain", STEPS)
        self.brim("train", "--resume", "plain", f"--plugin-path={BAD}")
        self.assert_same_checkpoint("plain", "cut", STEPS)

    def test_ranks_share_its_states_out(self):
        words = [*self.RUN, "dist.ranks=2", "training.clip_norm=0.5"]
        for shard in "none", "optimizer", "gradients":
            self.train(shard, *words, f"dist.shard={shard}")
            # state.json is not compared: it has the gradients' norm in double precision, and shards add its squares in
            # another order.
            self.assert_same_checkpoint("none", shard, STEPS, files=["model.safetensors", "optimizer.safetensors"],
                                        context=f"({shard})")

    def test_its_values_must_be_finite(self):
        result = self.train("run", *self.RUN, status=FAILED, env={"BRIM_BAD": "step:nan"})
        self.assert_error(result, "optimizer 'bad': 'keep' is nan in step 2")

    def test_an_unknown_name_is_refused_before_anything_is_placed(self):
        result = self.train("run", *self.RUN, status=USAGE, env={"BRIM_BAD": "form:name"})
        self.assert_error(result, "line 2, column 23 of the formula: unknown name 'decays'")

    def test_a_state_that_a_formula_cannot_update_is_refused_before_anything_is_placed(self):
        result = self.train("run", *self.RUN, status=USAGE, env={"BRIM_BAD": "form:shape"})
        self.assert_error(result, "optimizer 'conv1.weight': form() gives the state 'momentum' the shape [1]",
                          "the parameter, whose shape is [16, 1, 3, 3]")
        self.assertFalse((self.folder / "run").exists())

    def test_a_plugins_formula_is_checked_when_it_is_loaded(self):
        result = self.train("run", *self.RUN, status=LOAD, env={"BRIM_BAD": "table:unknown"})
        self.assert_error(result, "bad.so", "optimizer/bad: line 2, column 9 of the formula")

    def test_the_evaluated_formula_cannot_need_a_gradient(self):
        for where, status, text in (("table", LOAD, "optimizer/bad: ops.evaluated: line 1, column 22 of the formula"),
                                    ("form", USAGE, "evaluated: line 1, column 22 of the formula")):
            result = self.train("run", *self.RUN, status=status, env={"BRIM_BAD": f"{where}:evaluated"})
            self.assert_error(result, text, "unknown name 'g'")
            self.assertFalse((self.folder / "run").exists())


class Schedules(Base):
    RUN = [*COMMON, *CNN, "schedule=bad", f"--plugin-path={BAD.parent / 'schedule'}", f"training.steps={STEPS}"]

    def test_an_external_optimizer_trains_like_the_cores(self):
        self.train("outside", *self.RUN)
        self.train("own", *COMMON, *CNN, "schedule=constant", f"training.steps={STEPS}")
        self.assert_same_checkpoint("outside", "own", STEPS, files=["model.safetensors", "optimizer.safetensors"])

    def test_an_invalid_factor_is_refused_before_anything_is_written(self):
        for bad, number in (("nan:4", "nan"), ("negative:4", "-0.5"), ("infinite:4", "inf")):
            result = self.train("run", *self.RUN, status=FAILED, env={"BRIM_BAD": f"factor:{bad}"})
            self.assert_error(result, f"schedule 'bad': the factor of step 4 of 6 is {number}: it must be finite")
            self.assertFalse((self.folder / "run").exists())


class Muon(Base):
    def test_matrices_and_ranks_do_not_go_together(self):
        words = [*COMMON, *CNN, "optimizer=muon", "training.steps=2"]
        self.assert_error(self.train("run", *words, "dist.ranks=2", "dist.shard=optimizer", status=USAGE),
                          "dist.shard cannot be combined with", "muon")
        self.assert_error(self.train("run", *words, FUSED, status=USAGE),
                          "optimizer.update=fused_backward cannot be combined with", "muon")

    def test_matrices_are_momentum_and_the_rest_is_adamw(self):
        self.train("run", *COMMON, *CNN, "optimizer=muon", "training.steps=1", "optimizer.adamw='conv1*'")
        tensors = self.tensors("run", 1)
        self.assertEqual(tensors["fc1.weight.momentum_buffer"], ("F32", [64, 288]))
        self.assertEqual(tensors["conv2.weight.momentum_buffer"], ("F32", [32, 16, 3, 3]))
        self.assertNotIn("fc1.weight.exp_avg", tensors)
        for name in "fc1.bias", "conv1.weight":
            self.assertIn(f"{name}.exp_avg", tensors)
            self.assertNotIn(f"{name}.momentum_buffer", tensors)


class ScheduleFree(Base):
    def values(self, run, step, file):
        """Returns each tensor's values."""
        data = (self.checkpoint(run, step) / file).read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:start])
        return {name: array.array("f", data[start:][slice(*entry["data_offsets"])])
                for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"}

    def test_the_model_is_the_mean_of_z(self):
        words = [*COMMON, *CNN, "optimizer=schedulefree", "optimizer.beta1=0.6", "schedule=constant",
                 "training.steps=3", "training.checkpoint_every_steps=1", "training.keep_checkpoints=9"]
        self.train("run", *words)
        steps = [self.values("run", step, "optimizer.safetensors") for step in (1, 2, 3)]
        for name, model in self.values("run", 3, "model.safetensors").items():
            for i in range(0, len(model), 97):
                z, y = [state[f"{name}.z"][i] for state in steps], steps[2][f"{name}.raw"][i]
                self.assertAlmostEqual(model[i], sum(z) / 3, delta=1e-5)
                self.assertAlmostEqual(y, 0.4 * z[2] + 0.6 * sum(z) / 3, delta=1e-5)
        tested = self.summary("run")["test_loss"]
        self.assertIn(f"{tested:.4f}", self.brim("eval", "run").out)

    def test_without_a_step_the_model_has_its_initial_weights(self):
        words = [*COMMON, *CNN, "schedule=constant", "training.steps=1", "optimizer.lr=0", "optimizer.weight_decay=0"]
        for name in ("schedulefree", "adamw"):
            self.train(name, *words, f"optimizer={name}")
        self.assertEqual(self.values("schedulefree", 1, "model.safetensors"),
                         self.values("adamw", 1, "model.safetensors"))

    def test_it_needs_one_more_copy_of_the_parameters_than_adamw(self):
        states = {name: self.plan(*CNN, f"optimizer={name}")["classes"]["optimizer"]
                  for name in ("schedulefree", "adamw")}
        parameters = sum(rounded(4 * count_of(shape)) for shape in parameters_of_cnn())
        self.assertEqual(states["schedulefree"] - states["adamw"], parameters)

    def test_options_that_averaged_weights_exclude_are_refused(self):
        words = [*COMMON, *CNN, "training.steps=2"]
        for more, why in ((["training.ema_decay=0.9"], "training.ema_decay, which computes another mean"),
                          (["memory.offload=optimizer"], "memory.offload=optimizer: evaluation needs its states"),
                          (["dist.ranks=2", "dist.shard=optimizer"], "dist.shard: no rank has all of its states")):
            self.assert_error(self.train("run", *words, "optimizer=schedulefree", *more, status=USAGE),
                              "optimizer=schedulefree evaluates other weights than it trains", why)
        for group in "optimizer", "server_optimizer":
            result = self.brim("federate", *COMMON, *CNN, "total_clients=2", "clients_per_round=2", "rounds=1",
                               f"{group}=schedulefree", "run.dir=run", status=USAGE)
            self.assert_error(result, "evaluates other weights than it trains", "a federation")
        self.assertFalse((self.folder / "run").exists())


class FusedBackward(Base):
    def same(self, name, words, *, common=COMMON, steps=STEPS):
        self.train(f"{name}-step", *common, *words, f"training.steps={steps}")
        self.train(f"{name}-fused", *common, *words, FUSED, f"training.steps={steps}")
        self.assert_same_checkpoint(f"{name}-step", f"{name}-fused", steps, context=f"({name})")
        self.assert_same_records(f"{name}-step", f"{name}-fused")
        peaks = [self.summary(f"{name}-{kind}")["planned_peak_bytes"] for kind in ("step", "fused")]
        self.assertLess(peaks[1], peaks[0], name)
        self.assertEqual(self.summary(f"{name}-fused")["device_peak_bytes"], peaks[1])

    def test_every_optimizer_leaves_the_same_bits(self):
        for name in OPTIMIZERS:
            self.same(name, [*CNN, f"optimizer={name}"])

    def test_the_same_with_other_parts_of_a_step(self):
        self.same("norms", NORMS)
        self.same("recompute", [*NORMS, "memory.recompute=full"])
        self.same("auto", [*CNN, "memory.recompute=auto", "memory.recompute_budget_mb=1"])
        self.same("bf16", [*CNN, "precision=bf16"])
        self.same("bf16-recompute", [*NORMS, "precision=bf16", "memory.recompute=blocks"])
        self.same("weights", [*CNN, "loss.class_weights=[1,2,0.5,1,1,3,1,1,1,0.25]"])
        self.same("ignored", [*CNN, "loss.ignore_index=3"])
        self.same("average", [*NORMS, "training.ema_decay=0.9"])
        self.same("evaluated", [*NORMS, "optimizer=schedulefree", "schedule=constant"])
        self.same("reference", ["model=mlp", "model.hidden=[64,64]", "dataset.shape=[1,8,8]", "training.batch_size=16",
                                "backend=reference"], common=COMMON[:3])

    def test_all_gradients_never_exist_at_once(self):
        """The peak of cnn is at a node before the first gradient, so it is lower by the size of all gradients."""
        words = ["model=cnn", "dataset.shape=[1,28,28]", "training.batch_size=64"]
        plans = [self.brim("plan", "--json", *COMMON, *words, *more).json for more in ([], [FUSED])]
        gradients = plans[0]["classes"]["gradients"]
        self.assertGreaterEqual(gradients, 4 * 1199882)
        self.assertEqual(plans[0]["peak_bytes"] - plans[1]["peak_bytes"], gradients)
        self.assertEqual(plans[1]["classes"]["gradients"], 0)
        text = self.brim("plan", *COMMON, *words, FUSED).out
        self.assertIn("update=fused_backward: each parameter is updated in the backward pass", text)

    def test_it_resumes(self):
        words = [*COMMON, *NORMS, FUSED, "training.checkpoint_every_steps=2", "training.keep_checkpoints=9"]
        self.train("whole", *words, f"training.steps={STEPS}")
        self.train("parts", *words, f"training.steps={STEPS}")
        self.go_back("parts", 4, 6)
        self.brim("train", "--resume", "parts")
        self.assert_same_checkpoint("whole", "parts", STEPS)

    def test_a_run_resumes_with_either_kind_of_update(self):
        words = [*COMMON, *NORMS, "training.checkpoint_every_steps=2", "training.keep_checkpoints=9"]
        self.train("step", *words, f"training.steps={STEPS}")
        self.train("fused", *words, f"training.steps={STEPS}", FUSED)
        self.go_back("fused", 4, 6)
        path = self.folder / "fused" / "config.yaml"
        text = path.read_text()
        self.assertEqual(text.count("update: fused_backward"), 1)
        path.write_text(text.replace("update: fused_backward", "update: step"))
        self.brim("train", "--resume", "fused")
        self.assert_same_checkpoint("step", "fused", STEPS)

    def test_a_loss_that_is_not_finite_changes_nothing(self):
        """The first step makes parameters so large that the second step's loss is not finite."""
        words = [*COMMON, *CNN, "optimizer=sgd", "optimizer.lr=1e30", "training.steps=4",
                 "training.checkpoint_every_steps=1"]
        errors = []
        for name, more in (("step", []), ("fused", [FUSED])):
            result = self.train(name, *words, *more, status=FAILED)
            errors.append(result.err[result.err.index("error: "):])
        self.assertIn("the loss of step 2", errors[0])
        self.assertEqual(*errors)
        self.assertEqual(self.steps("fused"), [1])
        self.assert_same_checkpoint("step", "fused", 1)

    def test_options_that_need_all_gradients_are_refused_with_the_reason(self):
        for words, parts in (
                (["training.gradient_accumulation_steps=4"],
                 ["training.gradient_accumulation_steps=1", "training.effective_batch_size",
                  "over micro-batches"]),
                (["training.clip_norm=1"], ["training.clip_norm=1", "the norm covers all gradients"]),
                (["precision=fp16"], ["fp16"])):
            result = self.brim("plan", *COMMON, *CNN, FUSED, *words, status=USAGE)
            self.assert_error(result, *parts)

    def test_no_policy_splits_its_micro_batch(self):
        table = self.brim("plan", "--json", *COMMON, *CNN, FUSED, "training.batch_size=auto",
                          "training.effective_batch_size=128").json["table"]
        self.assertTrue(all(row["gradient_accumulation_steps"] == 1 for row in table), table)
        self.assertEqual([row["batch_size"] for row in table if row["chosen"]], [128])
        result = self.train("run", *COMMON, *CNN, FUSED, "memory.limit_mb=1", "training.batch_size=auto",
                            "training.effective_batch_size=128", status=None)
        self.assertIn(result.status, (NO_FIT, USAGE), result)
        self.assertIn("memory.limit_mb", result.err)


if __name__ == "__main__":
    main()
