"""Tests devices with limits: shares of the host that all processes see, and the choice among them."""

import signal

from support import NO_FIT, SMALL, USAGE, Case, main

TWO = ["backend=cpu", "backend.devices=2", "backend.memory_mb=64"]


class Limits(Case):
    def devices(self, *words, env=None):
        found = self.brim("devices", "--json", *words, env=env).json["devices"]
        return [device for device in found if device["backend"] == "cpu"]

    def hold(self, run, *words, env=None):
        return super().hold(run, *SMALL, *TWO, *words, env=env)

    def planned(self, run):
        return self.json(run, "plan.json")["peak_bytes"]

    def test_each_device_has_its_limit(self):
        devices = self.devices(*TWO)
        self.assertEqual([device["index"] for device in devices], [0, 1])
        for device in devices:
            self.assertEqual((device["total_bytes"], device["free_bytes"], device["users"]), (64 << 20, 64 << 20, []))

    def test_without_a_size_they_are_equal_parts_of_the_host(self):
        whole, = self.devices()
        parts = self.devices("backend=cpu", "backend.devices=4")
        self.assertEqual(len(parts), 4)
        for part in parts:
            self.assertLessEqual(abs(4 * part["total_bytes"] - whole["total_bytes"]), 4 << 20)

    def test_a_run_takes_its_planned_memory_and_others_see_it(self):
        process = self.hold("one", "device=cpu:1")
        first, second = self.devices(*TWO)
        self.assertEqual(first["users"], [])
        user, = second["users"]
        self.assertEqual(user, {"pid": process.pid, "bytes": self.planned("one"), "name": "brim"})
        self.assertEqual(second["free_bytes"], (64 << 20) - self.planned("one"))
        text = self.brim("devices", *TWO).out
        self.assertRegex(text, rf"(?m)^cpu:1 +{process.pid} .* brim$")

    def test_the_share_of_a_killed_run_returns(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number):
                process = self.hold(f"run-{int(number)}", "device=cpu:0")
                self.assertEqual(len(self.devices(*TWO)[0]["users"]), 1)
                process.send_signal(number)
                process.wait()
                self.assertEqual(self.devices(*TWO)[0]["users"], [])

    def test_auto_takes_the_one_with_the_most_free_memory(self):
        self.hold("one", "device=cpu:0")
        result = self.train("two", *SMALL, *TWO, "training.steps=1")
        self.assertIn("device=auto chooses cpu:1 of 2, which has the most free memory: 64.0 MiB of 64.0 MiB free",
                      result.err)
        result = self.train("three", *SMALL, *TWO, "training.steps=1", "auto_device=false")
        self.assertIn("device=auto chooses cpu:0 of 2, the first with room: 63.8 MiB of 64.0 MiB free", result.err)

    def test_a_run_that_does_not_fit_beside_another_is_refused_with_the_free_memory(self):
        cnn = ["model=cnn", "dataset=synthetic", "dataset.train_count=256", "dataset.test_count=64", "backend=cpu",
               "backend.memory_mb=64", "training.batch_size=64"]  # takes 45 MiB
        process = super().hold("one", *cnn)
        self.assert_error(self.train("two", *cnn, "training.steps=1", status=NO_FIT), "but the device has 19",
                          "training.batch_size=2 training.gradient_accumulation_steps=32 would fit")
        process.kill()
        process.wait()
        self.train("three", *cnn, "training.steps=1")

    def test_a_missing_device_is_refused(self):
        for name in ("cpu:2", "cpu:x", "cpu:-1", "cuda:0"):
            with self.subTest(name):
                result = self.train("run", *SMALL, *TWO, f"device={name}", "training.steps=1", status=NO_FIT)
                self.assert_error(result, f"no device '{name}': backend 'cpu' has 2")

    def test_least_free_memory_leaves_out_only_devices_with_limits(self):
        result = self.train("run", *SMALL, *TWO, "min_gpu_memory_mb=65", "training.steps=1", status=NO_FIT)
        self.assert_error(result, "no device of backend 'cpu' has 65.0 MiB free", "cpu:1 has 64.0 MiB of 64.0 MiB")
        self.train("fits", *SMALL, *TWO, "min_gpu_memory_mb=64", "training.steps=1")
        self.train("host", *SMALL, "min_gpu_memory_mb=1TB", "training.steps=1")

    def test_a_share_of_the_device_is_a_limit(self):
        cnn = ["model=cnn", "dataset=synthetic", "dataset.train_count=256", "dataset.test_count=64", *TWO,
               "training.batch_size=64", "training.steps=1"]  # takes 45 MiB of 64
        result = self.train("half", *cnn, "memory.limit=0.5", status=NO_FIT)
        self.assert_error(result, "the run needs 44.6 MiB, but memory.limit=0.5 allows 32.0 MiB", "would fit")
        self.train("most", *cnn, "memory.limit=0.75")
        result = self.train("less", *cnn, "memory.limit=0.75", "memory.limit_mb=40", status=NO_FIT)
        self.assert_error(result, "memory.limit_mb allows 40.0 MiB")
        result = self.train("least", *cnn, "memory.limit=0.5", "memory.limit_mb=40", status=NO_FIT)
        self.assert_error(result, "memory.limit=0.5 allows 32.0 MiB")
        self.assert_error(self.train("wrong", *cnn, "memory.limit=1.5", status=USAGE),
                          "'memory.limit' must be in [0,1]")

    def test_the_environments_share_is_honoured_where_devices_are_shared(self):
        half = {"TF_GPU_MEMORY_FRACTION": "0.5"}
        cnn = ["model=cnn", "dataset=synthetic", "dataset.train_count=256", "dataset.test_count=64",
               "training.batch_size=64", "training.steps=1"]
        result = self.train("half", *cnn, *TWO, env=half, status=NO_FIT)
        self.assert_error(result, "TF_GPU_MEMORY_FRACTION=0.5 allows 32.0 MiB")
        self.assertIn("TF_GPU_MEMORY_FRACTION=0.5 sets memory.limit=0.5\n", result.err)
        self.assertNotIn("TF_GPU", self.train("own", *cnn, *TWO, "memory.limit=0.75", env=half).err)
        self.assertNotIn("TF_GPU", self.train("host", *cnn, env=half).err)
        for value in ("0", "1.1", "half", "0.5x"):
            with self.subTest(value):
                result = self.train("bad", *cnn, *TWO, env={"TF_GPU_MEMORY_FRACTION": value}, status=USAGE)
                self.assert_error(result, f"TF_GPU_MEMORY_FRACTION is '{value}'; it must be a number in (0,1]")

    def test_gpu_device_id_names_the_device(self):
        result = self.train("run", *SMALL, *TWO, "training.steps=1", env={"GPU_DEVICE_ID": "1"})
        self.assertIn("device=auto chooses cpu:1 of 2, as GPU_DEVICE_ID says", result.err)
        for value in ("2", "one", "-1"):
            with self.subTest(value):
                result = self.train("bad", *SMALL, *TWO, "training.steps=1", env={"GPU_DEVICE_ID": value},
                                    status=NO_FIT)
                self.assert_error(result, f"GPU_DEVICE_ID is '{value}', but backend 'cpu' has 2 devices")
        self.train("host", *SMALL, "training.steps=1", env={"GPU_DEVICE_ID": "7"})  # the variable concerns GPUs only

    def test_claims_dir_names_the_folder_that_is_shared(self):
        words = [*TWO, f"claims.dir={self.folder / 'elsewhere'}"]
        self.devices(*words)
        self.assertTrue(any((self.folder / "elsewhere").iterdir()))
        self.assertFalse((self.folder / "claims").exists())
        result = self.brim("devices", *TWO, "claims.dir=/proc/nothing")
        self.assertIn("set claims.dir or BRIM_CLAIMS_DIR to another folder", result.out)

    def test_wrong_numbers_are_refused(self):
        for word in ("backend.devices=0", "backend.devices=1025", "backend.memory_mb=-1"):
            with self.subTest(word):
                self.assert_error(self.brim("devices", "backend=cpu", word, status=USAGE), word.split("=")[0])


if __name__ == "__main__":
    main()
