"""Tests the device profile, and choices based on it: plans by predicted time. Pinned results use made-up times; the
real times of a machine decide nothing here."""

import json
import shutil
import time

from support import USAGE, Case, main

NET = ["model=cnn", "model.width=8", "dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=256",
       "dataset.test_count=64", "backend=cpu", "backend.threads=1", "training.steps=2"]
AUTO = ["training.batch_size=auto", "training.effective_batch_size=256"]
NO_TIMING = "memory.timing=false"


class Times(Case):
    lines = []  # lines of a profile with everything that can be timed, made once

    def time_all(self):
        for precision in ("fp32", "bf16", "fp16"):
            for batch in (256, 128, 64, 32, 16):
                self.brim("plan", *NET, f"training.batch_size={batch}", f"precision={precision}",
                          "memory.profile=made.jsonl")
        Times.lines = self.read("made.jsonl").splitlines()

    def make(self, *factors):
        """Writes made.jsonl, a profile of everything that can be timed: a node takes a microsecond a sample, times the
        factors whose micro-batch and name match: (n, word in the name, factor); n None: any micro-batch."""
        if not Times.lines:
            self.time_all()
        lines = [json.loads(line) for line in Times.lines]
        for line in lines[1:]:
            line["seconds"] = 1e-6 * max(line["n"], 1) if line["n"] <= 1024 else 1e-6
            for n, word, factor in factors:
                if n in (line["n"], None) and word in line["what"]:
                    line["seconds"] *= factor
        (self.folder / "made.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def choose(self, run, *words, status=0):
        return self.train(run, *NET, *AUTO, "memory.profile=made.jsonl", NO_TIMING, *words, status=status)

    def cut_of(self, run):
        return self.json(run, "plan.json")["batch_size"]

    def plan(self, *words):
        return self.brim("plan", *NET, *words, "--json").json


class Choice(Times):
    def test_of_equally_fast_plans_the_largest_and_else_the_fastest_that_fits(self):
        self.make()
        self.choose("equal")
        self.assertEqual(self.cut_of("equal"), 256)
        self.make((64, "", 0.5))
        result = self.choose("fast")
        self.assertEqual(self.cut_of("fast"), 64)
        self.assertIn("policy.auto_plan: micro-batch 64 x 4: ", result.err)
        self.assertIn(" ms a step by the profile, the fastest that fits: ", result.err)
        self.choose("small", "memory.limit_mb=1", "min_batch_size=16")
        self.assertLessEqual(self.json("small", "plan.json")["peak_bytes"], 1 << 20)

    def test_a_difference_within_noise_is_ignored(self):
        self.make((128, "", 0.99))
        self.choose("noise")
        self.assertEqual(self.cut_of("noise"), 256)
        self.make((128, "", 0.9))
        self.choose("real")
        self.assertEqual(self.cut_of("real"), 128)

    def test_a_plan_that_does_not_fit_is_not_chosen_however_fast(self):
        self.make((256, "", 0.01))
        self.choose("run", "memory.limit_mb=2")
        self.assertLess(self.cut_of("run"), 256)

    def test_numbers_that_differ_by_rounding_are_not_chosen_for_speed(self):
        self.make((8, "", 0.001), (16, "", 0.001))
        self.choose("run", "training.grain=32")
        self.assertEqual(self.cut_of("run") % 32, 0)

    def test_the_same_profile_chooses_the_same_and_to_the_same_bits_as_without(self):
        self.make((64, "", 0.5))
        self.choose("one")
        self.choose("two")
        self.assertEqual(self.read("one", "profile.jsonl"), self.read("two", "profile.jsonl"))
        self.assert_same_checkpoint("one", "two", 2)
        self.train("given", *NET, "training.batch_size=256")
        self.assert_same_checkpoint("one", "given", 2, ["model.safetensors", "optimizer.safetensors"])


class Doubts(Times):
    """Times may be doubtful, for example because other programs used the machine. In these tests doubtful times are
    a hundredth of the true ones."""
    AUTO = [*NET, *AUTO, "training.steps=24"]

    def setUp(self):
        super().setUp()
        self.cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}

    def kept(self):
        path, = (self.folder / "cache" / "brim").glob("cpu-*.jsonl")
        return path, [json.loads(line) for line in path.read_text().splitlines()]

    def spoil(self, **more):
        path, (head, *lines) = self.kept()
        lines = [{**{key: value for key, value in line.items() if key not in ("doubted", "sure")}, **more,
                  "seconds": line["seconds"] / 100} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in [head, *lines]))
        return sum(line["seconds"] for line in lines)

    def run_it(self, run):
        return self.train(run, *self.AUTO, env=self.cache).err.count("but the device profile predicts")

    def test_times_that_steps_contradict_are_measured_again_until_confirmed(self):
        before = time.time()
        self.run_it("first")
        _, (_, *lines) = self.kept()
        for line in lines:
            self.assertTrue(before - 1 <= line["at"] <= time.time(), line)
        spoiled = self.spoil()
        self.assertEqual(self.run_it("doubts"), 1)
        _, (_, *lines) = self.kept()
        self.assertTrue([line for line in lines if line.get("doubted")])
        self.assertLess(sum(line["seconds"] for line in lines), 5 * spoiled)
        self.run_it("again")
        _, (_, *lines) = self.kept()
        self.assertGreater(sum(line["seconds"] for line in lines), 5 * spoiled)
        spoiled = self.spoil(sure=True)
        self.assertEqual(self.run_it("sure"), 0)
        self.assertNotIn("doubted", self.read("sure", "profile.jsonl"))
        result = self.brim("devices", "--forget-times", env=self.cache)
        self.assertIn("1 device profile deleted", result.err)
        self.assertEqual(list((self.folder / "cache" / "brim").glob("cpu-*.jsonl")), [])


