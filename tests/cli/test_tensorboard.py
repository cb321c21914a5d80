"""Tests observe.tensorboard: event files that TensorBoard reads. The reader here was written from the descriptions of
the formats (TFRecord, protocol buffers' wire format, event.proto), independently of brim's writer."""

import base64
import struct

from support import SMALL, Case, main

RUN = [*SMALL, "training.batch_size=32", "training.epochs=2", "observe.log_every_steps=3",
       "training.checkpoint_every_steps=5", "dataset.validation_fraction=0.25", "observe.tensorboard=true"]
START = 1  # SessionLog.START
IMAGE, HISTOGRAM, TENSOR, METADATA = 4, 5, 8, 9  # fields of a Value


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
    """Returns the contents of TFRecords; asserts that checksums are right."""
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
    """Returns the (number, value) pairs of a message, in order."""
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

    def values(self, run, field=2):
        """Returns {tag: [(step, content of this field of a Value)]} as a reader shows it, without points that were
        withdrawn. By default the field is that of scalars."""
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
                    content = dict(fields_of(value))
                    if field in content:
                        out.setdefault(content[1].decode(), []).append((event[2], content[field]))
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
        found = self.values("run")
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
        found, whole = self.values("run"), self.values("whole")
        self.assertEqual(found, self.expected("run"))
        self.assertEqual(found["loss/train"], whole["loss/train"])
        self.assertEqual(found["loss/validation"], whole["loss/validation"])

    def test_histograms_are_those_of_the_file(self):
        self.train("run", *RUN)
        found, lines = self.values("run", HISTOGRAM), self.records("run", "histograms.jsonl")
        self.assertEqual(sum(map(len, found.values())), len(lines))
        for line in lines:
            content, = (x for step, x in found[f"{line['of']}/{line['tensor']}"] if step == line["step"])
            fields = dict(fields_of(content))
            limits, counts = ([x for x, in struct.iter_unpack("<d", fields[k])] for k in (6, 7))
            self.assertEqual(sorted(set(limits)), limits)
            self.assertEqual(fields[3], line["counted"] - line["nan"] - line["infinite"])
            self.assertAlmostEqual(fields[5], line["rms"] ** 2 * fields[3], delta=1e-6 * fields[5])
            wanted = {2.0 ** (line["first"] + k + 1): n for k, n in enumerate(line["positive"]) if n}
            wanted.update({-2.0 ** (line["first"] + k): n for k, n in enumerate(line["negative"]) if n})
            wanted.update({2.0 ** -49: line["zeros"]} if line["zeros"] else {})
            self.assertEqual({a: n for a, n in zip(limits, counts) if n}, wanted)

    def test_samples_are_images_and_text(self):
        self.train("run", *RUN)
        listed, found = self.json("run", "samples.json"), self.values("run", IMAGE)
        for i, sample in enumerate(listed["worst"]):
            step, content = found[f"most_wrong_{listed['split']}/{i:02d}"][-1]
            image = dict(fields_of(content))
            self.assertEqual((step, image[1], image[2]), (listed["step"], sample["height"], sample["width"]))
            self.assertEqual(image[4], base64.b64decode(sample["picture"]))
        texts = {tag: dict(fields_of(x[-1][1]))[8].decode() for tag, x in self.values("run", TENSOR).items()}
        self.assertEqual(texts["config.yaml"].splitlines()[1:-1], self.read("run", "config.yaml").splitlines())
        table = texts[f"most_wrong_{listed['split']}"].splitlines()[2:]
        self.assertEqual([int(row.split("|")[1]) for row in table], [x["index"] for x in listed["worst"]])

    def test_hyperparameters_and_the_end(self):
        self.train("run", *RUN, "seed=7")
        found = {}
        for tag, points in self.values("run", METADATA).items():
            if tag.startswith("_hparams_/"):
                plugin = dict(fields_of(dict(fields_of(points[0][1]))[1]))
                self.assertEqual(plugin[1], b"hparams")
                found[tag] = dict(fields_of(plugin[2]))
        values = {}
        for number, entry in fields_of(found["_hparams_/session_start_info"][3]):
            if number == 1:
                key, value = (x for _, x in fields_of(entry))
                values[key.decode()], = (x for _, x in fields_of(value))
        self.assertEqual((values["seed"], values["training.batch_size"], values["model.id"]), (7, 32, b"mlp"))
        infos = [dict(fields_of(x)) for number, x in fields_of(found["_hparams_/experiment"][2]) if number == 5]
        tags = [dict(fields_of(info[1]))[2].decode() for info in infos]
        self.assertLessEqual(set(tags), set(self.values("run")))
        self.assertIn("accuracy/test", tags)
        self.assertEqual(dict(fields_of(found["_hparams_/session_end_info"][4]))[1], 1, "success")


if __name__ == "__main__":
    main()
