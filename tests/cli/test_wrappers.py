"""Tests model=lora and model=linear_probe: a frozen backbone, and checkpoints with only the trained parameters."""

import json
import os
import re
import shutil
import struct
import unittest

import tensors
from ranks import Ranks
from support import FAILED, FAULT_SHIM, LOAD, SANITIZED, USAGE, Case, killed, main, plain, write_idx_dataset

VIT = {"patch": 4, "depth": 2, "width": 12, "heads": 3}
MODEL = ["model=vit", *(f"model.{key}={value}" for key, value in VIT.items())]
BACKBONE = ["backbone=vit", *(f"backbone.{key}={value}" for key, value in VIT.items())]
DATA = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=256", "dataset.test_count=64",
        "training.batch_size=32", "backend=cpu", "backend.threads=1", "memory.timing=false", "training.num_workers=0"]
LORA = ["model=lora", *BACKBONE, *DATA]
PROBE = ["model=linear_probe", *BACKBONE, *DATA]


def fnv1a64(data, value=0xcbf29ce484222325):
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


def without_threads(words):
    """Returns the words for the reference backend, which has no threads."""
    return [word for word in words if word != "backend.threads=1"]


class Choosing(Case):
    @plain
    def test_a_wrapper_without_a_backbone_is_refused_with_the_fix(self):
        (self.folder / "configs" / "model").mkdir(parents=True)
        (self.folder / "configs" / "model" / "bare.yaml").write_text("id: lora\n")
        self.assert_error(self.brim("config", "--config-path", "configs", "model=bare", "dataset=synthetic",
                                    status=USAGE),
                          "model=lora wraps another model", "write backbone=OPTION", "available: ", "vit")

    @plain
    def test_unless_another_is_chosen_it_is_clip(self):
        for model in ("lora", "linear_probe"):
            self.assertIn("backbone:\n  id: clip_vit\n", self.brim("config", f"model={model}", "dataset=synthetic").out)

    @plain
    def test_a_backbone_with_random_weights_is_warned_of(self):
        self.assertIn("the frozen backbone has random weights: set model.weights",
                      self.brim("train", *LORA, "training.steps=1", "run.dir=random").err)
        self.assertNotIn("random weights", self.brim("train", *MODEL, *DATA, "training.steps=1", "run.dir=plain").err)

    @plain
    def test_a_backbone_without_a_wrapper_is_refused_with_the_fix(self):
        result = self.brim("plan", *MODEL, *DATA, "backbone=mlp", status=USAGE)
        self.assert_error(result, "backbone=mlp has no effect: model=vit", "model=linear_probe or model=lora",
                          "model=mlp, and no backbone")

    @plain
    def test_wrappers_cannot_be_backbones(self):
        self.assert_error(self.brim("config", "model=lora", "backbone=linear_probe", "dataset=synthetic", status=USAGE),
                          "backbone=linear_probe: this model itself wraps another one")

    def test_unknown_targets_are_reported_with_the_layers(self):
        result = self.brim("plan", *LORA, "model.lora_targets=[query,value]", status=USAGE)
        self.assert_error(result, "no linear layer's name is or ends in a target (targets: query, value)",
                          "blocks.*.attn.qkv", "blocks.*.mlp.fc2")
        self.assertNotIn("head", result.err)

    @plain
    def test_a_resolved_configuration_loads_again(self):
        self.train("run", *LORA, "training.steps=1", "model.lora_r=4", "model.lora_targets=[attn.qkv,'mlp.fc1']")
        self.assertIn("lora_r: 4", self.read("run", "config.yaml"))
        self.train("again", "--from", "run")
        self.assert_same_checkpoint("run", "again", 1)


