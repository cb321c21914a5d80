"""Writes train.csv and test.csv into a folder: hours of the day, and waiting times for a bus. Times are
exponential with a mean of 5 to 15 minutes, so nine of ten are shorter than ln(10) times the mean of the hour.

    python3 waits.py FOLDER
    python3 waits.py FOLDER --shorter-than PREDICTIONS [--expect SHARE]    # of test.csv, by brim predict

The second prints which share of the waits in test.csv is shorter than predicted; it must be within 0.05 of SHARE.
"""

import argparse
import csv
import math
import pathlib
import random


def mean(hour):
    return 10 + 5 * math.sin(2 * math.pi * hour / 24)


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    for split, count in (("train", 8000), ("test", 4000)):
        with (folder / f"{split}.csv").open("w", encoding="utf-8") as out:
            print("hour,wait", file=out)
            for _ in range(count):
                hour = draw.uniform(0, 24)
                print(f"{hour:.4f},{draw.expovariate(1 / mean(hour)):.4f}", file=out)


def column(path, name):
    with path.open(encoding="utf-8", newline="") as rows:
        return [float(row[name]) for row in csv.DictReader(rows)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shorter-than", type=pathlib.Path)
    parser.add_argument("--expect", type=float)
    a = parser.parse_args()
    if not a.shorter_than:
        write(a.folder)
        return
    waits, predicted = column(a.folder / "test.csv", "wait"), column(a.shorter_than, "value0")
    assert len(waits) == len(predicted)
    share = sum(wait < most for wait, most in zip(waits, predicted)) / len(waits)
    print(f"{100 * share:.1f} % of the waits are shorter than predicted")
    if a.expect is not None:
        assert abs(share - a.expect) < 0.05


main()
