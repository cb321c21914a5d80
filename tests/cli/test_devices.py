"""brim devices: what there is to compute on."""

import json

from support import USAGE, Case, main


class Devices(Case):
    def found(self):
        """What there is. Only the cuda backend may be there without a device."""
        found = json.loads(self.brim("devices", "--json").out)
        self.assertIn([failure["backend"] for failure in found["failures"]], ([], ["cuda"]))
        for failure in found["failures"]:
            self.assertRegex(failure["reason"], "GPU|driver")
            self.assertNotIn("cuda", [device["backend"] for device in found["devices"]])
        return found

    def test_json_has_each_device_with_its_memory(self):
        devices = self.found()["devices"]
        self.assertIn("reference", [device["backend"] for device in devices])
        for device in devices:
            self.assertTrue(device["name"])
            self.assertTrue(0 <= device["free_bytes"] <= device["total_bytes"], device)
            if device["backend"] == "cuda":
                self.assertRegex(device["capability"], r"^\d+\.\d+$")
                self.assertRegex(device["uuid"], r"^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
            else:
                self.assertGreater(device["free_bytes"], 0)
                self.assertGreater(device["threads"], 0)
                self.assertEqual(device["index"], 0)
                self.assertEqual((device["capability"], device["uuid"], device["users"]), (None, None, None))

    def test_text_has_a_line_a_device(self):
        found = self.found()
        lines = self.brim("devices").out.split("\n\n")[0].splitlines()
        gpu = ["capability", "uuid"] if any(device["capability"] for device in found["devices"]) else []
        self.assertEqual(lines[0].split(), ["device", "free", "total", "threads", *gpu, "name"])
        for line, device in zip(lines[1:], found["devices"]):
            self.assertTrue(line.startswith(f"{device['backend']}:{device['index']} "), line)
            self.assertTrue(line.endswith(device["name"]), line)
        others = lines[1 + len(found["devices"]):]
        failed = [line for line in others if not line.startswith("who uses cuda:")]
        self.assertEqual(len(failed), len(found["failures"]), others)
        for line, failure in zip(failed, found["failures"]):
            self.assertEqual(line, f"backend '{failure['backend']}' cannot be used: {failure['reason']}")

    def test_a_backend_that_cannot_be_loaded_is_one_line(self):
        (self.folder / "plugins/backend").mkdir(parents=True)
        (self.folder / "plugins/backend/cuda.so").write_bytes(b"not a library")
        (self.folder / "plugins/model").mkdir()
        (self.folder / "plugins/model/vit.so").write_bytes(b"not a library")
        result = self.brim("--plugin-path", "plugins", "devices")
        lines = [line for line in result.out.splitlines() if "cannot be used" in line]
        self.assertEqual(len(lines), 1, result)
        self.assertTrue(lines[0].startswith("backend 'cuda' cannot be used: "), result)
        self.assertGreater(len(lines[0]), len("backend 'cuda' cannot be used: "))
        failures = json.loads(self.brim("--plugin-path", "plugins", "devices", "--json").out)["failures"]
        self.assertEqual([failure["backend"] for failure in failures], ["cuda"])

    def test_words_are_those_of_a_run(self):
        self.assert_error(self.brim("devices", "cpu", status=USAGE), "'cpu'")
        self.assert_error(self.brim("devices", "backend.nothing=1", status=USAGE), "backend.nothing")


if __name__ == "__main__":
    main()