class Plans(Case):
    def plan(self, *words):
        return self.brim("plan", *words, "--json", "--no-timing").json

    @plain
    def test_only_trained_parameters_have_gradients_and_states(self):
        plan = self.plan(*LORA, "model.lora_r=2")
        plan = plan.get("plan", plan)
        # each block has 2 * 12 down and 12 * 2 up; the head has 12 * 10 + 10
        self.assertEqual(plan["trained_parameters"], 2 * 48 + 130)
        whole = self.plan(*MODEL, *DATA)
        whole = whole.get("plan", whole)
        self.assertEqual(plan["parameters"], whole["parameters"] + 2 * 48)
        self.assertLess(plan["classes"]["optimizer"], whole["classes"]["optimizer"] / 4)
        self.assertIn("of which 226 trained", self.brim("plan", *LORA, "model.lora_r=2", "--no-timing").out)

    @plain
    def test_bf16_makes_frozen_bytes_about_half(self):
        wide, small = (self.plan(*LORA, f"backbone.store={store}") for store in ("fp32", "bf16"))
        wide, small = wide.get("plan", wide), small.get("plan", small)
        self.assertLess(small["frozen_bytes"], 0.7 * wide["frozen_bytes"])

    @plain
    def test_a_probes_plan_counts_computing_features(self):
        self.assertIn("features: computed once", self.brim("plan", *PROBE, "--no-timing").out)
        self.assertFalse((self.folder / "cache/brim/features").exists(), "a plan computes nothing")

    def test_a_probes_plan_counts_its_backbones_weights(self):
        self.train("before", *MODEL, *DATA, "training.steps=1")
        plan = ["plan", *PROBE, "--no-timing", "model.weights=before"]
        # Two blocks of 12 tensors, patches, positions, class token and norm; the head is left out.
        self.assertIn("weights: 30 tensors", self.brim(*plan).out)
        self.assertIn("ignoring 2 that the model does not use", self.brim(*plan).out)
        self.assert_error(self.brim(*plan, "backbone.width=24", status=LOAD), "the weights in 'before' do not match",
                          "patch_embed.proj.bias: [12]; the model needs [24]")

    def test_a_probe_is_planned_before_features_exist(self):
        words = [*PROBE, "memory.timing=true", "memory.profile=made.jsonl"]
        self.assertIn("features: computed once", self.brim("plan", *words).out)
        self.assertIn("besides operations", self.brim("plan", *words, "--times").out)
        self.assertNotIn('"sample features', (self.folder / "made.jsonl").read_text())


class Checkpoints(Case):
    def names(self, *path):
        return set(tensors.read(self.folder.joinpath(*path))[0])

    @plain
    def test_hold_only_trained_parameters(self):
        self.train("run", *LORA, "training.steps=4")
        names = self.names("run", "checkpoints", "last", "model.safetensors")
        self.assertEqual(names, {f"blocks.{i}.attn.qkv.q.lora_{part}.weight" for i in (0, 1) for part in "AB"} |
                         {"head.weight", "head.bias"})

    def test_a_resumed_run_leaves_the_same_bytes(self):
        for name, words in (("lora", LORA), ("probe", PROBE), ("small", [*LORA, "backbone.store=bf16"])):
            self.train(f"{name}-whole", *words, "training.steps=12", "training.checkpoint_every_steps=4",
                       "training.keep_checkpoints=9")
            shutil.copytree(self.folder / f"{name}-whole", self.folder / f"{name}-cut", symlinks=True)
            (self.folder / f"{name}-cut" / "summary.json").unlink()
            for step in (8, 12):
                shutil.rmtree(self.checkpoint(f"{name}-cut", step))
            self.brim("train", "--resume", f"{name}-cut")
            self.assert_same_checkpoint(f"{name}-whole", f"{name}-cut", 12)

    def test_frozen_weights_are_there_again_after_another_plan(self):
        for name, words in (("lora", [*LORA, "backbone.store=bf16"]), ("average", [*LORA, "training.ema_decay=0.9"])):
            words = [*words, "training.steps=6"]
            self.train(f"{name}-whole", *words)
            faults = ",".join(f"step:2:begin:{n}" for n in range(1, 6))
            self.train(f"{name}-again", *words, env={"BRIM_FAULT": faults})
            self.assertEqual(self.summary(f"{name}-again")["retries"], 5)
            self.assert_same_checkpoint(f"{name}-whole", f"{name}-again", 6)
            self.assertEqual(self.brim("eval", f"{name}-again", "--json").json["loss"],
                             self.summary(f"{name}-again")["test_loss"])

    @plain
    def test_updates_in_the_backward_pass_and_states_in_host_memory_give_the_same_numbers(self):
        self.train("plain", *LORA, "training.steps=6")
        self.train("fused", *LORA, "training.steps=6", "optimizer.update=fused_backward")
        self.train("host", *LORA, "training.steps=6", "memory.offload=optimizer")
        for run in ("fused", "host"):
            self.assert_same_checkpoint("plain", run, 6)

    @plain
    def test_dropout_does_not_depend_on_micro_batches(self):
        words = [*without_threads(LORA), "backend=reference", "model.lora_dropout=0.5", "training.steps=4",
                 "observe.log_every_steps=1"]
        self.train("one", *words)
        self.train("four", *words, "training.batch_size=8", "training.gradient_accumulation_steps=4")
        self.train("none", *words, "model.lora_dropout=0")
        one, four, none = ([r["loss"] for r in self.records(run)] for run in ("one", "four", "none"))
        for a, b in zip(one, four):
            self.assertAlmostEqual(a, b, delta=1e-9)
        self.assertNotEqual(one, none)

    @plain
    def test_other_weights_are_refused(self):
        self.train("a", *MODEL, *DATA, "training.steps=2")
        self.train("b", *MODEL, *DATA, "training.steps=3")
        for name, words in (("lora", LORA), ("probe", PROBE)):
            self.train(name, *words, "model.weights=a", "training.steps=4")
            reported = self.summary(name)["test_loss"]
            self.assertEqual(self.brim("eval", name, "--json").json["loss"], reported)
            self.assert_error(self.brim("eval", name, "model.weights=b", status=LOAD), "other weights")


