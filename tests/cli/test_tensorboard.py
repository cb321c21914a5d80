"""observe.tensorboard: event files that TensorBoard reads. The reader here was written from the descriptions of the
formats (TFRecord, protocol buffers' wire format, event.proto), independently of brim's writer."""

import struct

from support import SMALL, Case, main

RUN = [*SMALL, "training.batch_size=32", "training.epochs=2", "observe.log_every_steps=3",
       "training.checkpoint_every_steps=5", "dataset.validation_fraction=0.25", "observe.tensorboard=true"]
START = 1  # SessionLog.START


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records_of(data):
    """The contents of TFRecords; asserts that checksums are right."""
    while data:
        length, = struct.unpack_from("<Q", data)
        head, = struct.unpack_from("<I", data, 8)
        body = data[12:12 + length]
        tail, = struct.unpack_from("<I", data, 12 + length)
        assert (head, tail) == (masked(data[:8]), masked(body))
        yield body
        data = data[16 + length:]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def fields_of(data):
    """The (number, value) pairs of a message, in order."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            assert key & 7 == 5
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        yield key >> 3, value


def single(value):
    """Rounds to single precision."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


class TensorBoard(Case):
    def files(self, run):
        return sorted((self.folder / run).glob("events.out.tfevents.*"))

    def scalars(self, run):
        """{tag: [(step, value)]} as a reader shows it, without points that were withdrawn."""
        out = {}
        for path in self.files(run):
            first, *events = (dict(fields_of(record)) for record in records_of(path.read_bytes()))
            self.assertEqual(first[3], b"brain.Event:2")
            for event in events:
                self.assertGreater(event[1], 1e9, "a time")
                if 7 in event:
                    self.assertEqual(dict(fields_of(event[7])), {1: START})
                    out = {tag: [p for p in points if p[0] < event[2]] for tag, points in out.items()}
                for number, value in fields_of(event.get(5, b"")):
                    self.assertEqual(number, 1)
                    scalar = dict(fields_of(value))
                    out.setdefault(scalar[1].decode(), []).append((event[2], scalar[2]))
        return out

    def expected(self, run):
        out = {}
        for record in self.records(run):
            for key, value in record.items():
                if key not in ("step", "epoch", "split") and value is not None:
                    out.setdefault(f"{key}/{record['split']}", []).append((record["step"], single(value)))
        return out

    def test_the_reader_knows_the_checksum(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # RFC 3720's check value

    def test_scalars_are_the_records(self):
        self.train("run", *RUN)
        found = self.scalars("run")
        self.assertEqual(found, self.expected("run"))
        self.assertTrue({"loss/train", "accuracy_top5/validation", "lr/train", "loss/test"} <= set(found))

    def test_none_by_default(self):
        self.train("run", *SMALL)
        self.assertEqual(self.files("run"), [])

    def test_a_resumed_run_shows_no_point_twice(self):
        """Steps 6 and 9 were written, and are repeated, as the last checkpoint is of step 5."""
        self.train("whole", *RUN)
        self.train("run", *RUN, status=None, env={"BRIM_FAULT": "step:10:alloc:1+"})
        self.brim("train", "--resume", "run")
        self.assertEqual(len(self.files("run")), 2)
        written = [event for path in self.files("run") for event in map(fields_of, records_of(path.read_bytes()))]
        self.assertGreater(len(written), len(self.records("run")) + 3, "two versions, a restart, and repeated points")
        found, whole = self.scalars("run"), self.scalars("whole")
        self.assertEqual(found, self.expected("run"))
        self.assertEqual(found["loss/train"], whole["loss/train"])
        self.assertEqual(found["loss/validation"], whole["loss/validation"])


if __name__ == "__main__":
    main()
