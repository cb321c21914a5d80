"""observe.histograms: histograms of weights, gradients and updates are those of the values that checkpoints have, the
same however the memory is used, and change nothing else."""

import json
import math
import shutil
import struct

import tensors
from support import SMALL, Case, main

RUN = [*SMALL, "training.batch_size=64", "training.steps=8", "training.eval_every_steps=4",
       "training.checkpoint_every_steps=1", "training.keep_checkpoints=20"]
FIRST, BINS = -48, 64
NAME = "histograms.jsonl"
HOSTILE = "<script>alert(1)</script>"


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def histogram(values):
    """Counts by sign and exponent, with the definition of train/histograms.h."""
    out = {"counted": len(values), "zeros": 0, "nan": 0, "infinite": 0, "negative": [0] * BINS, "positive": [0] * BINS}
    finite = [x for x in values if math.isfinite(x)]
    for x in values:
        if math.isnan(x):
            out["nan"] += 1
        elif math.isinf(x):
            out["infinite"] += 1
        elif x == 0:
            out["zeros"] += 1
        else:
            place = min(max(math.frexp(x)[1] - 1 - FIRST, 0), BINS - 1)
            out["negative" if x < 0 else "positive"][place] += 1
    out["rms"] = math.sqrt(sum(x * x for x in finite) / len(finite)) if finite else None
    out["min"], out["max"] = (min(finite), max(finite)) if finite else (None, None)
    return out


def bins(line, side):
    """The bins of a line, all of them."""
    out = [0] * BINS
    for i, count in enumerate(line[side]):
        out[line["first"] - FIRST + i] = count
    return out


