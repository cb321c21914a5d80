"""Tests the tables of `brim plan` with the plans that fit on the devices of the chosen backend, and of other
backends."""

import os

from support import NO_FIT, SMALL, Case, main

GPUS = os.environ["BRIM_GPUS"]  # a folder with a backend that simulates GPUs; see tests/memory/gpus.c
# takes 44.6 MiB; in micro-batches of 32, 31.5 MiB, and at least 18.9 MiB
CNN = ["model=cnn", "dataset=synthetic", "dataset.train_count=256", "dataset.test_count=64", "training.batch_size=64",
       "memory.timing=false"]
MLP = ["model=mlp", "dataset=synthetic", "training.batch_size=64", "memory.timing=false"]


def shares(mebibytes, count=2):
    return ["backend=cpu", f"backend.devices={count}", f"backend.memory_mb={mebibytes}"]


class PlanDevices(Case):
    def plan(self, *words, env=None, status=0):
        return self.brim("plan", "--json", *words, env=env, status=status).json

    def devices(self, *words, env=None, status=0):
        return {device["device"]: device for device in self.plan(*words, env=env, status=status)["devices"]}

    def made_up(self, gpus, *words, status=0):
        """Returns (samples, bytes) for each simulated GPU: of the plan that fits now, and of the plan for the empty
        device."""
        found = self.devices("--plugin-path", GPUS, "backend=gpus", *MLP, *words, env={"TEST_GPUS": gpus},
                             status=status)
        def pair(fit):
            return fit and (fit["batch_size"], fit["peak_bytes"])
        return {name: (pair(d["fits_now"]), pair(d["fits_empty"])) for name, d in found.items()}

    def peak(self, batch, *words):
        return self.plan(*CNN, f"training.batch_size={batch}", *words)["peak_bytes"]

    def test_a_device_that_another_run_is_on_has_room_for_a_smaller_micro_batch(self):
        self.hold_still("held", *CNN, *shares(80), "device=cpu:0", "training.batch_size=32")
        devices = self.devices(*CNN, *shares(80))
        first, second = devices["cpu:0"], devices["cpu:1"]
        self.assertEqual((first["total_bytes"], first["free_bytes"]),
                         (80 << 20, (80 << 20) - self.json("held", "plan.json")["peak_bytes"]))
        whole = {"batch_size": 64, "gradient_accumulation_steps": 1, "peak_bytes": self.peak(64)}
        self.assertEqual((first["fits_now"], first["fits_empty"]), (whole, whole))
        self.assertEqual((second["fits_now"], second["fits_empty"]), (whole, whole))
        self.assertEqual((first["chosen"], second["chosen"]), (False, True))
        devices = self.devices(*CNN, *shares(80), "training.effective_batch_size=128")
        self.assertEqual(devices["cpu:0"]["fits_now"],
                         {"batch_size": 64, "gradient_accumulation_steps": 2, "peak_bytes": self.peak(64)})
        self.assertEqual(devices["cpu:0"]["fits_empty"]["batch_size"], 128)

    def test_the_suggested_micro_batch_is_the_largest_that_fits(self):
        peaks = {batch: self.peak(batch, "training.effective_batch_size=64") for batch in (64, 32, 16, 8)}
        for batch, next_larger in ((32, 64), (16, 32), (8, 16)):
            limit = -(-peaks[batch] >> 20)  # the least whole MiB that are enough
            self.assertGreater(peaks[next_larger], limit << 20)
            devices = self.devices(*CNN, *shares(limit), "training.batch_size=auto")
            self.assertEqual(devices["cpu:0"]["fits_now"], {"batch_size": batch, "peak_bytes": peaks[batch],
                                                            "gradient_accumulation_steps": 64 // batch})

    def test_where_nothing_fits_there_is_a_dash_and_an_exit_status(self):
        result = self.brim("plan", *CNN, *shares(16), status=NO_FIT)
        self.assertRegex(result.out, r"(?m)^\* cpu:0 +16\.0 MiB +16\.0 MiB +- +- +- +-$")
        self.assert_error(result, "the run needs 44.6 MiB, but the device has 16.0 MiB free")
        device = self.devices(*CNN, *shares(16), status=NO_FIT)["cpu:0"]
        self.assertEqual((device["fits_now"], device["fits_empty"]), (None, None))

    def test_limits_hold_for_every_device(self):
        for words in (["memory.limit=0.5"], ["memory.limit_mb=32"]):
            with self.subTest(words):
                devices = self.devices(*CNN, *shares(64), *words, status=NO_FIT)
                for name in ("cpu:0", "cpu:1"):
                    self.assertEqual(devices[name]["fits_now"]["batch_size"], 32)
                    self.assertEqual(devices[name]["fits_empty"]["batch_size"], 32)
        half = self.devices(*CNN, *shares(64), env={"TF_GPU_MEMORY_FRACTION": "0.5"}, status=NO_FIT)
        self.assertEqual(half["cpu:1"]["fits_now"]["batch_size"], 32)

    def test_a_share_from_a_policy_is_the_whole_limit(self):
        words = [*CNN, *shares(64), "training.batch_size=auto", "policy=[capped,auto_plan]",
                 "policy.capped.shares={cpu:0: {a: 32MB}, cpu:1: {a: 20MB, b: 44MB}}", "policy.capped.client=a"]
        devices = self.devices(*words)
        self.assertTrue(devices["cpu:0"]["chosen"])
        # 32 samples take 31.5 MiB, but 32 MB are only 30.5 MiB.
        self.assertEqual(devices["cpu:0"]["fits_now"]["batch_size"], 16)
        self.assertEqual(devices["cpu:1"]["fits_now"]["batch_size"], 1)  # of 20 MB
        words[-2] = "policy.capped.shares={cpu:0: {a: 32MB}, cpu:1: {b: 44MB}}"
        self.assertIsNone(self.devices(*words)["cpu:1"]["fits_now"])  # the policy would not choose that device

    def test_other_backends_are_there_with_plans_of_their_own(self):
        plan = self.plan(*SMALL, "backend=cpu")
        devices = {device["device"]: device for device in plan["devices"]}
        self.assertEqual(list(devices)[0], "cpu:0")
        self.assertEqual([d for d in devices if devices[d]["chosen"]], ["cpu:0"])
        other = self.plan("backend=reference", *[word for word in SMALL if not word.startswith("backend.")])
        self.assertEqual(devices["reference:0"]["fits_now"]["peak_bytes"], other["peak_bytes"])
        self.assertNotEqual(other["peak_bytes"], plan["peak_bytes"])

    def test_gpus_of_a_backend_that_is_not_chosen_are_not_touched(self):
        devices = self.devices("--plugin-path", GPUS, *MLP, "backend=cpu", env={"TEST_GPUS": "100/400"})
        self.assertNotIn("gpus:0", devices)
        devices = self.devices("--plugin-path", GPUS, *MLP, "backend=gpus", env={"TEST_GPUS": "100/400"})
        self.assertIn("cpu:0", devices)

    def test_gpus_of_one_kind_share_their_plans_and_those_of_another_have_their_own(self):
        # Kind 5 needs 4 MiB more. A context takes 3 MiB of the selected GPU, and would take as much of another.
        found = self.made_up("100/400,14/400,300/400/5,17/400/5,16/400/5")
        small, large = found["gpus:0"][0], found["gpus:2"][0]
        self.assertEqual((small[0], large[0]), (64, 64))
        self.assertEqual(large[1] - small[1], 4 << 20)
        self.assertTrue(13 << 20 < large[1] < 14 << 20)
        self.assertEqual(found["gpus:1"], (small, small))
        self.assertEqual(found["gpus:3"], (large, large))  # 14 MiB are left
        self.assertEqual(found["gpus:4"], (None, large))  # 13 MiB are

    def test_the_runs_own_plan_is_for_its_device_whatever_was_selected(self):
        # With memory.timing=false predicted times are guesses, all by the same rule.
        words = ["--plugin-path", GPUS, "backend=gpus", *MLP, "memory.timing=false"]
        shown = self.plan(*words, env={"TEST_GPUS": "300/400/5,100/400,90/100/0"})
        alone = self.plan(*words, env={"TEST_GPUS": "300/400/5"})
        self.assertEqual([d["device"] for d in shown["devices"] if d["chosen"]], ["gpus:0"])
        for plan in (shown, alone):
            del plan["devices"], plan["host"]
        self.assertEqual(shown, alone)

    def test_memory_of_libraries_counts_towards_a_limit_on_every_gpu(self):
        found = self.made_up("100/400,300/400,300/400/5", "memory.limit_mb=16")
        self.assertEqual([fit and fit[0] for fit, _ in list(found.values())[:3]], [64, 64, None])

    def test_a_gpu_that_cannot_be_used_has_room_for_nothing(self):
        found = self.made_up("100/400,90/400/0")
        self.assertEqual(found["gpus:1"], (None, None))
        self.assertEqual(found["gpus:0"][0][0], 64)


if __name__ == "__main__":
    main()
