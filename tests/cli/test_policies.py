"""Tests that policies decide when memory is short. Devices are shares of the host with limits, which a network of a few
megabytes fills; decisions are in the log and in events.jsonl, and change no number."""

import os
import pathlib
import re
import shutil
import signal

from support import NO_FIT, SMALL, USAGE, Case, main

PLUGINS = pathlib.Path(os.environ["BRIM_ABI_PLUGINS"])
BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"])

# Nothing is timed, so larger micro-batches count as faster: guesses do not depend on the machine. Micro-batches of 16
# and more are multiples of the grain. The peaks are 1.4 MiB for 32, 2.2 for 64, 3.8 for 128, 6.9 for 256, and then
# double each time; channels are multiples of 16, so that no processor pads them.
CNN = ["model=cnn", "model.width=16", "dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=1024",
       "dataset.test_count=64", "backend.threads=1", "training.steps=2", "memory.timing=false"]
# No micro-batch fits into a MiB.
LARGE = ["model=mlp", "model.hidden=[2048]", "dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=256",
         "dataset.test_count=64", "backend.threads=1", "training.steps=2", "memory.timing=false"]
WEIGHTS = ["model.safetensors", "optimizer.safetensors"]


def devices_of(mebibytes, count=2):
    return ["backend=cpu", f"backend.devices={count}", f"backend.memory_mb={mebibytes}"]


class Policies(Case):
    def decisions(self, run):
        """Returns [(policy, decision)]. Each must be an event with a reason, and one line of the log."""
        return [(event["by"], event["choice"]) for event in self.records(run, "events.jsonl")
                if event["event"] == "decision"]

    def choices(self, run, policy):
        return [choice for by, choice in self.decisions(run) if by == f"policy.{policy}"]

    def assert_decided(self, result, run, policy, choices):
        self.assertEqual(self.choices(run, policy), choices, result)
        self.assertEqual(self.lines(result, policy), choices)
        for event in self.records(run, "events.jsonl"):
            if event["event"] == "decision":
                reason = f": {event['reason']}" if event["reason"] else ""
                self.assertIn(f"{event['by']}: {event['choice']}{reason}\n", result.err)

    def lines(self, result, policy):
        """Returns the decisions from the log of a run that did not begin."""
        return re.findall(rf"(?m)^(?:\[.*\] )?policy\.{policy}: (.*?)(?:: .*)?$", result.err)

    def reasons(self, run):
        return [event["reason"] for event in self.records(run, "events.jsonl") if event["event"] == "decision"]

    def batch_of(self, run):
        return self.json(run, "plan.json")["batch_size"]

    def peak_of(self, run):
        return self.json(run, "plan.json")["peak_bytes"]

    def forget_the_end(self, run):
        """Makes the run look as if it had been killed after its first step."""
        for step in self.steps(run)[1:]:
            shutil.rmtree(self.checkpoint(run, step))
        for name in ("last", "best"):
            link = self.folder / run / "checkpoints" / name
            if link.is_symlink():
                link.unlink()
                link.symlink_to(f"step-{self.steps(run)[0]:08d}")
        (self.folder / run / "summary.json").unlink()

    def edit(self, run, old, new):
        path = self.folder / run / "config.yaml"
        text = path.read_text()
        self.assertRegex(text, rf"(?m)^ *{re.escape(old)}$")
        path.write_text(re.sub(rf"(?m)^( *){re.escape(old)}$", rf"\g<1>{new}", text))

    def look(self, *words):
        found = self.brim("devices", "--json", *words).json["devices"]
        return [device for device in found if device["backend"] == "cpu"]