class Precision(Times):
    def test_fp32_if_it_is_not_slower(self):
        self.make()
        result = self.choose("run", "precision=policy")
        self.assertIn(", precision fp32: ", result.err)
        self.assertIn("precision: fp32", self.read("run", "config.yaml"))

    def test_the_small_type_if_it_is_faster(self):
        self.make((None, "bf16", 0.01))
        result = self.choose("run", "precision=policy")
        self.assertRegex(result.err, r"policy\.auto_plan: micro-batch \d+ x \d+, precision bf16: ")
        self.assertIn("precision: bf16", self.read("run", "config.yaml"))
        again = self.train("again", "--from", "run")
        self.assertNotIn("precision", again.err)
        self.assert_same_checkpoint("run", "again", 2, ["model.safetensors"])

    def test_a_guess_changes_no_precision(self):
        result = self.train("run", *NET, *AUTO, "precision=policy", NO_TIMING)
        self.assertIn(", precision fp32: ", result.err)

    def test_where_fp32_does_not_fit_a_small_type_is_taken(self):
        self.make()
        result = self.train("run", *NET, "training.batch_size=256", "precision=policy", "memory.limit_mb=3", NO_TIMING,
                            "memory.profile=made.jsonl")
        self.assertRegex(result.err, "micro-batch 256 x 1, precision (bf16|fp16): ")

    def test_a_batch_size_that_is_given_stays(self):
        self.make((None, "bf16", 0.01))
        self.train("run", *NET, "training.batch_size=64", "precision=policy", "memory.profile=made.jsonl", NO_TIMING)
        self.assertEqual(self.cut_of("run"), 64)
        self.assertIn("precision: bf16", self.read("run", "config.yaml"))

    def test_without_a_choosing_policy_precision_is_fp32_with_a_message(self):
        result = self.train("run", *NET, "training.batch_size=64", "precision=policy", "policy=[]")
        self.assertIn("precision=policy: precision fp32: as no policy chooses another\n", result.err)
        self.assertIn("precision: fp32", self.read("run", "config.yaml"))

    def test_by_default_no_policy_changes_it(self):
        self.make((None, "bf16", 0.0001))
        self.choose("run")
        self.assertIn("precision: fp32", self.read("run", "config.yaml"))


