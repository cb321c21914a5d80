"""Tests the default precision on a device with tensor cores, as the emulated one, and backend.strict: the choice of a
run, its messages and records; a run keeps its choice on another device."""

import os
import re

from support import SMALL, USAGE, Case, main

EMULATED = os.environ["BRIM_EMULATED"]
RUN = [word for word in SMALL if not word.startswith("backend.")] + ["training.steps=2", "memory.timing=false"]
CHOSEN = "precision=auto: bf16: the device multiplies 16-bit values on tensor cores; precision=fp32 keeps fp32\n"
TEXT = ["model=gpt2", "model.layers=1", "model.width=32", "model.heads=2", "model.dropout=0", "dataset=text",
        "dataset.path=text.txt", "dataset.context=8", "training.batch_size=4", "training.steps=2",
        "training.eval_every_steps=1000", "memory.timing=false"]
NO_TYPE = "cuDNN's attention needs precision=bf16 or fp16"


class PrecisionCase(Case):
    def cuda(self, *argv, status=0, **variables):
        (self.folder / "none").mkdir(exist_ok=True)
        (self.folder / "none/libnvidia-ml.so.1").touch()
        env = {"EMULATED_DEVICES": "1", "LD_LIBRARY_PATH": "none", **variables}
        return self.brim("--plugin-path", EMULATED, *argv, status=status, env=env)

    def kept(self, run):
        line, = [line for line in self.read(run, "config.yaml").splitlines() if line.startswith("precision:")]
        return line.split(": ")[1]


class Auto(PrecisionCase):
    def test_a_gpu_trains_in_bf16_and_records_it(self):
        result = self.cuda("train", *RUN, "backend=cuda", "run.dir=run")
        self.assertEqual(result.err.count(CHOSEN), 1)
        self.assertEqual(self.kept("run"), "bf16")
        self.assertIn("precision: bf16  # precision=auto, for the run's device\n", self.read("run", "sources.yaml"))
        plan = self.json("run", "plan.json")
        self.assertEqual((plan["precision"], plan["precision_is_auto"]), ("bf16", True))
        self.assertIn({"by": "precision=auto", "choice": "bf16"},
                      [{key: record.get(key) for key in ("by", "choice")}
                       for record in self.records("run", "events.jsonl")])
        said = self.cuda("train", *RUN, "backend=cuda", "precision=bf16", "run.dir=said")
        self.assertNotIn("precision=auto", said.err)
        self.assert_same_checkpoint("run", "said", 2, ["model.safetensors", "optimizer.safetensors"])
        self.cuda("train", *RUN, "backend=cuda", "precision=fp32", "run.dir=wide")
        self.assertEqual(self.kept("wide"), "fp32")

    def test_the_host_keeps_fp32_and_says_it_when_asked(self):
        result = self.cuda("train", *RUN, "backend=cpu", "run.dir=run")
        self.assertNotIn("precision", result.err)
        self.assertEqual(self.kept("run"), "fp32")
        result = self.cuda("train", *RUN, "backend=cpu", "precision=auto", "run.dir=asked")
        self.assertIn("precision=auto: fp32: the default on the host's processors; ", result.err)
        self.assertEqual(self.kept("asked"), "fp32")
        self.cuda("train", *RUN, "backend=reference", "run.dir=double")
        self.assertEqual(self.kept("double"), "fp32")

    def test_plans_and_lists_show_it(self):
        plan = self.cuda("plan", *RUN, "backend=cuda")
        self.assertIn("mlp on synthetic: adamw, bf16, micro-batch ", plan.out)
        self.assertIn(CHOSEN, plan.err)
        wide, small = (self.cuda("plan", "--json", *RUN, "backend=cuda", *words).json["peak_bytes"]
                       for words in (["precision=fp32"], []))
        self.assertLess(small, wide)
        card = self.cuda("plan", "--json", *RUN, "backend=cuda", "backend.card=h100", EMULATED_DEVICES="0").json
        self.assertEqual((card["precision"], card["precision_is_auto"]), ("bf16", True))
        gpu, = [d for d in self.cuda("devices", "--json").json["devices"] if d["backend"] == "cuda"]
        self.assertEqual(gpu["multiplies"], ["bf16", "fp16"])

    def test_other_devices_keep_the_type_of_a_run_and_say_so(self):
        told = "precision: bf16: kept from '{}', whose device chose it; for this device precision=auto would be fp32\n"
        self.cuda("train", *RUN, "backend=cuda", "run.dir=run")
        result = self.cuda("train", "--from", "run", "backend=cpu", "run.dir=fork")
        self.assertIn(told.format("run"), result.err)
        self.assertEqual(self.kept("fork"), "bf16")
        self.assertTrue(self.json("fork", "plan.json")["precision_is_auto"])
        self.assertIn(told.format("run"), self.cuda("eval", "run", "backend=cpu").err)
        self.assertNotIn("precision", self.cuda("eval", "run").err)
        result = self.cuda("train", "--from", "run", "backend=cpu", "precision=auto", "run.dir=anew")
        self.assertNotIn("kept from", result.err)
        self.assertEqual(self.kept("anew"), "fp32")
        self.cuda("train", *RUN, "backend=cuda", "precision=bf16", "run.dir=wanted")
        self.assertNotIn("kept", self.cuda("train", "--from", "wanted", "backend=cpu", "run.dir=wanted-fork").err)

    def test_a_resumed_run_keeps_its_type(self):
        for backend, precision in ("cpu", "fp32"), ("cuda", "bf16"):
            with self.subTest(backend):
                words = [*RUN, f"backend={backend}", "training.steps=4", "training.checkpoint_every_steps=2"]
                self.cuda("train", *words, f"run.dir={backend}")
                self.cuda("train", *words, f"run.dir={backend}-part", BRIM_FAULT="step:3:begin:1+", status=None)
                self.assertEqual(self.steps(f"{backend}-part"), [2])
                result = self.cuda("train", "--resume", f"{backend}-part")
                self.assertNotIn("precision", result.err)
                self.assertEqual(self.kept(f"{backend}-part"), precision)
                self.assert_same_checkpoint(backend, f"{backend}-part", 4)

    def test_a_run_that_moves_to_the_host_keeps_its_type_once_it_has_begun(self):
        words = [*RUN, "backend=cuda", "training.steps=4", "policy=robust", "max_retries=1", "memory.recompute=none"]
        result = self.cuda("train", *words, "run.dir=run",
                           BRIM_FAULT="step:3:lib:program:1+,step:3:lib:kernel:1+")
        self.assertIn("policy.robust: the host's processors: ", result.err)
        self.assertIn("  id: cpu\n", self.read("run", "config.yaml"))
        self.assertEqual(self.kept("run"), "bf16")

    def test_a_federation_has_one_type(self):
        words = ["backend=cuda", "dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=40",
                 "dataset.test_count=8", "dataset.classes=4", "total_clients=4", "clients_per_round=2", "rounds=1",
                 "training.batch_size=8", "memory.timing=false", "model=mlp", "model.hidden=[9]"]
        result = self.cuda("federate", *words, "run.dir=run")
        self.assertEqual(result.err.count(CHOSEN), 1)
        self.assertEqual(self.kept("run"), "bf16")
        self.assertIn(", batches of 8; bf16, ", self.cuda("plan", "--config-name", "federate", *words).out)

    def test_a_policy_chooses_only_when_asked(self):
        result = self.cuda("train", *RUN, "backend=cuda", "precision=policy", "policy=[]", "run.dir=run")
        self.assertIn("precision=policy: precision fp32: as no policy chooses another\n", result.err)
        self.assertEqual(self.kept("run"), "fp32")