class Insight(Case):
    def lines(self, run):
        """{(step, tensor, of): line}"""
        return {(line["step"], line["tensor"], line["of"]): line for line in self.records(run, NAME)}

    def values(self, run, step):
        found, _ = tensors.read(self.checkpoint(run, step) / "model.safetensors")
        return {name: list(numbers) for name, (_, _, numbers) in found.items()}

    def assert_histogram(self, line, values):
        wanted = histogram(values)
        for key in ("counted", "zeros", "nan", "infinite"):
            self.assertEqual(line[key], wanted[key], line)
        for side in ("negative", "positive"):
            self.assertEqual(bins(line, side), wanted[side], line)
        for key in ("rms", "min", "max"):
            self.assertAlmostEqual(line[key], wanted[key], delta=1e-6 * abs(wanted[key]), msg=line)

    def test_they_are_of_the_values_in_checkpoints(self):
        self.train("run", *RUN)
        lines = self.lines("run")
        self.assertEqual(sorted({step for step, _, _ in lines}), [4, 8])
        for step in (4, 8):
            before, after = self.values("run", step - 1), self.values("run", step)
            for name, now in after.items():
                self.assert_histogram(lines[step, name, "weights"], now)
                change = [single(b - a) for a, b in zip(before[name], now)]
                ratio = [0 if d == 0 else single(abs(d) / abs(a)) if a else math.inf
                         for a, d in zip(before[name], change)]
                updates = lines[step, name, "updates"]
                self.assert_histogram(updates, ratio)
                rms = math.sqrt(sum(d * d for d in change) / len(change))
                self.assertAlmostEqual(updates["change_rms"], rms, delta=1e-6 * rms)
                self.assertAlmostEqual(updates["ratio"], rms / lines[step, name, "weights"]["rms"], delta=1e-5 * rms)

    def test_gradients_are_those_of_the_mean_loss(self):
        """Stochastic gradient descent with a learning rate of 1 subtracts them, whatever the number of micro-batches
        and the clipping; here the clip norm is never reached."""
        words = [*RUN, "optimizer=sgd", "optimizer.lr=1", "optimizer.momentum=0", "optimizer.weight_decay=0",
                 "schedule=constant"]
        for extra in ([], ["training.batch_size=16", "training.gradient_accumulation_steps=4"],
                      ["training.clip_norm=1000"]):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.train("run", *words, *extra)
            for (_, _, of), line in (lines := self.lines("run")).items():
                if of == "updates":
                    gradient = lines[line["step"], line["tensor"], "gradients"]
                    self.assertAlmostEqual(gradient["rms"], line["change_rms"], delta=2e-5 * gradient["rms"])
            self.assertEqual(len(lines), 2 * 4 * 3)

    def test_memory_decisions_and_ends_change_neither_lines_nor_checkpoints(self):
        self.train("run", *RUN)
        text = self.read("run", NAME)
        self.train("off", *RUN, "observe.histograms=false")
        self.assertFalse((self.folder / "off" / NAME).exists())
        for step in (3, 4, 8):
            self.assert_same_checkpoint("run", "off", step)
        ways = {"micro": ["training.batch_size=16", "training.gradient_accumulation_steps=4"],
                "recompute": ["memory.recompute=full"], "threads": ["backend.threads=2"],
                "offload": ["memory.offload=optimizer"]}
        for name, words in ways.items():
            self.train(name, *RUN, *words)
            self.assertEqual(self.read(name, NAME), text, name)
        self.train("killed", *RUN, status=None, env={"BRIM_FAULT": "step:7:alloc:1+"})
        with open(self.folder / "killed" / NAME, "a", encoding="utf-8") as file:
            file.write('{"step":7,"tensor":"written after the checkpoint"}\n{"step":')
        self.brim("train", "--resume", "killed")
        self.assertEqual(self.read("killed", NAME), text)

    def test_a_large_tensor_is_sampled(self):
        self.train("run", *RUN, "model.hidden=[1024]")
        values = self.values("run", 8)
        name = next(n for n, v in values.items() if len(v) == 65536)
        line = self.lines("run")[8, name, "weights"]
        self.assertEqual((line["values"], line["counted"]), (65536, 32768))
        step = (65536 - 4096) // 7
        self.assert_histogram(line, [x for k in range(8) for x in values[name][k * step:k * step + 4096]])

    def test_at_most_33_steps_of_a_long_run(self):
        self.train("run", *SMALL, "training.steps=200", "training.eval_every_steps=1", "training.batch_size=16")
        steps = sorted({step for step, _, _ in self.lines("run")})
        self.assertLessEqual(len(steps), 33)
        self.assertEqual(steps[-1], 200)
        self.assertEqual({b - a for a, b in zip(steps, steps[1:-1])}, {7})

    def test_updates_in_the_backward_pass_keep_no_gradients(self):
        self.train("run", *RUN, "optimizer.update=fused_backward")
        self.assertEqual({of for _, _, of in self.lines("run")}, {"weights", "updates"})

    def test_a_federation_has_weights_and_updates(self):
        self.brim("federate", "run.dir=run", *SMALL, "total_clients=4", "clients_per_round=2", "rounds=3")
        self.assertEqual({of for _, _, of in self.lines("run")}, {"weights", "updates"})

    def test_a_file_that_cannot_be_written_is_a_warning(self):
        self.train("run", *RUN, status=None, env={"BRIM_FAULT": "step:7:alloc:1+"})
        (self.folder / "run" / NAME).unlink()
        (self.folder / "run" / NAME).mkdir()
        result = self.brim("train", "--resume", "run")
        self.assertIn("the run has no histograms: ", result.err)
        self.assertEqual(self.summary("run")["status"], "finished")

    def test_the_page_shows_a_row_for_each_tensor(self):
        self.train("run", *RUN)
        page = self.read("run", "report.html")
        self.assertIn(">Layers</h2>", page)
        for name in self.values("run", 8):
            self.assertIn(f'<th scope="row">{name}</th>', page)

    def test_the_page_survives_any_file(self):
        self.train("run", *RUN)
        path = self.folder / "run" / NAME
        lines = path.read_text().splitlines()
        hostile = json.loads(lines[-1])
        hostile.update(tensor=HOSTILE, negative=[1e300, -5, "x", None] * 100, positive={}, first=1e18, rms="no")
        for text in ("", "\n", "{", '{"step":8\n', "\0\n" * 10, '{"step":8,"tensor":"a","of":"weights"}\n' * 5000,
                     "\n".join([*lines, json.dumps(hostile, separators=(",", ":"))]) + "\n"):
            path.write_text(text)
            self.brim("report", "run", "-o", "out.html", "--force")
            self.assertNotIn(HOSTILE, self.read("out.html"))


if __name__ == "__main__":
    main()