class Files(Times):
    def test_kernels_are_timed_once(self):
        first = self.plan("training.batch_size=64")
        kept = {path.name: path.read_text() for path in (self.folder / "cache" / "brim").iterdir()}
        self.assertEqual(len(kept), 1)
        second = self.plan("training.batch_size=64")
        self.assertEqual(first["step_seconds"], second["step_seconds"])
        self.assertEqual(kept, {path.name: path.read_text() for path in (self.folder / "cache" / "brim").iterdir()})
        self.assertEqual(first["frontier"]["choices"][0]["basis"], "timed")

    def test_the_threads_have_a_file_each(self):
        self.plan("training.batch_size=64")
        self.plan("training.batch_size=64", "backend.threads=2")
        self.assertEqual(len(list((self.folder / "cache" / "brim").iterdir())), 2)

    def test_nothing_is_timed_without_need(self):
        plan = self.brim("plan", *NET, "training.batch_size=64", "--no-timing", "--json").json
        self.assertEqual({choice["basis"] for choice in plan["frontier"]["choices"]}, {"guessed"})
        self.assertIn("?", self.brim("plan", *NET, "training.batch_size=64", NO_TIMING).out)
        self.train("run", *NET, "training.batch_size=64")  # the micro-batch is fixed, so there is no choice
        kept = self.folder / "cache" / "brim"
        self.assertFalse(kept.exists() and any("conv2d" in path.read_text() for path in kept.iterdir()))
        self.assertFalse((self.folder / "run" / "profile.jsonl").exists())

    def test_the_time_of_a_step_is_shown_by_operation(self):
        net = [*NET, "training.batch_size=64", "training.effective_batch_size=256"]
        times = self.brim("plan", *net, "--times", "--json").json["times"]
        rows = {row["op"]: row for row in times["operations"]}
        whole = sum(row["seconds"] for row in times["operations"]) + times["rest_seconds"]
        self.assertAlmostEqual(whole, times["seconds"], delta=1e-9 * times["seconds"])
        self.assertEqual(rows["max_pool2d"]["times"], 4)  # max_pool2d has a time for each micro-batch; updates have one
        self.assertEqual({row["times"] for op, row in rows.items() if op == "adamw"}, {1})
        for row in times["operations"]:
            least = max(row["flops"] / times["flops_per_second"], row["bytes"] / times["bytes_per_second"])
            self.assertAlmostEqual(row["floor_seconds"], least, delta=1e-6 * least)
        above = [row["seconds"] - row["floor_seconds"] for row in times["operations"]]
        self.assertEqual(above, sorted(above, reverse=True))
        text = self.brim("plan", *net, "--times").out
        self.assertRegex(text, r"the time of a step, sorted.* GFLOP/s, the rate of a large matrix product")
        self.assertRegex(text, r"\nbesides operations .*\na step ")

    def test_no_times_are_shown_where_nothing_is_timed(self):
        for word in ("--no-timing", NO_TIMING):
            self.assert_error(self.brim("plan", *NET, "--times", word, status=USAGE), "timing is disabled: ")

    def test_a_damaged_cache_is_replaced_and_a_damaged_user_file_is_not(self):
        self.plan("training.batch_size=64")
        (kept,) = (self.folder / "cache" / "brim").iterdir()
        kept.write_text("nothing\n")
        result = self.brim("plan", *NET, "training.batch_size=64")
        self.assertIn("without a device profile: ", result.err)
        self.assertIn("conv2d", kept.read_text())
        (self.folder / "mine.jsonl").write_text('{"brim_profile": 1}\nnothing\n')
        result = self.brim("plan", *NET, "memory.profile=mine.jsonl", status=USAGE)
        self.assert_error(result, "mine.jsonl:2: ")
        (self.folder / "mine.jsonl").write_text('{"brim_profile": 1, "device": "another"}\n')
        result = self.brim("plan", *NET, "memory.profile=mine.jsonl", status=USAGE)
        self.assert_error(result, "the device profile ", " is for cpu on another, 1 threads, not for cpu on ")

    def test_a_run_resumes_with_its_own_copy(self):
        self.make((64, "", 0.5))
        self.choose("run", "training.checkpoint_every_steps=1", "training.keep_checkpoints=9")
        self.choose("whole", "training.checkpoint_every_steps=1", "training.keep_checkpoints=9")
        state = self.json("run", "checkpoints", "step-00000002", "state.json")
        value = 0xcbf29ce484222325
        for byte in (self.folder / "run" / "profile.jsonl").read_bytes():
            value = (value ^ byte) * 0x100000001b3 % 2**64
        self.assertEqual(state["profile_hash"], f"{value:016x}")
        self.forget("run")
        self.make((64, "", 99))  # as if the machine had become slow
        result = self.brim("train", "--resume", "run")
        self.assertIn("effective batch 256 = 64 x 4", result.out)
        self.assertNotIn("profile.jsonl is not what", result.err)
        self.assert_same_checkpoint("run", "whole", 2)
        self.forget("run")
        with open(self.folder / "run" / "profile.jsonl", "a") as file:
            file.write("\n")
        self.assertIn("run/profile.jsonl differs from the profile that the run began with",
                      self.brim("train", "--resume", "run").err)

    def forget(self, run):
        """Makes the run look as if it had been killed after its first step."""
        checkpoints = self.folder / run / "checkpoints"
        shutil.rmtree(checkpoints / "step-00000002")
        (checkpoints / "last").unlink()
        (checkpoints / "last").symlink_to("step-00000001")
        (self.folder / run / "summary.json").unlink()


