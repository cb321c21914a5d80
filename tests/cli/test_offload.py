"""Tests memory.offload=optimizer: it changes no number, and the optimizer's state is where the plan says."""

import json
import shutil

from support import NO_FIT, SANITIZED, Case, main

COMMON = ["dataset=synthetic", "dataset.train_count=218", "dataset.test_count=32", "training.batch_size=128",
          "training.steps=4", "training.checkpoint_every_steps=2", "training.keep_checkpoints=9", "memory.timing=false"]
NORMS = ["model=lightcnn", "model.width=4", "dataset.shape=[3,16,16]"]  # batch norm
# fc2.weight has 512 * 512 values: its two states take 2 MiB of 2.7 MiB in all.
MLP = ["model=mlp", "model.hidden=[512,512]", "dataset.shape=[1,8,8]"]
OPTIMIZERS = ["adamw", "adam", "yogi", "adagrad", "sgd", "lion", "adafactor", "adamw8bit"]
CPU = "backend=cpu"
OFFLOAD = "memory.offload=optimizer"
FUSED = "optimizer.update=fused_backward"
MIB = 1 << 20


def rounded(count):
    """Returns the bytes of `count` floats in a plan."""
    return (4 * count + 63) // 64 * 64


def states_of_mlp():
    """Returns the bytes of adamw's states, by parameter."""
    extents = [64, 512, 512, 10]
    return [2 * rounded(n) for a, b in zip(extents, extents[1:]) for n in (a * b, b)]


class Offload(Case):
    def plan(self, *words):
        return self.brim("plan", "--json", *COMMON, *words).json

    def check_same(self, name, *words):
        self.train(name, *COMMON, *words)
        self.train(f"{name}-host", *COMMON, *words, OFFLOAD)
        for step in self.steps(name):
            self.assert_same_checkpoint(name, f"{name}-host", step, context=" ".join(words))
        self.assert_same_records(name, f"{name}-host")

    def test_every_optimizer_leaves_the_same_bits(self):
        for optimizer in OPTIMIZERS:
            self.check_same(optimizer, CPU, *NORMS, f"optimizer={optimizer}")
            self.check_same(f"{optimizer}-fused", CPU, *NORMS, f"optimizer={optimizer}", FUSED)

    def test_averages_norms_and_several_micro_batches_leave_the_same_bits(self):
        self.check_same("all", CPU, *NORMS, "training.ema_decay=0.9", "training.clip_norm=0.5",
                        "training.batch_size=32", "training.effective_batch_size=128")
        self.check_same("reference", "backend=reference", *NORMS, "training.steps=2")

    def test_steps_that_are_skipped_change_no_state(self):
        words = [CPU, *NORMS, "precision=fp16", "loss_scale.init_scale=16777216", "training.steps=8"]
        self.check_same("half", *words)
        state = json.loads((self.checkpoint("half-host", 8) / "state.json").read_text())
        self.assertGreater(state["skipped_steps"], 0)
        self.assertLess(state["skipped_steps"], 8)

    def test_the_plan_places_states_to_the_byte(self):
        states = states_of_mlp()
        plain, host = self.plan(CPU, *MLP), self.plan(CPU, *MLP, OFFLOAD)
        self.assertEqual(plain["host_state_bytes"], 0)
        self.assertEqual(host["host_state_bytes"], sum(states))
        self.assertEqual(plain["persistent_bytes"] - host["persistent_bytes"], sum(states))
        update = next(p for p in host["programs"] if p["kind"] == "update")
        self.assertEqual(update["transient_bytes"], max(states))
        transient = max(p["transient_bytes"] for p in host["programs"])
        self.assertEqual(host["peak_bytes"], host["persistent_bytes"] + transient)
        self.assertLess(host["peak_bytes"], plain["peak_bytes"])
        self.assertEqual(host["host"]["state_bytes"], sum(states))
        text = self.brim("plan", *COMMON, CPU, *MLP, OFFLOAD).out
        self.assertIn(f"optimizer's state in host memory, exactly {sum(states)} bytes", text)
        self.assertNotIn("in host memory", self.brim("plan", *COMMON, CPU, *MLP).out)

    def test_averages_stay_on_the_device(self):
        plans = [self.plan(CPU, *MLP, OFFLOAD, f"training.ema_decay={decay}") for decay in (0, 0.9)]
        self.assertEqual(plans[0]["host_state_bytes"], plans[1]["host_state_bytes"])
        self.assertEqual(plans[1]["persistent_bytes"] - plans[0]["persistent_bytes"],
                         sum(states_of_mlp()) // 2)

    def test_a_run_takes_the_predicted_memory(self):
        words = [CPU, "model=mlp", "model.hidden=[2048,2048]", OFFLOAD]
        plan = self.plan(*words)
        self.train("run", *COMMON, *words)
        summary = self.summary("run")
        self.assertEqual(summary["device_peak_bytes"], plan["peak_bytes"])
        self.assertEqual(summary["planned_peak_bytes"], plan["peak_bytes"])
        if not SANITIZED:
            predicted, taken = summary["predicted_rss_bytes"], summary["rss_peak_bytes"]
            self.assertLessEqual(abs(taken - predicted), max(0.05 * predicted, 8 * MIB), summary)

    def test_a_run_that_does_not_fit_the_device_fits_with_it(self):
        words = [*COMMON, CPU, "model=mlp", "model.hidden=[256,256,256,256,256,256,256,256,256,256,256,256]",
                 "dataset.shape=[1,8,8]", "backend.devices=1", "backend.memory_mb=10"]
        self.train("run", *words, status=NO_FIT)
        self.train("run", *words, OFFLOAD)
        self.assertLessEqual(self.summary("run")["device_peak_bytes"], 10 * MIB)

    def test_recompute_counts_with_it(self):
        """Updates in the backward pass need their states during that pass. recompute=auto counts them and stays within
        its budget."""
        words = [CPU, "model=lightcnn", "model.width=32", "dataset.shape=[3,16,16]", FUSED, OFFLOAD]
        peak = self.plan(*words)["peak_bytes"]
        budget = peak // MIB - 1
        plan = self.plan(*words, "memory.recompute=auto", f"memory.recompute_budget_mb={budget}")
        self.assertLessEqual(plan["peak_bytes"], budget * MIB)
        self.check_same("auto", *words[:-1], "memory.recompute=auto", f"memory.recompute_budget_mb={budget}")

    def test_it_resumes_with_and_without_it(self):
        self.train("whole", *COMMON, CPU, *NORMS)
        for name, first, then in (("resumed", OFFLOAD, "optimizer"), ("out", OFFLOAD, "none"),
                                  ("in", "memory.offload=none", "optimizer")):
            self.train(name, *COMMON, CPU, *NORMS, first)
            (self.folder / name / "summary.json").unlink()
            shutil.rmtree(self.checkpoint(name, 4))
            path = self.folder / name / "config.yaml"
            text = path.read_text()
            word = "offload: " + first.split("=")[1]
            self.assertEqual(text.count(word), 1)
            path.write_text(text.replace(word, f"offload: {then}"))
            self.brim("train", "--resume", name)
            self.assert_same_checkpoint("whole", name, 4)


if __name__ == "__main__":
    main()