class Moved(Case):
    """Frozen weights are not part of a checkpoint, and their file may have moved."""

    def setUp(self):
        super().setUp()
        self.once(self.make, "b.safetensors", "c.safetensors", "before.safetensors", "run")

    def make(self):
        self.train("a", *MODEL, *DATA, "training.steps=2")
        self.train("b", *MODEL, *DATA, "training.steps=3")
        for run in "ab":
            self.brim("export", run, "-o", f"{run}.safetensors")
        self.train("run", *LORA, "model.weights=a.safetensors", "training.steps=8",
                   "training.checkpoint_every_steps=4", "training.keep_checkpoints=9")
        self.brim("export", "run", "--merge", "-o", "before.safetensors")
        (self.folder / "a.safetensors").rename(self.folder / "c.safetensors")

    @plain
    def test_merging_reports_where_they_are(self):
        for command in (["export", "run", "--merge", "-o", "after.safetensors"], ["eval", "run"]):
            self.assert_error(self.brim(*command, status=LOAD), "a.safetensors", "the backbone's frozen weights",
                              "set model.weights=PATH")
        result = self.brim("export", "run", "--merge", "-o", "after.safetensors", "model.weights=b.safetensors",
                           status=LOAD)
        self.assert_error(result, "a backbone with other weights", "model.weights=PATH")
        self.assertFalse((self.folder / "after.safetensors").exists())
        self.brim("export", "run", "--merge", "-o", "after.safetensors", "model.weights=c.safetensors")
        self.assertEqual((self.folder / "after.safetensors").read_bytes(),
                         (self.folder / "before.safetensors").read_bytes())

    @plain
    def test_a_run_resumes_with_them(self):
        shutil.copytree(self.folder / "run", self.folder / "cut", symlinks=True)
        (self.folder / "cut" / "summary.json").unlink()
        shutil.rmtree(self.checkpoint("cut", 8))
        self.assert_error(self.brim("train", "--resume", "cut", status=LOAD), "set model.weights=PATH")
        self.assert_error(self.brim("train", "--resume", "cut", "model.weights=b.safetensors", status=LOAD),
                          "other weights", "model.weights=PATH")
        self.assert_error(self.brim("train", "--resume", "cut", "seed=2", status=USAGE), "'seed=2' cannot be set",
                          "model.weights=PATH and dataset.path=PATH")
        self.brim("train", "--resume", "cut", "model.weights=c.safetensors")
        self.assert_same_checkpoint("run", "cut", 8)

    def make_older(self, checkpoint):
        """Gives a checkpoint the hash of frozen parameters that older checkpoints have: FNV-1a of all frozen
        parameters."""
        found, _ = tensors.read(self.folder / "c.safetensors")
        value = 0xcbf29ce484222325
        for name, (_, shape, values) in found.items():
            if not name.startswith("head."):
                sizes = struct.pack(f"<{len(shape)}q", *shape)
                value = fnv1a64(name.encode() + b"\0" + sizes + values.tobytes(), value)
        path = checkpoint / "state.json"
        text = re.sub(r'\n  "frozen_xxh64": "[0-9a-f]*",', "", path.read_text())
        text = re.sub(r'"frozen_hash": "0*"', f'"frozen_hash": "{value:016x}"', text)
        text, count = re.subn(r',\n  "checksum": "[0-9a-f]*"\n}\n$', "", text)
        self.assertEqual(count, 1)
        path.write_text(f'{text},\n  "checksum": "{fnv1a64((text + chr(10) + "}").encode()):016x}"\n}}\n')

    def test_a_run_resumes_from_an_older_checkpoint(self):
        self.train("probe", *PROBE, "model.weights=c.safetensors", "training.steps=8",
                   "training.checkpoint_every_steps=4", "training.keep_checkpoints=9")
        for run in ("run", "probe"):
            shutil.copytree(self.folder / run, self.folder / f"{run}-cut", symlinks=True)
            (self.folder / f"{run}-cut/summary.json").unlink()
            shutil.rmtree(self.checkpoint(f"{run}-cut", 8))
            self.make_older(self.checkpoint(f"{run}-cut", 4))
            self.assert_error(self.brim("train", "--resume", f"{run}-cut", "model.weights=b.safetensors", status=LOAD),
                              "other weights", "model.weights=PATH")
            self.brim("train", "--resume", f"{run}-cut", "model.weights=c.safetensors")
            self.assert_same_checkpoint(run, f"{run}-cut", 8)


