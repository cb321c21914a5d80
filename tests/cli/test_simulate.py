"""Tests brim simulate: policies in scripted worlds. The same command gives the same bytes, errors in scenarios are
reported with their position, and a run's record leads its policies to the same decisions."""

import json
import os
import pathlib

from support import LOAD, SMALL, USAGE, Case, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = pathlib.Path(os.environ["BRIM_ABI_PLUGINS"])
BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"])
SCENARIOS = sorted(path.stem for path in (ROOT / "configs" / "scenario").glob("*.yaml"))
ENDS = {"finished", "failed", "killed", "not done"}
COSTS = {"job", "end", "error", "device", "steps", "steps_all", "samples", "lost_steps", "ooms", "retries",
         "plan_changes", "cleanups", "decisions", "peak_bytes", "batch_size", "wall_seconds", "waiting_seconds",
         "training_seconds", "redone_seconds", "recompute_seconds", "paused_seconds", "samples_per_second"}
# Peaks with micro-batches of 32, 64 and 128: 1.4, 2.2 and 3.8 MiB.
CNN = ["model=cnn", "model.width=16", "dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=512",
       "dataset.test_count=64", "training.batch_size=64", "backend.threads=1", "memory.timing=false", "backend=cpu"]


class Simulate(Case):
    def simulate(self, *words, status=0):
        return self.brim("simulate", *words, status=status)

    def parsed(self, *words, status=0):
        return self.simulate(*words, "--json", status=status).json["simulations"]

    def one(self, *words, status=0):
        found, = self.parsed(*words, status=status)
        return found

    def scenario(self, text):
        (self.folder / "s.yaml").write_text(text)
        return "scenario=s.yaml"

    @staticmethod
    def decisions(simulation, job=None):
        return [(e["by"], e["choice"], e["reason"]) for e in simulation["timeline"]
                if e["job"] and e["by"] != "simulation" and (job is None or e["job"] == job)]

    # ---- all built-in scenarios ----

    def test_every_policy_ends_in_every_scenario_and_reproducibly(self):
        self.assertGreaterEqual(len(SCENARIOS), 12)
        policies = [p["id"] for p in self.brim("plugins", "policy", "--json").json["plugins"]]
        self.assertGreaterEqual(len(policies), 7)
        words = ["scenario=glob(*)", f"policy={','.join(policies)}"]
        all_of_them = self.parsed(*words)
        again = self.parsed("scenario=all_busy", words[1])
        self.assertEqual([s for s in all_of_them if s["words"][0] == "scenario=all_busy"], again)
        self.assertEqual(len(all_of_them), len(SCENARIOS) * len(policies))
        for simulation in all_of_them:
            self.assertTrue(simulation["about"], simulation["scenario"])
            self.assertEqual(simulation["policies"], [simulation["words"][1].partition("=")[2]])
            for job in simulation["jobs"]:
                self.assertEqual(set(job), COSTS)
                self.assertIn(job["end"], ENDS)
                self.assertEqual(job["end"] == "finished", job["steps"] == job["steps_all"] > 0, job)
                self.assertEqual(bool(job["error"]), job["end"] != "finished", job)
                spent = sum(job[f"{what}_seconds"] for what in ("waiting", "training", "redone", "paused"))
                self.assertLess(abs(spent - job["wall_seconds"]), 1e-6 * (1 + spent), job)
            times = [event["seconds"] for event in simulation["timeline"]]
            self.assertEqual(times, sorted(times))

    def test_the_table_of_several_runs_is_reproducible(self):
        words = ["scenario=two_jobs_racing", "policy=robust,[capped,robust],elastic"]
        first, second = (self.simulate(*words).out for _ in range(2))
        self.assertEqual(first, second)
        self.assertRegex(first, r"(?m)^\[capped,robust\] +second +finished")
        self.assertRegex(first, r"(?m)^elastic +second +failed")
        self.assertRegex(first, r"(?m)^elastic second: failed: the run needs ")

    def test_a_parameter_goes_to_the_policies_that_have_it(self):
        words = ["scenario=all_busy", "policy=fixed,[elastic,robust]", "policy.elastic.reserve_mb=100"]
        self.assertRegex(self.simulate(*words).out, r"(?m)^fixed .*\n\[elastic,robust\] ")
        world = self.scenario("devices: [{memory: 24GB}]\nsettings: {policy.elastic.reserve_mb: 100, training.steps: "
                              "10}\n")
        self.assertRegex(self.simulate(world, "policy=fixed,elastic").out, r"(?m)^fixed +finished")
        self.assertEqual(self.one(world, "policy=fixed")["jobs"][0]["end"], "finished")
        self.assertIn("'policy.swarm.x'", self.simulate(*words, "policy.swarm.x=1", status=USAGE).err)

    def test_a_parameter_that_is_swept_is_swept_for_its_policy_only(self):
        words = ["scenario=all_busy", "policy=fixed,elastic", "policy.elastic.reserve_mb=100,200"]
        rows = [line.split("  ")[0] for line in self.simulate(*words).out.splitlines()
                if line.startswith("policy=") and ": " not in line]
        self.assertEqual(rows, ["policy=fixed", "policy=elastic policy.elastic.reserve_mb=100",
                                "policy=elastic policy.elastic.reserve_mb=200"])
        shown = self.simulate(*words, "--json").json
        self.assertEqual([len(s["words"]) for s in shown["simulations"]], [2, 3, 3])

    # ---- decisions ----

    def test_a_smaller_micro_batch_where_every_device_is_busy(self):
        found = self.one("scenario=all_busy", "policy=robust")
        self.assertEqual([(by, choice) for by, choice, _ in self.decisions(found)],
                         [("policy.robust", "cuda:1"), ("policy.robust", "micro-batch 16 x 4")])
        self.assertEqual(found["jobs"][0]["ooms"], 1)
        self.assertEqual(self.one("scenario=all_busy", "policy=fixed")["jobs"][0]["end"], "failed")

    def test_waiting_is_long_and_costs_nothing_else(self):
        job, = self.one("scenario=all_busy", "policy=fixed", "wait_for_gpu=true",
                        "gpu_wait_timeout_minutes=600")["jobs"]
        self.assertEqual((job["end"], job["device"], job["batch_size"]), ("finished", "cuda:3", 64))
        self.assertGreaterEqual(job["waiting_seconds"], 7200)
        self.assertLess(job["waiting_seconds"], 7200 + 31)
        short, = self.one("scenario=all_busy", "policy=fixed", "wait_for_gpu=true",
                          "gpu_wait_timeout_minutes=60")["jobs"]
        self.assertEqual((short["end"], short["waiting_seconds"]), ("failed", 3600))

    def test_a_waiting_job_gets_the_returned_memory(self):
        kept, given = self.parsed("scenario=neighbour_comes_and_goes", "policy=fixed,elastic")
        self.assertGreater(kept["others"]["waited_seconds"], 9000)
        self.assertLess(given["others"]["waited_seconds"], 60)
        choices = [choice for by, choice, _ in self.decisions(given) if by == "policy.elastic"]
        self.assertTrue(choices[0].endswith("given back") and choices[1].endswith("taken again"), choices)
        self.assertEqual(given["jobs"][0]["plan_changes"], len(choices))
        self.assertEqual(given["jobs"][0]["ooms"], 0)
        self.assertEqual(kept["jobs"][0]["samples"], given["jobs"][0]["samples"])

    def test_cleaning_up_keeps_a_process_alive(self):
        killed, clean = (s["jobs"][0] for s in self.parsed("scenario=ram_pressure", "policy=fixed,periodic"))
        self.assertEqual((killed["end"], clean["end"]), ("killed", "finished"))
        self.assertGreater(killed["lost_steps"], 0)
        self.assertEqual(clean["cleanups"], 12)

    def test_the_ladder_is_that_of_a_run(self):
        found = self.one("scenario=intermittent_failure", "policy=robust")
        at = [(e["by"], e["choice"].partition(":")[0]) for e in found["timeline"] if e["step"] == 1499]
        self.assertEqual(at, [("recovery", "light cleanup, 1 of 3"), ("recovery", "heavy cleanup, 2 of 3"),
                              ("recovery", "heavy cleanup, 3 of 3"), ("recovery", "more recompute, 1 of 3"),
                              ("policy.robust", "micro-batch 32 x 2"), ("policy.robust", "micro-batch 16 x 4")])
        self.assertIn(("recovery", "back to step 3500", "step 4000: memory ran out, though the plan had been placed"),
                      self.decisions(found))
        self.assertEqual(found["jobs"][0]["lost_steps"], 2 * 499)
        undisturbed = self.one("scenario=nobody_else", "policy=robust")["jobs"][0]
        self.assertEqual(found["jobs"][0]["samples"] * undisturbed["steps"],  # lost samples count once
                         undisturbed["samples"] * found["jobs"][0]["steps"])

    def test_pressure_at_a_step_that_has_a_checkpoint_writes_no_other(self):
        world = ("devices: [{memory: 24GB}]\ncheckpoint_time: 5s\npressures: [{step: 50, bytes: 0}]\n"
                 "settings: {training.steps: 100, training.checkpoint_every_steps: 50}\n")
        job, = self.one(self.scenario(world), "policy=robust")["jobs"]
        self.assertEqual(job["paused_seconds"], 10)

    def test_a_smaller_model_and_half_precision(self):
        job, = self.one("scenario=cap_too_small", "policy=swarm", "policy.swarm.small_model=small")["jobs"]
        self.assertEqual(job["end"], "finished")
        wrong, = self.one("scenario=cap_too_small", "policy=swarm", "policy.swarm.small_model=tiny",
                          status=USAGE)["jobs"]
        self.assertEqual(wrong["error"], "model=tiny: the scenario has large and small")

    def test_a_users_policy_follows_the_scenarios_clock(self):
        world = "start: 2025-06-01 {}\ndevices: [{{memory: 24GB}}]\nsettings: {{training.steps: 10}}\n"
        for start, choice in (("19:59", "micro-batch 1 x 64"), ("20:00", "micro-batch 64 x 1")):
            found = self.one(self.scenario(world.format(start)), "--plugin-path", PLUGINS / "policy.so", "policy=night")
            self.assertEqual(self.decisions(found), [("policy.night", choice, f"it is {start[:2]} o'clock")])

    def test_a_text_that_is_not_utf8_is_in_the_json(self):
        os.mkdir(os.fsencode(self.folder) + b"/caf\xe9")
        (self.folder / os.fsdecode(b"caf\xe9") / "s.yaml").write_text("devices: [{memory: 24GB}]\n"
                                                                      "settings: {training.steps: 10}\n")
        done = self.brim("simulate", os.fsdecode(b"scenario=caf\xe9/s.yaml"), "policy=bad", f"--plugin-path={BAD}",
                         "--json", env={"BRIM_BAD": "choose_plan:latin"})
        found, = json.loads(done.out)["simulations"]
        self.assertEqual([reason for _, _, reason in self.decisions(found)], ["caf\ufffd"])
        self.assertEqual((found["scenario"], found["words"][0]), ("caf\ufffd/s.yaml", "scenario=caf\ufffd/s.yaml"))

    def test_a_limit_on_a_share_goes_by_names_of_the_scenario(self):
        world = self.scenario("backend: gpu\ndevices: [{memory: 8GB}, {memory: 8GB}]\n"
                              "model: {fixed: 1GB, sample: 100MB}\nsettings: {training.steps: 10}\n")
        found = self.one(world, "policy=[capped,robust]", "policy.capped.client=bob",
                         "policy.capped.shares={gpu:1: {bob: 3GB}}")
        self.assertEqual(self.decisions(found)[0][1], "gpu:1, at most 2.8 GiB")
        self.assertEqual((found["jobs"][0]["device"], found["jobs"][0]["batch_size"]), ("gpu:1", 16))

    def test_plans_are_of_the_model_that_is_named(self):
        world = self.scenario("devices: [{memory: 40MB}]\nsettings: {training.batch_size: 64, training.steps: 10, "
                              "memory.headroom_mb: 0}\n")
        plan = self.brim("plan", *CNN, "--json").json
        job, = self.one(world, *CNN)["jobs"]
        self.assertEqual((job["peak_bytes"], job["samples"]), (plan["peak_bytes"], 640))
        # Without *CNN, brim plans the scenario's own settings, which need more memory.
        self.assertNotEqual(self.one(world)["jobs"][0]["end"], "finished")
        held_back = self.one(world, *CNN, "memory.headroom_mb=auto")["jobs"][0]
        # headroom_mb=auto keeps as much memory free as on a real GPU of 40 MB.
        self.assertEqual((held_back["samples"], held_back["end"] == "finished"), (0, False))
        self.assertIn("no option 'mpl' in group 'model'", self.simulate(world, "model=mpl", status=USAGE).err)
        job, = self.one(world, *CNN, "policy=swarm", "policy.swarm.small_model=mlp", status=USAGE)["jobs"]
        self.assertIn("which policies cannot change here", job["error"])

    def test_a_scenario_ends_in_time(self):
        found = self.one(self.scenario("until: 100s\ndevices: [{memory: 24GB}]\nsettings: {training.steps: 100000}\n"))
        self.assertEqual((found["jobs"][0]["end"], found["end_seconds"]), ("not done", 100))

    def test_neighbours_make_steps_slow_while_they_are_there(self):
        """The steps take 100 s. For 40 s they are half as fast, so the run takes 20 s more."""
        slow = "{memory: 1GB, from: 30s, lasts: 40s, slows: 2}"
        for kind, device in (("programs", 0), ("programs", 1), ("runs", 0), ("runs", 1)):
            item = slow[:-1] + f", device: {device}}}"
            world = self.scenario(f"devices: [{{memory: 24GB}}, {{memory: 24GB}}]\n{kind}: [{item}]\n"
                                  "model: {sample_time: 1ms}\nsettings: {training.steps: 1000, training.batch_size: "
                                  "100, device: 'cuda:0', training.eval_every_steps: 1000000}\n")
            with self.subTest(kind=kind, device=device):
                job, = self.one(world, "policy=fixed")["jobs"]
                self.assertAlmostEqual(job["training_seconds"], 120 if device == 0 else 100, delta=0.3)

    def test_time_passes_however_often_a_run_looks(self):
        world = self.scenario("until: 10s\ndevices: [{memory: 24GB, used: 23GB}]\n")
        job, = self.one(world, "wait_for_gpu=true", "gpu_check_interval_seconds=1e-9")["jobs"]
        self.assertEqual((job["end"], job["wall_seconds"]), ("not done", 10))

    def test_the_largest_allowed_numbers(self):
        much = "1125899906842624"
        world = self.scenario(f"devices: [{{memory: {much}, used: 1GB}}]\nhost: {{memory: {much}, garbage: {much}}}\n"
                              f"programs: [{{memory: {much}, grows: {much}, device: -1, from: 1h}}]\nuntil: 2h\n"
                              "settings: {training.steps: 1000000}\n")
        job, = self.one(world, "training.eval_every_steps=9223372036854775807")["jobs"]
        self.assertEqual((job["end"], round(job["wall_seconds"])), ("killed", 3600))

    # ---- bad input ----

    def test_mistakes_are_reported_with_their_place(self):
        cases = [
            ("devices: [{memory: 1GB, usd: 1}]\n", "unknown key 'devices.usd' in a scenario\n  s.yaml:1:25\n"
             "  did you mean 'devices.used'?\n"),
            ("devcies: []\ndevices: [{memory: 1GB}]\n", "unknown key 'devcies' in a scenario\n  s.yaml:1:1\n"
             "  did you mean 'devices'?\n"),
            ("devices:\n  - {used: 1GB}\n", "'devices.memory' is missing\n  s.yaml:2:5\n"),
            ("devices:\n  - {memory: many}\n",
             "'devices.memory' must be a size: a whole number of bytes, or one with a "
             "unit (512MiB, 4GB), got many\n  s.yaml:2:14\n"),
            ("devices: [{memory: 1GB}]\nprograms: [{memory: 1GB, grows: 2000TiB}]\n",
             "'programs.grows' must be in [0,1125899906842624], got 2000TiB\n  s.yaml:2:33\n"),
            ("devices: [{memory: 1GB}]\nprograms: [{memory: 1GB, lasts: 1s, every: 1h}]\n"
             "runs: [{name: flood, memory: 1GB, lasts: 1ms, every: 1ms}]\n",
             "'flood' comes 2592000001 times, 2592000722 with those before it; the maximum is 300000\n  s.yaml:3:8\n"
             "  set a longer 'every', or an earlier end ('until')\n"),
            ("about: x\n", "s.yaml: a scenario needs at least one item in 'devices'\n"),
            ("devices: {memory: 1GB}\n", "'devices' must be a list\n  s.yaml:1:10\n"),
            ("devices: [1]\n", "an item of 'devices' must be a map of keys and values\n  s.yaml:1:11\n"),
            ("devices: [{memory: 1GB}]\nstart: soon\n",
             "'start' must be a time such as 2025-01-06 09:00, got soon\n  s.yaml:2:8\n"),
            ("devices: [{memory: 1GB}]\nruns: [{memory: 1GB, lasts: 1s, device: 1}]\n",
             "'runs.device' is 1, but the last of 'devices' is 0\n  s.yaml:2:8\n"),
            ("devices: [{memory: 1GB, use: [{at: 2s, bytes: 1}, {at: 2s, bytes: 2}]}]\n",
             "'at' must increase from item to item\n  s.yaml:1:51\n"),
            ("devices: [{memory: 1GB}]\nsettings: {max_retris: 1}\n",
             "unknown key 'max_retris'\n  s.yaml:2:12: max_retris=1\n  did you mean 'max_retries'?"),
            ("devices: [{memory: 1GB}]\njobs: [{settings: {" + ", ".join(f"k{i}: 1" for i in range(257)) + "}}]\n",
             "'settings' has 257 keys; the maximum is 256\n  s.yaml:2:19\n"),
            ("[", "not valid YAML"),
            ("", "a scenario must be a map of keys and values\n  s.yaml:1:1\n"),
        ]
        for text, reported in cases:
            with self.subTest(text=text):
                result = self.simulate(self.scenario(text), status=USAGE)
                self.assertIn(reported, result.err)
                self.assertEqual(result.out, "")

    def test_an_unknown_scenario(self):
        result = self.simulate("scenario=all_bussy", status=USAGE)
        self.assertIn("there is no scenario 'all_bussy', nor a file of that name\n  did you mean 'all_busy'?\n",
                      result.err)
        self.assertIn("  there are: " + ", ".join(SCENARIOS) + "\n", result.err)
        self.assertIn("no scenario is given", self.simulate("policy=robust", status=USAGE).err)
        self.simulate("scenario=nowhere.yaml", status=LOAD)
        self.assertIn("-o FILE needs --record", self.simulate("scenario=all_busy", "-o", "x.yaml", status=USAGE).err)

    def test_a_job_that_cannot_be_opened_has_failed(self):
        scenario = self.scenario("devices: [{memory: 8GiB}]\n")
        job, = self.one(scenario, "precision=bf16", status=USAGE)["jobs"]
        self.assertEqual((job["end"], job["steps"], job["steps_all"]), ("failed", 0, 0))
        self.assertIn("the scenario's model has only fp32", job["error"])

    def test_a_scenarios_key_on_the_command_line(self):
        result = self.simulate("scenario=all_busy", "until=1h", status=USAGE)
        self.assertEqual(result.err,
                         "error: 'until' is a key of scenarios: only their files can set it\n  command line, argument "
                         "2: until=1h\n  to change it, edit a copy of the file: scenario=FILE.yaml\n")
        self.assertIn("'host' is a key of", self.simulate("scenario=all_busy", "host.memory=1GB", status=USAGE).err)

    def test_it_is_not_a_key_of_a_run(self):
        self.assertIn("to try policies in a scenario: brim simulate scenario=all_busy\n",
                      self.brim("train", "scenario=all_busy", status=USAGE).err)
        self.assertNotIn("scenario", self.brim("config", "--groups").out)

    # ---- recorded runs ----

    def record(self, run):
        self.simulate("--record", run, "-o", f"{run}.yaml")
        return f"scenario={run}.yaml"

    def run_decisions(self, run):
        return [(e["step"], e["by"], e["choice"], e["reason"]) for e in self.records(run, "events.jsonl")
                if e["event"] == "decision"]

    def assert_same_decisions(self, run, *policy):
        """Asserts the same decisions in the same order at the same steps."""
        found = self.one(self.record(run), *policy)
        decided = [(e["step"], e["by"], e["choice"], e["reason"]) for e in found["timeline"]
                   if e["job"] and e["by"] not in ("simulation", "queue", "memory")]
        self.assertEqual(decided, self.run_decisions(run))
        self.assertEqual(found["jobs"][0]["end"], "finished")
        self.assertEqual(found["jobs"][0]["steps"], self.summary(run)["steps"])

    def test_a_recorded_run_leads_its_policies_to_the_same_decisions(self):
        share = ["backend.devices=1", "backend.memory_mb=2"]
        both = ["policy=[robust,periodic]", "policy.periodic.light_every_n_rounds=2"]
        self.train("both", *CNN, *share, *both, "training.epochs=5")
        self.assertGreater(len(self.run_decisions("both")), 4)
        self.assert_same_decisions("both", *both)
        auto = ["policy=auto_plan"]
        self.train("auto", *CNN, *share, *auto, "training.steps=4", "training.batch_size=auto",
                   "training.effective_batch_size=128")
        self.assertEqual(len(self.run_decisions("auto")), 1)
        self.assert_same_decisions("auto", *auto)

    def test_failures_are_recorded_too(self):
        self.train("failed", *SMALL, "training.steps=6",
                   env={"BRIM_FAULT": "step:3:begin:1,step:3:begin:2,step:5:begin:1"})
        decisions = self.run_decisions("failed")
        self.assertEqual([choice for _, by, choice, _ in decisions if by == "recovery"],
                         ["light cleanup, 1 of 3", "heavy cleanup, 2 of 3", "light cleanup, 1 of 3"])
        self.assert_same_decisions("failed")

    def test_a_run_that_waited_in_line_waits_again(self):
        share = ["backend.devices=1", "backend.memory_mb=4"]
        wait = ["wait_for_gpu=true", "gpu_check_interval_seconds=0.05"]
        both = ["policy=[robust,periodic]", "policy.periodic.light_every_n_rounds=2"]
        first = self.hold("first", *CNN, *share)
        second = self.start("train", "run.dir=second", *CNN, *share, *wait, *both, "training.epochs=5")
        self.until(lambda: len(self.brim("devices", "--json", "backend=cpu").json["queue"]) > 0, second)
        first.kill()
        self.finish(second, 0)
        self.assertGreater(self.summary("second")["queue_seconds"], 0)
        self.assert_same_decisions("second", *both, *wait)
        job, = self.one("scenario=second.yaml", *both, *wait)["jobs"]
        self.assertGreater(job["waiting_seconds"], 0)

    def test_measures_under_memory_pressure_are_recorded(self):
        """Memory use always exceeds the threshold. recompute is fixed, because records do not contain it."""
        fixed = ["memory.recompute=none", "memory.check_interval_seconds=0.002"]
        self.train("pressed", *CNN, *fixed, "training.epochs=5", "training.grain=16", "memory.critical_percent=0.01")
        decisions = self.run_decisions("pressed")
        self.assertIn(("recovery", "memory pressure"), [(by, reason) for _, by, _, reason in decisions])
        self.assertRegex(decisions[0][2], r"^micro-batch \d+ x \d+, a plan of .* instead of ")
        self.assert_same_decisions("pressed", fixed[0])

    def test_a_decision_without_a_failure_is_left_out(self):
        self.train("odd", *SMALL, "training.steps=2", env={"BRIM_FAULT": "step:2:begin:1"})
        events = self.folder / "odd" / "events.jsonl"
        events.write_text(events.read_text().replace('"reason":"step 2:', '"reason":"step 2'))
        self.assertNotIn("failures:", self.simulate("--record", "odd").out)

    def look(self, run, changes):
        """Adds device readings to a run's events, each a copy of the first one with some keys changed."""
        events = self.folder / run / "events.jsonl"
        first = next(e for e in self.records(run, "events.jsonl") if e.get("device"))
        with events.open("a") as file:
            for i, change in enumerate(changes):
                file.write(json.dumps({**first, "at": first["at"] + i + 1, **change}) + "\n")

    def test_devices_of_another_backend_are_left_out(self):
        self.train("run", *SMALL, "training.steps=2")
        before = self.simulate("--record", "run")
        self.look("run", [{"device": "cuda:0"}, {"device": "cp:0"}])
        after = self.simulate("--record", "run")
        self.assertEqual(after.out, before.out)
        self.assertEqual(after.err.count("it keeps only those of 'cpu'"), 1)
        self.assertIn("also considered cuda:0", after.err)

    def test_records_beyond_the_limit_are_left_out(self):
        self.train("run", *SMALL, "training.steps=2")
        self.look("run", [{"question": "step", "own_bytes": 4096 * i} for i in range(5000)])
        result = self.simulate("--record", "run", "-o", "cut.yaml")
        self.assertEqual(result.err.count("more than 800 changes in the use of its devices"), 1)
        self.simulate("scenario=cut.yaml")

    def test_the_command_to_simulate_a_record_is_printed(self):
        self.train("run", *SMALL, "training.steps=2", "policy=robust", "policy.robust.allow_cpu=false")
        result = self.simulate("--record", "run")
        self.assertIn("brim simulate scenario=FILE.yaml 'policy=[robust]' policy.robust.allow_cpu=false\n", result.err)
        (self.folder / "by_hand.yaml").write_text(result.out)
        self.simulate("scenario=by_hand.yaml")

    def test_a_run_without_recorded_data_is_refused(self):
        self.train("old", *SMALL, "training.steps=2")
        events = self.folder / "old" / "events.jsonl"
        events.write_text("".join(line for line in events.read_text().splitlines(True) if '"seen"' not in line))
        self.assertIn("do not record the input of its policies", self.simulate("--record", "old", status=LOAD).err)
        self.assertIn("there is no run 'none'", self.simulate("--record", "none", status=LOAD).err)

    # ---- command line ----

    def test_the_page_has_every_key(self):
        self.assertIn(self.simulate("--keys").out, (ROOT / "docs" / "simulate.md").read_text())

    def test_completion(self):
        def offered(line):
            return self.brim("complete", "--", line).out.split()
        self.assertEqual(offered("brim simulate scenario=all"), ["scenario=all_busy"])
        self.assertEqual(offered("brim simulate scenario=all_busy,tiny"), ["scenario=all_busy,tiny_gap"])
        self.assertIn("scenario=", offered("brim simulate sc"))
        self.assertEqual(offered("brim simulate policy=robust,sw"), ["policy=robust,swarm"])


if __name__ == "__main__":
    main()