class Robust(Policies):
    BATCH = ["policy=robust", "training.batch_size=1024"]

    def test_a_plan_that_is_too_large_is_the_largest_that_fits_at_once(self):
        """The policy finds this plan before any allocation fails, so it does not need a retry."""
        for retries in (0, 3):
            run = f"run{retries}"
            result = self.train(run, *CNN, *self.BATCH, *devices_of(5), f"max_retries={retries}")
            self.assert_decided(result, run, "robust", ["cpu:0", "micro-batch 128 x 8"])
            self.assertRegex(self.reasons(run)[1],
                             r"^the largest that fits; it needs 3\.\d MiB, cpu:0 has room for 5\.0 MiB, "
                             r"and the last plan needed 2\d\.\d MiB$")
            self.assertIn("effective batch 1024 = 128 x 8", result.out)
            self.assertLessEqual(self.peak_of(run), 5 << 20)

    def test_no_decision_changes_a_bit(self):
        self.train("whole", *CNN, "training.batch_size=1024", "backend=cpu")
        self.train("less", *CNN, *self.BATCH, *devices_of(5))
        self.train("least", *CNN, *self.BATCH, *devices_of(2))
        self.train("auto", *CNN, "training.effective_batch_size=1024", "training.batch_size=auto", *devices_of(2))
        self.assertEqual([self.batch_of(run) for run in ("whole", "less", "least", "auto")], [1024, 128, 32, 32])
        for run in ("less", "least", "auto"):
            self.assert_same_checkpoint("whole", run, 2, WEIGHTS)

    def test_where_no_micro_batch_fits_the_other_device_is_tried_but_not_the_host(self):
        result = self.train("run", *CNN, *self.BATCH, *devices_of(5), "min_batch_size=256", status=NO_FIT)
        self.assertEqual(self.lines(result, "robust"), ["cpu:0", "cpu:1"])
        self.assert_error(result, "but the device has 5.0 MiB free", "at its peak, in ", "parameters ",
                          "no smaller training.batch_size fits: the nearest, 256, needs 6.9 MiB",
                          "micro-batches cannot be smaller than 256 because of min_batch_size=256")
        self.assertFalse((self.folder / "run").exists())

    def test_a_share_of_the_host_is_not_left_by_any_policy(self):
        """The user set the device's limit. Then a test's policy asks to leave the device, which brim refuses."""
        policy = ["--plugin-path", PLUGINS / "policy.so"]
        words = [*CNN, "policy=to_host", "training.batch_size=1024", "min_batch_size=256"]
        result = self.brim(*policy, "train", *words, *devices_of(5), "run.dir=run", status=NO_FIT)
        self.assert_error(result, "but the device has 5.0 MiB free",
                          "no smaller training.batch_size fits: the nearest, 256",
                          "the host's processors cannot help", "backend.memory_mb")
        self.assertEqual(self.lines(result, "to_host"), ["the host's processors"])

    def test_a_device_full_of_other_processes_is_not_taken(self):
        two = devices_of(16)
        self.hold_still("one", *CNN, *two, "device=cpu:0", "training.batch_size=512")
        result = self.train("run", *CNN, *two, "policy=robust", "training.batch_size=256")
        self.assert_decided(result, "run", "robust", ["cpu:1"])
        self.assertRegex(self.reasons("run")[0], r"^16\.0 MiB of 16\.0 MiB are free, the most of 2 devices$")

    def test_it_moves_off_a_device_that_is_too_full(self):
        """The first device has the most free memory, but too little. The second has even less."""
        two = devices_of(16)
        for device in (0, 1):
            self.hold_still(f"hold{device}", *CNN, *two, f"device=cpu:{device}",
                            f"training.batch_size={(256, 512)[device]}")
        words = [*CNN, *two, "policy=robust", "training.batch_size=512"]
        result = self.train("run", *words, "min_batch_size=512", status=NO_FIT)
        self.assertEqual(self.lines(result, "robust"), ["cpu:0", "cpu:1"])
        result = self.train("less", *words, "max_retries=0")
        self.assert_decided(result, "less", "robust", ["cpu:0", "micro-batch 256 x 2"])

    def test_the_least_free_memory_applies_to_each_device(self):
        two = devices_of(16)
        self.hold_still("one", *CNN, *two, "device=cpu:1", "training.batch_size=512")
        result = self.train("first", *CNN, *two, "policy=robust", "training.batch_size=64", "min_gpu_memory_mb=16")
        self.assert_decided(result, "first", "robust", ["cpu:0"])
        result = self.train("large", *CNN, *two, "policy=robust", "training.batch_size=64", "min_gpu_memory_mb=17",
                            status=NO_FIT)
        self.assert_error(result, "no device of backend 'cpu' has 17.0 MiB free (min_gpu_memory_mb)")
        # The run does not move to a device with less free memory than min_gpu_memory_mb.
        result = self.train("none", *CNN, *two, "policy=robust", "training.batch_size=1024", "min_gpu_memory_mb=16",
                            "min_batch_size=1024", status=NO_FIT)
        self.assertEqual(self.lines(result, "robust"), ["cpu:0"])

    def test_a_device_that_is_named_is_not_left_for_another(self):
        result = self.train("run", *CNN, *self.BATCH, *devices_of(5), "device=cpu:1", "min_batch_size=256",
                            status=NO_FIT)
        self.assertEqual(self.lines(result, "robust"), [])

    def test_the_device_that_the_environment_names_is_named(self):
        result = self.train("run", *CNN, "policy=robust", *devices_of(64), env={"GPU_DEVICE_ID": "1"})
        self.assertEqual(self.decisions("run"), [])
        self.assertIn("device=auto chooses cpu:1 of 2, as GPU_DEVICE_ID says", result.err)
        result = self.train("bad", *CNN, "policy=robust", *devices_of(64), env={"GPU_DEVICE_ID": "2"}, status=NO_FIT)
        self.assert_error(result, "GPU_DEVICE_ID is '2', but backend 'cpu' has 2 devices")

    def test_it_moves_to_a_device_with_room_and_continues_there(self):
        """Another policy chose the first device, because it ignores the memory of other processes."""
        two = devices_of(16)
        self.hold_still("one", *CNN, *two, "device=cpu:0", "training.batch_size=512")
        result = self.brim("--plugin-path", PLUGINS / "policy.so", "train", *CNN, *two, "policy=[first,robust]",
                           "training.batch_size=512", "min_batch_size=128", "run.dir=run")
        self.assert_decided(result, "run", "first", ["cpu:0"])
        self.assert_decided(result, "run", "robust", ["cpu:1"])
        self.assertIn("effective batch 512 = 512 x 1", result.out)
        self.train("plain", *CNN, "training.batch_size=512", "backend=cpu")
        self.assert_same_checkpoint("plain", "run", 2, WEIGHTS)

    def test_a_plan_that_fits_is_not_changed(self):
        result = self.train("run", *CNN, "policy=robust", "training.batch_size=64", "backend=cpu")
        self.assertEqual(self.decisions("run"), [], result)

    def test_a_run_may_wait_for_a_device(self):
        one = devices_of(16, 1)
        holder = self.hold_still("one", *CNN, *one, "training.batch_size=512")
        process = self.start("train", "run.dir=two", *CNN, *one, "policy=robust", "training.batch_size=512",
                             "wait_for_gpu=true", "gpu_check_interval_seconds=0.05")
        self.until(lambda: self.brim("devices", "--json", *one).json["queue"], process)
        holder.kill()
        self.finish(process, 0)
        self.assertEqual(self.batch_of("two"), 512)
        self.assertEqual(self.decisions("two"), [])