class Frontier(Times):
    def test_less_memory_costs_time(self):
        for words in (["training.batch_size=64"], [*AUTO, "memory.recompute=auto", "memory.limit_mb=1"],
                      ["training.batch_size=64", "memory.recompute=full"]):
            with self.subTest(words):
                frontier = self.plan(*words)["frontier"]
                choices = frontier["choices"]
                self.assertEqual(sum(choice["chosen"] for choice in choices), 1)
                best = [choice for choice in choices if not choice["chosen"]]
                self.assertEqual([c["peak_bytes"] for c in best], sorted(c["peak_bytes"] for c in best))
                self.assertEqual([c["step_seconds"] for c in best],
                                 sorted((c["step_seconds"] for c in best), reverse=True))
                for choice in choices:
                    self.assertEqual(choice["fits"], choice["peak_bytes"] <= frontier["limit_bytes"])

    def test_peaks_are_those_of_the_plans(self):
        choices = self.plan("training.batch_size=128")["frontier"]["choices"]
        for choice in choices:
            if choice["recompute"] == "auto":
                continue
            plan = self.plan(f"training.batch_size={choice['batch_size']}", f"memory.recompute={choice['recompute']}",
                             f"training.gradient_accumulation_steps={choice['gradient_accumulation_steps']}",
                             "training.eval_batch_size=0")
            self.assertEqual(plan["peak_bytes"], choice["peak_bytes"])

    def test_precisions_are_shown_where_they_are_open(self):
        self.make((256, "bf16", 0.5))
        words = [*AUTO, "memory.profile=made.jsonl", NO_TIMING]
        self.assertNotIn("precision", self.brim("plan", *NET, *words).out)
        self.assertNotIn("precision", self.brim("plan", *NET, *words, "precision=auto").out)
        plan = self.plan(*words, "precision=policy")
        self.assertEqual([c["precision"] for c in plan["frontier"]["choices"] if c["chosen"]], ["bf16"])
        self.assertIn("fp32", {choice["precision"] for choice in plan["frontier"]["choices"]})
        self.assertIn("  precision  ", self.brim("plan", *NET, *words, "precision=policy").out)

    def test_the_limit_is_a_line_between_fitting_and_not_fitting(self):
        self.make((256, "", 0.1))
        out = self.brim("plan", *NET, *AUTO, "memory.limit_mb=2", "memory.profile=made.jsonl", NO_TIMING).out
        table = out[out.index("by the device profile:"):].splitlines()
        line = table.index("  ------ limit 2.0 MiB ------")
        self.assertTrue(any(row.startswith("*") for row in table[:line]))
        self.assertIn(" 256 ", table[line + 1])

    def test_the_time_of_recompute_is_reported(self):
        self.make()
        out = self.brim("plan", *NET, "training.batch_size=64", "memory.recompute=full", "memory.profile=made.jsonl",
                        NO_TIMING).out
        self.assertRegex(out, r"(?m)^recompute=full: \d+ operations? recomputed, .*"
                              r"predicted to take \d+\.\d % more time$")


if __name__ == "__main__":
    main()