class Strict(PrecisionCase):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_text("to be or not to be that is the question " * 20)

    def refused(self, *words, **env):
        result = self.cuda("train", *words, "backend.strict=true", "run.dir=run", status=USAGE, **env)
        self.assertFalse((self.folder / "run").exists())
        return result

    def test_operations_that_a_library_refuses(self):
        words = [*TEXT, "backend=cuda", "precision=fp32"]
        line = r"\d+ x 'attention\w*' with the backend's own, slower kernel \(about \d+ times the time\): " + NO_TYPE
        err = self.cuda("train", *words, "run.dir=lenient").err
        self.assertRegex(err, line)
        operations = re.findall(r" x '(attention\w*)'", err)
        self.assertEqual(len(operations), len(set(operations)), "each is said once")
        self.assertRegex(self.cuda("plan", *words).out, line)
        for result in self.refused(*words), self.cuda("plan", *words, "backend.strict=true", status=USAGE):
            self.assert_error(result, "backend.strict=true refuses operations",
                              "backend.strict=false only prints this")
            self.assertRegex(result.err, line)
        self.cuda("train", *TEXT, "backend=cuda", "backend.strict=true", "run.dir=fast")
        self.cuda("eval", "fast")
        self.assert_error(self.cuda("eval", "fast", "precision=fp32", status=USAGE), "backend.strict=true refuses")

    def test_generating(self):
        """The run's choice applies to the plan for generation too; attention over cached keys has no kernel on tensor
        cores."""
        self.cuda("train", *TEXT, "backend=cuda", "backend.strict=true", "run.dir=run")
        words = ["generate", "run", "--tokens", "3", "--prompt", "to be"]
        line = ("1 x 'attention_qkv' with the backend's own, slower kernel: "
                "brim does not give documents or cached keys to cuDNN's attention")
        for further in [], ["--plan"]:
            self.assert_error(self.cuda(*words, *further, status=USAGE), "backend.strict=true refuses operations", line,
                              "backend.strict=false only prints this")
        self.assertIn(line, self.cuda(*words, "backend.strict=false").err)
        self.assertIn(line, self.cuda(*words, "--plan", "backend.strict=false").out)
        self.cuda(*words, "backend=cpu", "precision=fp32")

    def test_it_holds_on_the_host_to_which_a_policy_moves_the_run(self):
        words = [*RUN, "policy=robust", "min_gpu_memory_mb=9000000", "backend.strict=true", "backend=cuda"]
        result = self.cuda("train", *words, "run.dir=run")
        self.assertIn("policy.robust: the host's processors: ", result.err)
        self.assertRegex(self.read("run", "config.yaml"), r"(?s)\nbackend:\n  id: cpu\n.*\n  strict: true\n")
        self.assertEqual(self.kept("run"), "fp32")

    def test_precisions_that_a_processor_cannot_multiply(self):
        cpu = [*RUN, "backend=cpu", "backend.isa=v3"]
        for precision in ("bf16", "fp16"):
            self.assert_error(self.refused(*cpu, f"precision={precision}"),
                              f"backend.strict=true refuses precision={precision} on ",
                              "a step takes the time of fp32 or more", "set precision=fp32 or precision=auto")
            result = self.cuda("train", *cpu, f"precision={precision}", f"run.dir={precision}")
            self.assertEqual(result.out.count("this saves memory, but a step takes the time of fp32 or more\n"), 1)
        self.cuda("train", *cpu, "backend.strict=true", "run.dir=wide")


if __name__ == "__main__":
    main()