class Auto(Policies):
    AUTO = ["training.batch_size=auto", "training.effective_batch_size=1024"]

    def test_the_largest_micro_batch_that_fits(self):
        for limit, batch in ((2, 32), (5, 128), (9, 256), (64, 1024)):
            with self.subTest(limit):
                run = f"run{limit}"
                result = self.train(run, *CNN, *self.AUTO, "backend=cpu", f"memory.limit_mb={limit}")
                self.assert_decided(result, run, "auto_plan", [f"micro-batch {batch} x {1024 // batch}"])
                self.assertEqual(self.batch_of(run), batch)
                self.assertLessEqual(self.peak_of(run), limit << 20)
                if batch < 1024:  # the next larger micro-batch does not fit
                    self.train("more", *CNN, f"training.batch_size={2 * batch}", "backend=cpu",
                               f"memory.limit_mb={limit}", f"training.gradient_accumulation_steps={512 // batch}",
                               status=NO_FIT)

    def test_the_effective_batch_is_that_of_the_other_keys(self):
        for words, effective in (([], 64), (["training.batch_size=16"], 16),
                                 (["training.gradient_accumulation_steps=2"], 128)):
            with self.subTest(words):
                result = self.train(f"run{effective}", *CNN, "backend=cpu", *words, "training.batch_size=auto")
                self.assertIn(f"effective batch {effective} = {effective} x 1", result.out)
        result = self.brim("train", "--config-name", "robust", *CNN, "policy=auto_plan", "training.batch_size=auto",
                           "backend=cpu", "run.dir=robust")
        self.assertIn("effective batch 128 = 128 x 1", result.out)

    def test_nothing_fits(self):
        result = self.train("run", *LARGE, *self.AUTO, "backend=cpu", "memory.limit_mb=1", status=NO_FIT)
        self.assert_error(result, "memory.limit_mb allows 1.0 MiB", "at its peak, in ", "parameters ", "optimizer ",
                          "training.batch_size=1 is already the smallest possible")
        self.assertIn("policy.auto_plan: micro-batch 1 x 1024: the smallest, and still too large for cpu:0\n",
                      result.err)

    def test_the_reason_for_a_lower_limit_of_micro_batches_is_reported(self):
        result = self.train("run", *CNN, *self.AUTO, "backend=cpu", "memory.limit_mb=2", "min_batch_size=64",
                            status=NO_FIT)
        self.assert_error(result, "training.batch_size=64 is already the smallest possible",
                          "micro-batches cannot be smaller than 64 because of min_batch_size=64")

    def test_a_given_batch_size_is_kept(self):
        result = self.train("run", *CNN, "training.batch_size=64", "backend=cpu", "memory.limit_mb=2", status=NO_FIT)
        self.assertNotIn("policy.", result.err)

    def test_no_policy_chooses_a_micro_batch(self):
        result = self.train("run", *CNN, *self.AUTO, "policy=[]", status=USAGE)
        self.assert_error(result, "training.batch_size=auto, and none of the policies chooses a micro-batch",
                          "policy+=auto_plan")

    def test_a_resumed_run_keeps_its_micro_batch(self):
        words = [*CNN, *self.AUTO, "backend=cpu", "memory.limit_mb=5", "training.checkpoint_every_steps=1",
                 "training.keep_checkpoints=10"]
        self.train("whole", *words)
        for run, limit, batch in (("more", 64, 128), ("less", 2, 32)):
            with self.subTest(run):
                self.train(run, *words)
                self.forget_the_end(run)
                self.edit(run, "limit_mb: 5", f"limit_mb: {limit}")
                result = self.brim("train", "--resume", run)
                self.assertIn(f"effective batch 1024 = {batch} x {1024 // batch}", result.out)
                self.assert_same_checkpoint("whole", run, 2, WEIGHTS)

    def test_the_micro_batch_may_be_edited_but_not_the_effective_batch(self):
        words = [*CNN, "training.batch_size=256", "backend=cpu", "training.checkpoint_every_steps=1",
                 "training.keep_checkpoints=10"]
        self.train("run", *words)
        self.train("whole", *words)
        self.forget_the_end("run")
        self.edit("run", "batch_size: 256", "batch_size: 128")
        self.assert_error(self.brim("train", "--resume", "run", status=USAGE),
                          "'training.batch_size' was edited: the run "
                          "began with 256, now it is 128")
        self.edit("run", "effective_batch_size: 0", "effective_batch_size: 512")
        self.assert_error(self.brim("train", "--resume", "run", status=USAGE),
                          "'training.effective_batch_size' was edited")
        self.edit("run", "effective_batch_size: 512", "effective_batch_size: 256")
        self.edit("run", "batch_size: 128", "batch_size: auto")
        self.edit("run", "id: [auto_plan]", "id: [fixed]\n  fixed: {micro_batch: 64}")
        result = self.brim("train", "--resume", "run")
        self.assertIn("effective batch 256 = ", result.out)
        self.assert_same_checkpoint("whole", "run", 2, WEIGHTS)


