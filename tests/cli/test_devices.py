"""brim devices: what there is to compute on."""

import json

from support import USAGE, Case, main


class Devices(Case):
    def test_json_has_each_device_with_its_memory(self):
        found = json.loads(self.brim("devices", "--json").out)
        self.assertEqual(found["failures"], [])
        self.assertIn("reference", [device["backend"] for device in found["devices"]])
        for device in found["devices"]:
            self.assertTrue(device["name"])
            self.assertTrue(0 < device["free_bytes"] <= device["total_bytes"], device)
            self.assertGreater(device["threads"], 0)
            self.assertEqual(device["index"], 0)

    def test_text_has_a_line_a_device(self):
        found = json.loads(self.brim("devices", "--json").out)["devices"]
        lines = self.brim("devices").out.splitlines()
        self.assertEqual(lines[0].split(), ["device", "free", "total", "threads", "name"])
        self.assertEqual(len(lines), 1 + len(found))
        for line, device in zip(lines[1:], found, strict=True):
            self.assertTrue(line.startswith(f"{device['backend']}:0 "), line)
            self.assertTrue(line.endswith(device["name"]), line)

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

    def test_words_are_refused(self):
        self.assert_error(self.brim("devices", "cpu", status=USAGE), "'cpu' is too much: brim devices takes no words")


if __name__ == "__main__":
    main()