class Features(Case):
    def kept(self):
        return sorted((self.folder / "cache/brim/features").glob("*.bin"))

    def test_are_computed_once(self):
        first = self.train("a", *PROBE, "training.steps=6")
        self.assertIn("features: computing them once for 320 samples", first.err)
        second = self.train("b", *PROBE, "training.steps=6", "optimizer.lr=0.1")
        self.assertIn("features: using '", second.err)
        self.assertEqual(len(self.kept()), 1)
        self.assertEqual([path.name for path in (self.folder / "cache/brim/features").iterdir()], [self.kept()[0].name])

    @plain
    def test_training_on_them_is_training_the_head_of_the_whole(self):
        self.train("run", *PROBE, "training.steps=8")
        self.assertEqual(self.brim("eval", "run", "--json").json["loss"], self.summary("run")["test_loss"])

    def test_belong_to_weights_data_and_transform(self):
        folder = write_idx_dataset(self.folder / "data", rows=8)
        words = ["model=linear_probe", *BACKBONE, *DATA, "dataset=mnist", f"dataset.path={folder}", "training.steps=1"]
        words = [w for w in words if not w.startswith(("dataset=synthetic", "dataset.shape", "dataset.train_count",
                                                       "dataset.test_count"))]
        for count, change in enumerate([[], ["seed=5"], ["dataset.mean=[0.3]"], ["precision=bf16"],
                                        ["backbone.mlp_ratio=2"], ["training.num_train_samples=64"]], 1):
            self.train(f"run{count}", *words, *change)
            self.assertEqual(len(self.kept()), count, change)
        self.train("same", *words)
        self.assertEqual(len(self.kept()), count)
        os.utime(folder / "train-images-idx3-ubyte", (1, 1))
        self.train("touched", *words)
        self.assertEqual(len(self.kept()), count + 1, "a file that changed")
        labels = folder / "train-labels-idx1-ubyte"
        before = labels.stat()
        labels.write_bytes(labels.read_bytes()[:8] + labels.read_bytes()[8:][::-1])
        os.utime(labels, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.train("alike", *words)
        self.assertEqual(len(self.kept()), count + 2, "one of the same size and time")

    @plain
    def test_belong_to_files_out_of_the_datasets_folder(self):
        for name in "train", "test":
            rows = "".join(f"{i % 3},{i % 5},{'ab'[i % 2]}\n" for i in range(60))
            (self.folder / f"{name}.csv").write_text("x,y,kind\n" + rows)
        (self.folder / "data").mkdir()
        words = ["model=linear_probe", "backbone=mlp", "backbone.hidden=[8]", *DATA, "dataset=csv", "dataset.path=data",
                 f"dataset.train={self.folder}/train.csv", "dataset.test=../test.csv", "dataset.label=kind",
                 "training.steps=1"]
        words = [w for w in words if not w.startswith(("dataset=synthetic", "dataset.shape", "dataset.train_count",
                                                       "dataset.test_count"))]
        self.train("run", *words)
        for count, name in enumerate(["train.csv", "test.csv"], 2):
            os.utime(self.folder / name, (1, 1))
            self.train(f"run{count}", *words)
            self.assertEqual(len(self.kept()), count, name)
        self.train("same", *words)
        self.assertEqual(len(self.kept()), count)

    @plain
    def test_a_plan_does_without_them(self):
        """The features do not exist yet, so brim cannot time loading them."""
        words = [w for w in PROBE if w != "memory.timing=false"]
        plan = self.brim("plan", *words)
        self.assertIn("features: computed once, before training", plan.out)
        self.assertEqual(self.kept(), [])

    @plain
    def test_the_record_of_weights_has_those_of_the_backbone(self):
        self.train("before", *MODEL, *DATA, "training.steps=1")
        self.brim("export", "before", "--format", "timm", "-o", "vit.safetensors")
        for name, model in (("lora", LORA), ("probe", PROBE)):
            result = self.train(name, *model, "model.weights=vit.safetensors", "training.steps=1")
            self.assertIn("from 'vit.safetensors' using map timm_vit", result.err)
        lora, probe = (json.loads((self.folder / name / "weights.json").read_text()) for name in ("lora", "probe"))
        self.assertEqual(probe["map"], "timm_vit")
        self.assertGreater(probe["tensors"], 0)
        self.assertEqual(probe, lora)

    def test_a_damaged_file_is_made_again(self):
        self.train("a", *PROBE, "training.steps=2")
        path = self.kept()[0]
        whole = path.read_bytes()
        path.write_bytes(whole[:5000])
        result = self.train("b", *PROBE, "training.steps=2")
        self.assertIn("computing them again", result.err)
        self.assertEqual(path.read_bytes(), whole)

    @plain
    def test_are_of_samples_as_they_are(self):
        result = self.train("run", *PROBE, "augment.flip=true", "training.steps=1")
        self.assertIn("augment has no effect with model=linear_probe", result.err)

    @plain
    def test_are_of_single_samples(self):
        result = self.train("run", *PROBE, "augment.mixup=0.2", status=USAGE)
        self.assertIn("augment.mixup=0.2 cannot be used with model=linear_probe", result.err)


class Exports(Case):
    def test_a_merged_model_answers_as_the_wrapper_does(self):
        self.train("before", *MODEL, *DATA, "training.steps=8")
        for name, words in (("lora",
                             [*LORA, "optimizer.lr=0.01", "model.lora_targets=['attn.qkv:q','attn.qkv:v',fc1]"]),
                            ("probe", PROBE)):
            self.train(name, *words, "model.weights=before", "training.steps=12")
            self.brim("export", name, "--merge", "-o", f"{name}.safetensors")
            self.train(f"{name}-plain", *MODEL, *DATA, f"model.weights={name}.safetensors", "training.steps=1",
                       "optimizer.lr=1e-30", "optimizer.weight_decay=0")
            self.assertAlmostEqual(self.summary(f"{name}-plain")["test_loss"],
                                   self.summary(name)["test_loss"], places=5)

    def test_adapters_are_written_as_peft_keeps_them(self):
        self.train("run", *LORA, "model.lora_r=3", "training.steps=4")
        self.brim("export", "run", "--format", "peft", "-o", "adapter")
        config = self.json("adapter", "adapter_config.json")
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"], config["lora_dropout"]),
                         ("LORA", 3, 16, 0.1))
        self.assertIn("attn.qkv", config["target_modules"])
        self.assertEqual(config["modules_to_save"], ["head"])
        found, _ = tensors.read(self.folder / "adapter/adapter_model.safetensors")
        layer = "base_model.model.blocks.1.attn.qkv"
        self.assertEqual(found[f"{layer}.lora_A.weight"][:2], ("F32", [3, 12]))
        kind, shape, values = found[f"{layer}.lora_B.weight"]
        self.assertEqual((kind, shape), ("F32", [36, 3]))
        self.assertTrue(any(values[:36]))
        self.assertFalse(any(values[36:]), "keys and values are not changed")
        self.assertEqual(found["base_model.model.head.weight"][1], [10, 12])

    @unittest.skipIf(SANITIZED or not FAULT_SHIM, "the shim and a sanitizer cannot both be preloaded")
    @plain
    def test_an_adapter_is_written_completely_or_not_at_all(self):
        self.train("run", *LORA, "training.steps=2")
        peft = ["export", "run", "--format", "peft", "--force", "-o"]
        self.brim(*peft, "whole/")
        whole = self.tree("whole")
        self.assertEqual(set(whole), {"adapter_model.safetensors", "adapter_config.json"})
        shim = {"LD_PRELOAD": FAULT_SHIM, "BRIM_FILES_FOLDER": "adapter"}
        report = self.folder / "changes"
        self.brim(*peft, "adapter", env={**shim, "BRIM_FILES_REPORT": str(report)})
        shutil.rmtree(self.folder / "adapter")
        for at in range(1, int(report.read_text()) + 1):
            result = self.brim(*peft, "adapter", status=None, env={**shim, "BRIM_FILES_KILL_AT": str(at)})
            self.assertTrue(killed(result), result)
            self.assertIn(self.tree("adapter"), ({}, whole))
        shutil.rmtree(self.folder / "adapter", ignore_errors=True)
        self.brim(*peft, "adapter", status=FAILED, env={**shim, "BRIM_FILES_FULL_AFTER": "900"})
        self.assertEqual([path.name for path in self.folder.glob("*adapter*")], [])
        self.folder.joinpath("adapter").mkdir()
        self.folder.joinpath("adapter/notes").write_text("mine")
        self.brim(*peft, "adapter")
        self.assertEqual(self.tree("adapter"), {**whole, "notes": b"mine"})

    def test_formats_that_do_not_fit_are_reported(self):
        self.train("plain", *MODEL, *DATA, "training.steps=1")
        self.assert_error(self.brim("export", "plain", "--merge", status=USAGE), "model=vit does not wrap another")
        self.train("probe", *PROBE, "training.steps=1")
        self.assert_error(self.brim("export", "probe", "--format", "peft", status=USAGE), "no low-rank changes")
        self.train("two", *LORA, "model.lora_targets=['attn.qkv:q','attn.qkv:v']", "training.steps=1")
        self.assert_error(self.brim("export", "two", "--format", "peft", status=USAGE),
                          "--merge writes the whole model")


@plain
class SeveralRanks(Ranks):
    def test_two_ranks_train_as_one_does(self):
        for name, words in (("lora", LORA), ("probe", PROBE)):
            words = [*without_threads(words), "backend=reference", "training.steps=6", "observe.log_every_steps=1"]
            self.train(f"{name}1", *words)
            self.ranks(2, f"{name}2", *words)
            one, two = self.records(f"{name}1"), self.records(f"{name}2")
            self.assertEqual(len(one), len(two))
            for a, b in zip(one, two):
                self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-9)


if __name__ == "__main__":
    main()