class Order(Policies):
    AUTO = ["training.batch_size=auto", "training.effective_batch_size=1024", "backend=cpu"]

    def test_the_first_that_decides_wins(self):
        result = self.train("fixed", *CNN, *self.AUTO, "policy=[fixed,auto_plan]", "policy.fixed.micro_batch=64")
        self.assertEqual(self.decisions("fixed"), [("policy.fixed", "micro-batch 64 x 16")], result)
        result = self.train("auto", *CNN, *self.AUTO, "policy=[auto_plan,fixed]", "policy.fixed.micro_batch=64")
        self.assertEqual(self.decisions("auto"), [("policy.auto_plan", "micro-batch 1024 x 1")], result)

    def test_a_policy_that_abstains_leaves_the_decision_to_the_next(self):
        result = self.train("run", *CNN, *self.AUTO, "policy=[fixed,auto_plan]")
        self.assertEqual(self.decisions("run"), [("policy.auto_plan", "micro-batch 1024 x 1")], result)

    def test_fixed_gives_up(self):
        words = [*CNN, "training.batch_size=1024", *devices_of(5)]
        result = self.train("run", *words, "policy=[fixed,robust]", status=NO_FIT)
        self.assertEqual(self.lines(result, "fixed"), ["micro-batch 1024 x 1", "gives up"])
        # Policy fixed leaves the choice of the device to robust.
        self.assertEqual(self.lines(result, "robust"), ["cpu:0"])
        self.assert_error(result, "but the device has 5.0 MiB free", "would fit")
        self.train("other", *words, "policy=[robust,fixed]")

    def test_an_impossible_choice_is_refused(self):
        result = self.train("run", *CNN, *self.AUTO, "policy=fixed", "policy.fixed.micro_batch=96", status=USAGE)
        self.assert_error(result,
                          "policy.fixed chose the micro-batch 96, which is not allowed: micro-batches divide "
                          "the effective batch 1024, range from 1024 down to 1, and respect training.grain")

    def test_no_policy_decides_about_devices_before_one_that_limits(self):
        table = "policy.capped.shares={cpu:1: {a: 9MB}}"
        result = self.train("run", *CNN, *devices_of(64), "policy=[robust,capped]", table, "policy.capped.client=a",
                            status=USAGE)
        self.assert_error(result, "policy 'capped' limits a run's memory", "write policy=[capped,robust]")

    def test_the_configured_micro_batch_is_not_restricted(self):
        for words in (["training.batch_size=24"], ["training.batch_size=32", "min_batch_size=64"]):
            result = self.train(words[0], *CNN, "policy=fixed", *words, "training.gradient_accumulation_steps=4")
            self.assertIn(" x 4; run folder", result.out)

    def test_plan_decides_as_train_does(self):
        words = [*CNN, *devices_of(9), "policy=robust", "training.batch_size=1024", "policy.robust.allow_cpu=false"]
        chosen = self.brim("plan", "--json", *words).json["batch_size"]
        self.assertLess(chosen, 1024)
        self.train("run", *words)
        self.assertEqual(self.json("run", "plan.json")["batch_size"], chosen)

    def test_a_users_policy_decides_before_robust(self):
        words = [*CNN, "training.batch_size=1024", *devices_of(5)]
        argv = ["--plugin-path", PLUGINS / "policy.so", "train", *words, "run.dir=run"]
        result = self.brim(*argv, "policy=[mine,robust]", status=NO_FIT)
        self.assertIn("policy.mine: gives up: policy of the test\n", result.err)
        self.assertEqual(self.lines(result, "robust"), ["cpu:0"])
        self.brim(*argv, "policy=[robust,mine]")
        self.assertNotIn("policy.mine", dict(self.decisions("run")))
        self.assert_error(self.train("none", *words, "policy=mine", status=USAGE), "no option 'mine' in group 'policy'")


