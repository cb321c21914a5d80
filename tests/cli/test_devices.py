"""Tests brim devices, the list of devices."""

import fcntl
import os
import shutil
import struct

from support import FAILED, SMALL, USAGE, Case, main


class Devices(Case):
    def found(self):
        """Returns the devices that brim found. Only the cuda backend may have none."""
        found = self.brim("devices", "--json").json
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

    def test_threads_of_the_environment(self):
        def threads(text):
            found = self.brim("devices", "--json", env={"OMP_NUM_THREADS": text}).json["devices"]
            return next(device["threads"] for device in found if device["backend"] == "cpu")
        own = threads("")
        self.assertEqual([threads(text) for text in ("37", "5,2", "0", "many")], [37, 5, own, own])

    def test_text_has_a_line_a_device(self):
        found = self.found()
        lines = self.brim("devices").out.split("\n\n")[0].splitlines()
        gpu = ["capability", "uuid"] if any(device["capability"] for device in found["devices"]) else []
        self.assertEqual(lines[0].split(), ["device", "free", "total", "threads", *gpu, "name"])
        for line, device in zip(lines[1:], found["devices"]):
            self.assertTrue(line.startswith(f"{device['backend']}:{device['index']} "), line)
            self.assertTrue(line.endswith(device["name"]), line)
        others = lines[1 + len(found["devices"]):]
        failed = [line for line in others if not line.startswith("cannot list the processes that use cuda:")]
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
        failures = self.brim("--plugin-path", "plugins", "devices", "--json").json["failures"]
        self.assertEqual([failure["backend"] for failure in failures], ["cuda"])

    def test_words_are_those_of_a_run(self):
        self.assert_error(self.brim("devices", "cpu", status=USAGE), "'cpu'")
        self.assert_error(self.brim("devices", "backend.nothing=1", status=USAGE), "backend.nothing")


class Forged(Case):
    """Every user can write to the files that processes share, so brim does not trust their content."""

    WORDS = [*SMALL, "backend=cpu", "backend.devices=2", "backend.memory_mb=64", "training.steps=2"]
    TICKET = "<qqQdQ64QIii32s32s4x"

    def ticket(self, number=1, need=1, since=0.0, claimed=0, keys=1, device=-1, named=-1, backend=b"cpu", process=b"x"):
        return struct.pack(self.TICKET, number, 7, need, since, claimed, *[1] * 64, keys, device, named,
                           backend, process)

    def forge(self, *tickets):
        """Writes forged entries into the queue, as a live process. Returns the open file, which keeps them valid."""
        self.brim("devices", "--json")
        file = (self.folder / "claims" / "queue").open("r+b", buffering=0)
        self.addCleanup(file.close)
        _, slot_bytes, _ = struct.unpack("<3Q", file.read(24))
        self.assertEqual(slot_bytes, struct.calcsize(self.TICKET))
        for slot, ticket in enumerate(tickets):
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, (1 << 40) + 1 + slot, 1, 0)
            fcntl.fcntl(file, 37, lock)  # F_OFD_SETLK
            os.pwrite(file.fileno(), b"\1" + ticket, 24 + slot * (slot_bytes + 1))
        return file

    def test_impossible_tickets_are_ignored(self):
        self.forge(self.ticket(keys=0xFFFFFFFF), self.ticket(keys=65), self.ticket(number=-5),
                   self.ticket(number=2**63 - 1), self.ticket(need=2**64 - 1), self.ticket(since=float("nan")),
                   self.ticket(since=1e300), self.ticket(device=2**31 - 1), self.ticket(named=-2**31),
                   self.ticket(backend=b"b" * 32), self.ticket(process=b"p" * 32),
                   b"\xff" * struct.calcsize(self.TICKET))
        self.assertEqual(self.brim("devices", "--json").json["queue"], [])
        self.brim("devices")
        self.brim("plan", *self.WORDS, "--no-timing")
        self.train("run", *self.WORDS)

    def test_the_largest_number_does_not_end_the_queue(self):
        self.forge(self.ticket(number=2**62 - 1), self.ticket(number=2**62 - 2))
        self.train("run", *self.WORDS)
        queue = self.brim("devices", "--json").json["queue"]
        self.assertEqual([row["name"] for row in queue], ["x", "x"])

    def test_a_queue_that_was_cut_or_damaged_is_mended(self):
        queue = self.folder / "claims" / "queue"
        self.brim("devices")
        whole = queue.stat().st_size
        for damaged in (b"", b"short", queue.read_bytes()[:1000], b"\xff" * 5000):
            queue.write_bytes(damaged)
            self.brim("plan", *self.WORDS, "--no-timing")
            self.train(f"run{len(damaged)}", *self.WORDS)
            self.assertEqual(queue.stat().st_size, whole)

    def test_anything_but_a_file_or_folder_is_named(self):
        claims = self.folder / "claims"
        claims.mkdir()
        os.mkfifo(claims / "queue")
        self.assert_error(self.train("run", *self.WORDS, status=FAILED), claims / "queue",
                          "is not a regular file", "claims.dir")
        self.assertIn("is not a regular file", self.brim("devices").out)
        shutil.rmtree(claims)
        claims.write_text("a file", encoding="utf-8")
        self.assert_error(self.train("run", *self.WORDS, status=FAILED), claims, "it is not a folder", "claims.dir")

    def test_ledgers_go_with_their_last_user(self):
        self.train("run", *self.WORDS)
        self.assertEqual(sorted(path.name for path in (self.folder / "claims").iterdir()), ["queue", "runs"])


if __name__ == "__main__":
    main()
