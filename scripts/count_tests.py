#!/usr/bin/env python3
"""Counts single test cases in the output of `ctest --output-junit`.

A test of ctest is a program with many cases: cmocka and Python's unittest print their number; anything else counts as
one. A program that ctest reports as failed counts at least one failed case, whatever it printed. The last line is
"N passed, N failed"; the exit status is 1 if any failed or none passed.
"""

import argparse
import re
import sys
import xml.etree.ElementTree

CMOCKA = {
    "passed": re.compile(r"\[  PASSED  \] (\d+) test\(s\)\."),
    "failed": re.compile(r"\[  FAILED  \] (?:\w+: )?(\d+) test\(s\)"),
    "skipped": re.compile(r"\[  SKIPPED \] (?:\w+: )?(\d+) test\(s\)"),
}
UNITTEST = re.compile(r"^Ran (\d+) tests? in [\d.]+s\n\n(?:OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)


def count_output(text):
    """Returns the numbers of cases that passed, failed and were skipped, as the program printed them."""
    counts = {key: sum(map(int, pattern.findall(text))) for key, pattern in CMOCKA.items()}
    for total, details in UNITTEST.findall(text):
        detail = {key.strip(): int(value) for key, value in re.findall(r"([a-z ]+)=(\d+)", details)}
        failed = min(int(total), sum(detail.get(key, 0) for key in ("failures", "errors", "unexpected successes")))
        skipped = min(int(total) - failed, detail.get("skipped", 0))
        counts["failed"] += failed
        counts["skipped"] += skipped
        counts["passed"] += int(total) - failed - skipped
    return counts


def count_test(test):
    counts = count_output(test.findtext("system-out", ""))
    skipped = test.find("skipped") is not None
    failed = not skipped and test.get("status") != "run"
    if failed and not counts["failed"]:
        counts["failed"] = 1
    elif not sum(counts.values()):
        counts["skipped" if skipped else "passed"] = 1
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broken", type=int, default=0, help="failures without a report, mostly failed builds")
    parser.add_argument("reports", nargs="*")
    options = parser.parse_args()
    total = {"passed": 0, "failed": options.broken, "skipped": 0}
    for path in options.reports:
        for test in xml.etree.ElementTree.parse(path).iter("testcase"):
            counts = count_test(test)
            for key, value in counts.items():
                total[key] += value
            if counts["failed"]:
                print(f"failed: {path}: {test.get('name')}: {counts['failed']}")
            if counts["skipped"]:
                print(f"skipped: {path}: {test.get('name')}: {counts['skipped']}")
    print(f"{total['passed']} passed, {total['failed']} failed")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