class View(Policies):
    """The view of the steps that on_step receives."""

    def test_the_time_of_a_step_is_without_evaluations(self):
        """Each step of 8 samples is followed by an evaluation of 2,048, which the difference of two clock readings
        would include."""
        process = self.start("train", "run.dir=run", *LARGE, "dataset.test_count=2048", "training.batch_size=8",
                             "training.steps=100000", "training.eval_every_steps=1", "training.num_workers=0",
                             "policy=[bad]", f"--plugin-path={BAD}", env={"BRIM_BAD": "on_step:view"})
        events = self.folder / "run/events.jsonl"
        self.until(lambda: events.exists() and events.read_text().count("with all else") >= 4, process)
        process.send_signal(signal.SIGTERM)
        self.finish(process)
        reasons = [e["reason"] for e in self.records("run", "events.jsonl") if "with all else" in e.get("reason", "")]
        times = []
        for reason in reasons:
            found = re.fullmatch(r"step (\S+), with all else (\S+), users 0", reason)
            self.assertTrue(found, reason)
            times.append([float(text) for text in found.groups()])
            self.assertGreater(times[-1][0], 0)
        # Other processes may have delayed some steps.
        self.assertTrue(any(3 * step < whole for step, whole in times), times)


class Swarm(Policies):
    """Presets by memory: the limit for "small" is scaled to the devices of the test."""

    WORDS = ["policy=swarm", "training.batch_size=auto", "training.effective_batch_size=8"]
    MODEL = [*CNN, "training.steps=4", "training.checkpoint_every_steps=1", "training.keep_checkpoints=10"]

    def test_micro_batches_by_memory(self):
        for small, medium, batch in ((0.1, 0.2, 1), (0.05, 0.2, 2), (0.05, 0.06, 8)):
            with self.subTest((small, medium)):
                run = f"run{batch}"
                result = self.train(run, *CNN, *self.WORDS, *devices_of(64), f"policy.swarm.small_below_gb={small}",
                                    f"policy.swarm.medium_below_gb={medium}")
                self.assert_decided(result, run, "swarm", [f"micro-batch {batch} x {8 // batch}"])
                self.assertIn(f"effective batch 8 = {batch} x {8 // batch}", result.out)

    def test_a_smaller_model_by_the_memory_of_all_devices(self):
        table = ["policy.swarm.small_model=mlp", "policy.swarm.small_below_gb=0.01",
                 "policy.swarm.medium_below_gb=0.01"]
        for below, model in ((0.2, "mlp"), (0.1, "cnn")):  # two devices of 64 MiB are 0.134 GB
            with self.subTest(below):
                result = self.train(model, *CNN, *self.WORDS, *devices_of(64), *table,
                                    f"policy.swarm.model_below_gb={below}")
                self.assertRegex(self.read(model, "config.yaml"), rf"(?m)^model:\n  id: {model}$")
                first = self.choices(model, "swarm")[0]
                self.assertEqual(first, "micro-batch 8 x 1" + (", model mlp" if model == "mlp" else ""), result)

    def test_a_resumed_run_keeps_the_smaller_model(self):
        self.train("run", *self.MODEL, *self.WORDS, *devices_of(64), "policy.swarm.small_model=mlp")
        self.assertEqual(self.choices("run", "swarm"), ["micro-batch 1 x 8, model mlp", "micro-batch 1 x 8"])
        shutil.copytree(self.folder / "run", self.folder / "other", symlinks=True)
        self.forget_the_end("other")
        self.brim("train", "--resume", "other")
        self.assertRegex(self.read("other", "config.yaml"), r"(?m)^model:\n  id: mlp$")
        self.assert_same_checkpoint("run", "other", 4, WEIGHTS)

    WIDE = [*(word for word in CNN if word != "model.width=16"), "model.width=64"]  # takes about 10 MiB

    def test_out_of_memory_is_micro_batch_1(self):
        for batch in (1, 2):
            self.train(f"plain{batch}", *self.WIDE, f"training.batch_size={batch}", *devices_of(64),
                       f"training.gradient_accumulation_steps={8 // batch}")
        share = (self.peak_of("plain1") + self.peak_of("plain2")) / 2 / (64 << 20)
        result = self.train("run", *self.WIDE, *self.WORDS, *devices_of(64), "policy.swarm.small_below_gb=0",
                            f"memory.limit={share}")
        self.assert_decided(result, "run", "swarm", ["micro-batch 2 x 4", "micro-batch 1 x 8"])
        self.assert_same_checkpoint("plain1", "run", 2, WEIGHTS)

    def test_out_of_memory_with_micro_batch_1_is_a_smaller_model(self):
        large = ["policy.swarm.small_below_gb=0", "policy.swarm.medium_below_gb=0", "policy.swarm.model_below_gb=0"]
        words = [*self.WIDE, *self.WORDS, *devices_of(5), *large]
        result = self.train("run", *words, "policy.swarm.small_model=mlp")
        self.assert_decided(result, "run", "swarm",
                            ["micro-batch 1 x 8", "micro-batch 1 x 8, model mlp", "micro-batch 8 x 1"])
        self.assertRegex(self.read("run", "config.yaml"), r"(?m)^model:\n  id: mlp$")
        result = self.train("none", *words, status=NO_FIT)
        self.assert_error(result, "but the device has 5.0 MiB free",
                          "training.batch_size=1 is already the smallest possible")


