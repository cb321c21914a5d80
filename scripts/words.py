#!/usr/bin/env python3
"""Looks for phrases that docs/CONTRIBUTING.md asks writers to avoid.

    scripts/words.py [FOLDER...]          counts them per 10,000 lines of text files, a column a folder
    scripts/words.py --list [PATH...]     lists every one of them: file:line: text
    scripts/words.py --check FILE...      lists those that lint refuses; exit status 1 if there is one

A folder may be any tree, such as another project's to compare with; a path is one of git's here."""

import argparse
import pathlib
import re
import subprocess
import sys

TEXT = re.compile(r"\.(c|cc|cpp|h|hpp|cu|cuh|m|metal|py|sh|cmake|md|rst|txt|yaml|yml)$|(^|/)justfile$")
NOT_OURS = re.compile(
    r"(^|/)(\.git|build|deps|vendor|third_party|node_modules)/"
    r"|(^|/)(CHANGELOG\.md|ChangeLog|AUTHORS)$|^(scripts/words|tests/docs/test_pages)\.py$")
REFUSED = {
    "nobody, whoever": r"(?<![~'\":(,/-])\b(nobody|whoever)\b(?!['\")-])",
    "is none": r"(?<!there )\b(is|are|was|were) (?-i:none)\b",
    "is no number": r"(?<!there )\b(is|are|becomes?) no (number|multiple|whole|power|file|folder|name|key|one)\b",
    "goes on with": r"\b(go|goes|going|gone|went) on with\b",
    "told": r"\btold\b(?= (in|by|as|to|of|once|about|when|what|that)\b)|\b(is|are|was|were|be|been|being) told\b",
}
COUNTED = {
    "who": r"\bwho\b",
    "behind, in front of": r"\bbehind\b|\bin front of\b",
    "what is ..., as a noun": r"(?<!\? )\bwhat (is|are|was|were|it|a|the|they|has|have|does|needs?|can|must)\b(?!.*\?)",
    "as of, goes by, so many": r"\bas of\b|\bgoes by\b|\bso many\b",
}


def lines_of(path):
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def files_of(folder):
    return [f for f in sorted(folder.rglob("*")) if f.is_file() and TEXT.search(f.name)
            and not NOT_OURS.search(str(f.relative_to(folder)))]


def ours(paths):
    names = subprocess.run(["git", "ls-files", "--", *paths], capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(n) for n in names.splitlines() if TEXT.search(n) and not NOT_OURS.search(n)]


def find(files, phrases):
    """Returns the number of lines, and (file, number of the line, its text, phrase) for each find."""
    count, found = 0, []
    for file in files:
        for number, text in enumerate(lines_of(file), 1):
            count += 1
            found += [(file, number, text.strip(), name) for name, regex in phrases.items()
                      if re.search(regex, text, re.IGNORECASE)]
    return count, found


def print_counts(folders):
    phrases = {**REFUSED, **COUNTED}
    columns = []
    for folder in folders:
        count, found = find(files_of(folder), phrases)
        rates = [1e4 * sum(1 for f in found if f[3] == name) / max(1, count) for name in phrases]
        columns.append([f"{rate:.1f}" for rate in [*rates, sum(rates)]] + [f"{count:,}"])
    print("| per 10,000 lines | " + " | ".join(folder.resolve().name for folder in folders) + " |")
    print("|---" * (1 + len(folders)) + "|")
    for i, name in enumerate([*phrases, "all", "lines"]):
        print(f"| {name} | " + " | ".join(column[i] for column in columns) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args()
    if not options.list and not options.check:
        print_counts([pathlib.Path(p) for p in options.paths or ["."]])
        return 0
    files = [f for f in map(pathlib.Path, options.paths) if TEXT.search(f.name) and not NOT_OURS.search(str(f))] \
        if options.check else ours(options.paths)
    _, found = find(files, REFUSED if options.check else {**REFUSED, **COUNTED})
    for file, number, text, name in found:
        print(f"{file}:{number}: {name}: {text[:150]}")
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
