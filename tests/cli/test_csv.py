"""Tests CSV files from the command line: time series of real numbers, rows with classes, sequences, and the run's
output."""

import csv
import math
import random

from support import LOAD, USAGE, Case, main

KINDS = ["rose", "lily", "oak"]


class Csv(Case):
    def write(self, name, header, rows, **options):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, **options)
            writer.writerow(header)
            writer.writerows(rows)
        return path

    def write_series(self, name, count=600):
        """Writes a temperature by hour, with columns that the run does not use."""
        draw = random.Random(1)
        return self.write(name, ["date", "temperature", "humidity"],
                          [[f"day {i // 24}, {i % 24}h", f"{math.sin(i / 8) + draw.gauss(0, 0.02):.4f}",
                            f"{50 + 9 * math.cos(i / 8):.2f}"] for i in range(count)])

    def write_kinds(self, name, count, **options):
        """Writes three classes that are separable in `a` and `c`, two columns of different scale."""
        draw = random.Random(count)
        rows = [[i, f"{draw.gauss(i % 3, 0.2):.4f}", f"{draw.gauss(1000 * (i % 2), 1):.2f}",
                 f"{draw.gauss(100 * (i % 3), 20):.2f}", KINDS[i % 3]] for i in range(count)]
        return self.write(name, ["number", "a", "b", "c", "kind"], rows, **options)


SERIES = ["model=temperature_lstm", "model.hidden=16", "dataset=csv", "dataset.targets=temperature",
          "dataset.sequence=12", "dataset.test_fraction=0.2", "training.batch_size=32", "optimizer.lr=0.01",
          "memory.timing=false"]
KIND = ["model=mlp", "model.hidden=[16]", "dataset=csv", "dataset.label=kind", "dataset.features=a..c",
        "training.batch_size=32", "optimizer.lr=0.01", "memory.timing=false"]


class TimeSeries(Csv):
    def test_the_next_value_is_learnt(self):
        self.write_series("series.csv")
        out = self.train("run", *SERIES, "dataset.path=series.csv", "loss=mse", "training.epochs=12").out
        summary = self.summary("run")
        self.assertGreater(summary["test_r2"], 0.95)
        self.assertIn(f"MAE {summary['test_mae']:.4g}, MAPE {summary['test_mape']:.4g} %", out)
        self.assertIn("(108 samples)", out)  # 120 rows make windows of 12 rows with one row after each
        record = self.records("run")[-1]
        for key in ("mae", "mape", "rmse", "r2"):
            self.assertIn(key, record)

    def test_the_row_after_a_files_last_one_is_predicted(self):
        self.write_series("series.csv")
        rows = [[0, f"{math.sin((1000 + i) / 8):.4f}", f"{50 + 9 * math.cos((1000 + i) / 8):.2f}"] for i in range(15)]
        self.write("new.csv", ["date", "temperature", "humidity"], rows)
        self.train("run", *SERIES, "dataset.path=series.csv", "training.epochs=12")
        lines = self.brim("predict", "run", "new.csv").out.splitlines()
        self.assertEqual(len(lines), 5)  # a header, and 15 - 12 + 1 rows
        self.assertAlmostEqual(float(lines[-1].split(",")[2]), math.sin(1015 / 8), delta=0.3)

    def test_a_run_is_repeated_and_evaluated(self):
        self.write_series("series.csv", 200)
        words = [*SERIES, "dataset.path=series.csv", "training.epochs=2"]
        self.train("run", *words)
        self.brim("train", "--from", "run", "run.dir=again")
        self.assert_same_records("run", "again")
        reported = self.brim("eval", "run", "--checkpoint", "last", "--json").json
        self.assertAlmostEqual(reported["mae"], self.summary("run")["test_mae"], places=6)


class Rows(Csv):
    def test_classes_are_learnt(self):
        self.write_kinds("data/train.csv", 300)
        self.write_kinds("data/test.csv", 60)
        out = self.train("run", *KIND, "dataset.path=data", "training.epochs=20").out
        self.assertGreater(self.summary("run")["test_accuracy"], 0.95)
        for kind in KINDS:
            self.assertIn(kind, out)
        lines = self.brim("predict", "run", "data/test.csv").out.splitlines()
        self.assertEqual(len(lines), 61)
        right = sum(line.endswith(f",{KINDS[i % 3]}") for i, line in enumerate(lines[1:]))
        self.assertGreater(right, 55)

    def test_one_file_of_another_kind_with_values_that_are_missing(self):
        path = self.write_kinds("one.csv", 300, delimiter=";", quoting=csv.QUOTE_ALL, lineterminator="\r\n")
        lines = path.read_text("utf-8").splitlines()
        fields = lines[7].split(";")
        lines[7] = ";".join([*fields[:2], '"NA"', *fields[3:]])
        path.write_text("\ufeff" + "\r\n".join(lines), "utf-8")
        words = [*KIND, "dataset.path=one.csv", "dataset.separator=semicolon", "dataset.validation_fraction=0.2",
                 "training.epochs=20"]
        self.assert_error(self.train("run", *words, status=LOAD),
                          "'one.csv', line 8, column 3 'b': a value is missing", "dataset.fill=mean")
        self.train("run", *words, "dataset.fill=mean")
        self.assertGreater(self.records("run")[-1]["accuracy"], 0.9)

    def test_sequences_of_groups(self):
        """The direction of a sequence determines its class; its last value does not."""
        rows = []
        for i in range(240):
            length, up = 3 + i % 5, i % 2
            rows += [[f"s{i}", t - length if up else length - t, ["down", "up"][up]] for t in range(length)]
        self.write("one.csv", ["id", "x", "way"], rows)
        self.train("run", "model=temperature_lstm", "model.hidden=8", "dataset=csv", "dataset.path=one.csv",
                   "dataset.label=way", "dataset.group=id", "dataset.test_fraction=0.25", "training.batch_size=20",
                   "training.epochs=8", "optimizer.lr=0.02", "memory.timing=false")
        self.assertGreater(self.summary("run")["test_accuracy"], 0.95)


class WhatIsRefused(Csv):
    def test_by_plan_too_and_with_the_place(self):
        path = self.write_kinds("one.csv", 30)
        text = path.read_text("utf-8").splitlines(keepends=True)
        text[7] = "6,x,1,1,rose\n"
        path.write_text("".join(text), "utf-8")
        self.assert_error(self.brim("plan", *KIND, "dataset.path=one.csv", status=LOAD),
                          "'one.csv', line 8, column 2 'a': 'x' is not a number")
        self.assert_error(self.brim("plan", *KIND, "dataset.path=one.csv", "dataset.label=sort", status=USAGE),
                          "'one.csv' has no column 'sort', which dataset.label names",
                          "its columns are number, a, b, c, kind")


if __name__ == "__main__":
    main()