class Capped(Policies):
    TABLE = "policy.capped.shares={cpu:0: {alice: 0.5, server: 16MB}, cpu:1: {bob: 0.25}}"

    def test_each_client_has_its_device_and_its_cap(self):
        for client, device, cap in (("alice", 0, "32.0 MiB"), ("server", 0, "15.3 MiB"), ("bob", 1, "16.0 MiB")):
            with self.subTest(client):
                result = self.train(client, *CNN, *devices_of(64), "policy=capped", self.TABLE,
                                    f"policy.capped.client={client}")
                self.assert_decided(result, client, "capped", [f"cpu:{device}, at most {cap}"])

    def test_the_environment_names_the_client_and_the_key_comes_first(self):
        words = [*CNN, *devices_of(64), "policy=capped", self.TABLE]
        result = self.train("a", *words, env={"CLIENT_ID": "bob"})
        self.assert_decided(result, "a", "capped", ["cpu:1, at most 16.0 MiB"])
        result = self.train("b", *words, "policy.capped.client=alice", env={"CLIENT_ID": "bob"})
        self.assert_decided(result, "b", "capped", ["cpu:0, at most 32.0 MiB"])

    def test_a_table_of_more_than_all_is_refused_for_every_client(self):
        table = "policy.capped.shares={cpu:0: {alice: 0.5, bob: 0.6}, cpu:1: {carol: 0.1}}"
        for client in ("alice", "bob", "carol"):
            result = self.train("run", *CNN, *devices_of(64), "policy=capped", table, f"policy.capped.client={client}",
                                status=USAGE)
            self.assert_error(result, "the shares of cpu:0 add up to 110 % of it: 70.4 MiB of 64.0 MiB",
                              "32.0 MiB alice + 38.4 MiB bob")
        table = "policy.capped.shares={cpu:0: {alice: 0.5, bob: 0.5}}"  # the shares add up to the whole device
        self.train("run", *CNN, *devices_of(64), "policy=capped", table, "policy.capped.client=bob")

    def test_bytes_count_with_fractions(self):
        table = "policy.capped.shares={cpu:0: {alice: 0.5, bob: 40MiB}}"
        result = self.train("run", *CNN, *devices_of(64), "policy=capped", table,
                            "policy.capped.client=bob", status=USAGE)
        self.assert_error(result, "add up to 112.5 % of it: 72.0 MiB of 64.0 MiB")

    def test_a_client_missing_from_the_table_is_refused(self):
        words = [*CNN, *devices_of(64), "policy=capped", self.TABLE]
        result = self.train("run", *words, "policy.capped.client=mallory", status=USAGE)
        self.assert_error(result, "client 'mallory' has no share of a device of this backend",
                          "policy.capped.shares has: alice of cpu:0, server of cpu:0, bob of cpu:1")
        self.assert_error(self.train("run", *words, status=USAGE), "policy.capped.client, or $CLIENT_ID, must name")

    def test_another_device_than_the_clients_is_refused(self):
        words = [*CNN, *devices_of(64), "policy=capped", self.TABLE, "policy.capped.client=bob"]
        self.assert_error(self.train("run", *words, "device=cpu:0", status=USAGE),
                          "device=cpu:0, but client 'bob' has a share only of cpu:1")
        self.train("run", *words, "device=cpu:1")

    def test_a_plan_over_the_cap_is_refused_or_made_smaller(self):
        words = [*CNN, "training.batch_size=1024", *devices_of(64), self.TABLE, "policy.capped.client=server",
                 "policy.capped.shares={cpu:0: {server: 8MiB}}"]
        self.assert_error(self.train("run", *words, "policy=capped", status=NO_FIT), "but the policy allows 8.0 MiB",
                          "training.batch_size=256 training.gradient_accumulation_steps=4 would fit")
        self.train("robust", *words, "policy=[capped,robust]")
        self.assertLessEqual(self.peak_of("robust"), 8 << 20)
        self.assertEqual(self.decisions("robust")[0], ("policy.capped", "cpu:0, at most 8.0 MiB"))
        words[words.index("training.batch_size=1024")] = "training.effective_batch_size=1024"
        self.train("auto", *words, "policy=[capped,auto_plan]", "training.batch_size=auto")
        self.assertEqual(self.batch_of("auto"), 256)

    def test_a_client_that_does_not_fit_moves_to_no_other_device(self):
        """The run moves neither to the other client's device nor to the host's processors, even if other policies in
        the list would do so."""
        for client, device in (("alice", 0), ("bob", 1)):
            words = [*CNN, "training.batch_size=1024", *devices_of(64), f"policy.capped.client={client}",
                     f"policy.capped.shares={{cpu:{device}: {{{client}: 2MiB}}}}"]
            result = self.train("run", *words, "policy=[capped,robust]", "min_batch_size=256", status=NO_FIT)
            self.assertEqual(self.lines(result, "robust"), [])
            self.assert_error(result, "but the policy allows 2.0 MiB",
                              "no smaller training.batch_size fits: the nearest, 256")
            result = self.brim("--plugin-path", PLUGINS / "policy.so", "train", *words, "policy=[capped,mover]",
                               "run.dir=run", status=USAGE)
            self.assert_error(
                result, f"policy.mover chose another device, but the run has a memory limit on cpu:{device}")
        self.assertFalse((self.folder / "run").exists())

    def test_the_environments_device_must_be_the_clients(self):
        words = [*CNN, *devices_of(64), "policy=capped", self.TABLE, "policy.capped.client=bob"]
        self.train("run", *words, env={"GPU_DEVICE_ID": "1"})
        self.assert_error(self.train("other", *words, env={"GPU_DEVICE_ID": "0"}, status=USAGE),
                          "device=cpu:0, but client 'bob' has a share only of cpu:1")

    def test_two_clients_never_have_more_than_their_own(self):
        two = devices_of(64)
        table = "policy.capped.shares={cpu:0: {alice: 8MiB}, cpu:1: {bob: 0.125}}"  # the same as a fraction of 64 MiB
        words = [*CNN, *two, "policy=[capped,auto_plan]", table, "training.batch_size=auto",
                 "training.effective_batch_size=1024"]
        clients = {client: self.start("train", f"run.dir={client}", *words, "training.steps=20",
                                      "training.eval_every_steps=10", env={"CLIENT_ID": client})
                   for client in ("alice", "bob")}
        looks, seen = 0, set()
        while any(process.poll() is None for process in clients.values()):
            first, second = self.look(*two)
            for device, client in ((first, "alice"), (second, "bob")):
                for user in device["users"]:
                    self.assertEqual(user["pid"], clients[client].pid)
                    self.assertLessEqual(user["bytes"], 8 << 20)
                    seen.add(client)
            looks += 1
        for process in clients.values():
            self.finish(process, 0)
        self.assertEqual(seen, {"alice", "bob"}, f"in {looks} looks")
        self.assertEqual([self.batch_of(client) for client in clients], [256, 256])


class Cleanup(Policies):
    ROUNDS = [*SMALL, "training.steps=12", "training.eval_every_steps=1", "training.checkpoint_every_steps=1000",
              "dataset.train_count=2048"]

    def cleanups(self, run):
        return [(event["step"], event["by"], event["choice"]) for event in self.records(run, "events.jsonl")
                if event["event"] == "decision"]

    def test_light_every_5_rounds_heavy_every_10_and_heavy_at_the_end(self):
        result = self.train("run", *self.ROUNDS, "policy=periodic")
        self.assertEqual(self.cleanups("run"), [(5, "policy.periodic", "light cleanup"),
                                                (10, "policy.periodic", "heavy cleanup"),
                                                (12, "policy.periodic", "heavy cleanup")], result)
        self.assertEqual(self.reasons("run"),
                         ["planned at round 5", "planned at round 10", "at the end, after round 12"])
        self.assertEqual(len(re.findall(r"(?m)\[Memory\] Before cleanup: \d+\.\d\d GB allocated$", result.err)), 3)
        self.assertEqual(len(re.findall(r"(?m)\[Memory\] After cleanup: \d+\.\d\d GB \(freed -?\d+\.\d\d GB\)$",
                                        result.err)), 3)

    def test_the_cadence_is_configured(self):
        self.train("run", *self.ROUNDS, "policy=periodic", "policy.periodic.light_every_n_rounds=3",
                   "policy.periodic.heavy_every_n_rounds=0")
        self.assertEqual([(step, choice) for step, _, choice in self.cleanups("run")],
                         [(3, "light cleanup"), (6, "light cleanup"), (9, "light cleanup"), (12, "heavy cleanup")])

    def test_a_single_key_cleans_up_lightly(self):
        result = self.train("run", *self.ROUNDS, "training.clear_cache_every_n_rounds=4")
        key = "training.clear_cache_every_n_rounds"
        self.assertEqual(self.cleanups("run"), [(4, key, "light cleanup"), (8, key, "light cleanup")], result)
        self.assertEqual(result.err.count("[Memory] Before cleanup: "), 2)

    def test_without_either_nothing_is_cleaned_up(self):
        result = self.train("run", *self.ROUNDS)
        self.assertEqual(self.cleanups("run"), [])
        self.assertNotIn("cleanup: ", result.err)

    def test_cleaning_up_changes_no_number(self):
        self.train("plain", *self.ROUNDS)
        for run, words in (("often",
                            ["policy.periodic.light_every_n_rounds=1", "policy.periodic.heavy_every_n_rounds=2"]),
                           ("heavy", ["policy.periodic.heavy_every_n_rounds=1"])):
            self.train(run, *self.ROUNDS, "policy=periodic", *words, "training.num_workers=2")
            self.assert_same_checkpoint("plain", run, 12)
            self.assert_same_records("plain", run)


if __name__ == "__main__":
    main()
