#!/usr/bin/env python3
"""Runs the commands of pages in docs/, and compares their output with the page's.

    scripts/run_docs.py [--prefix PREFIX] docs/tutorial.md ...     checks pages
    scripts/run_docs.py [--prefix PREFIX] --write docs/...         writes the output into pages where it differs

PREFIX is the prefix where brim is installed, or its build folder. Without it, the brim of the PATH runs. The blocks
```sh of a page run in one bash, one after another, in an empty folder. Their standard output and error together must
equal the block ```text that follows; without such a block any output passes. If a command fails, the check of the page
fails. Where a command is meant to fail, the page shows its exit status:

    brim plan dataset=nowhere || echo "exit status $?"

Indented commands are examples that would take too long to run. For those that train or plan, such as

    brim federate -m method=random,round_robin

`brim config` must accept each configuration.

The comparison ignores differences between machines: the patterns of VARIES, and the number of spaces between two
words, as columns are as wide as their numbers. --write keeps a block that differs in nothing else. Folders are shown as
HOME and PREFIX below.

Of the user's settings, commands see only the PATH and those that choose a compiler: no caches, plugins or
configurations of brim, and no GPU. Exit status 0: all pages are true; 1: a page is not; 2: usage."""

import argparse
import difflib
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HOME, PREFIX = "/home/me", "/usr/local"  # in pages: the folder in which commands run, and brim's prefix

# Patterns of output that depends on the machine or the time, each with its replacement for the comparison.
VARIES = [(re.compile(pattern), name) for pattern, name in [
    (r"\b\d{8}-\d{6}\b", "DATE"),                                  # the date in names of folders that brim makes
    (r'(?<="time":)\d+\.\d+', "TIME"),                             # of events
    (r"(?<![\d:])\d+:\d\d(?!:?\d)", "TIME"),                       # 1:05; not 0:01:05, a time within a simulation
    (r"[?~]?\b\d+(\.\d+)? (s|ms|us)\b|(?<=predicted to take )[\d.]+ %", "TIME"), # 0.34 s, ?5.78 ms
    (r"\b\d+(\.\d+)?k? samples/s", "RATE"),
    (r"\b\d+(?= +\d+(\.\d+)? [KMG]?i?B +TIME)", "RATE"),           # in tables
    # Results of training, as other processors round fp32 differently: loss, accuracy, and figures of a class.
    (r"(?<=loss )\d[\d.e-]*|(?:(?<=acc )|(?<=accuracy )|(?<=top \d ))[\d.]+ ?%|(?<=F1 )\d\.\d+", "LEARNT"),
    (r"(?<=\d )( +[01]\.\d{3}){3}\b", "LEARNT"),
    (r"\b(\d+\.\d+ +)+(?=RATE)", "LEARNT "),
    (r"(?<=; cpu, )[^,;]+$|(?:(?<=micro-batch \d\d x \d, )|(?<=micro-batch \d x \d, ))[^,]+$", "PROCESSOR"),
    (r"(?<=\[Memory\] host: ).*$", "HOST"),
]]

# Settings of the user who runs this.
UNSET = re.compile(r"BRIM_|XDG_|CMAKE_PREFIX_PATH$|CLIENT_ID$|GPU_DEVICE_ID$|TF_GPU|"
                   r"MAKEFLAGS$|CTEST_|SLURM_|OMPI_|PMIX_")


class Block:
    """Commands of a page, and the output that the page shows: a slice of its lines, or None. Lines are counted from
    0."""

    def __init__(self, line, commands):
        self.line, self.commands, self.output = line, commands, None


def parse(lines, page):
    """Returns the blocks ```sh, each with the place of its block ```text."""
    blocks, last, i = [], None, 0
    while i < len(lines):
        fence = re.fullmatch(r"```(\w*)\s*", lines[i])
        if not fence:
            if lines[i].strip():
                last = None  # a ```text after other text is not an output
            i += 1
            continue
        end = next((k for k in range(i + 1, len(lines)) if lines[k].rstrip() == "```"), None)
        if end is None:
            sys.exit(f"{page}:{i + 1}: this block has no end")
        if fence[1] == "sh":
            last = Block(i + 1, lines[i + 1:end])
            blocks.append(last)
        else:
            if fence[1] == "text" and last:
                last.output = slice(i + 1, end)
            last = None
        i = end + 1
    return blocks


def script(blocks, outputs):
    """Returns a bash script that writes the output of each block to a separate file."""
    parts = ["set -eE", 'trap \'echo "run_docs: exit status $? of: $BASH_COMMAND" >&2\' ERR']
    for number, block in enumerate(blocks):
        parts += [f"exec >'{outputs}/{number}' 2>&1", *block.commands]
    return "\n".join(parts) + "\n"


def environment(home, prefix):
    kept = {key: value for key, value in os.environ.items() if not UNSET.match(key)}
    path = kept.get("PATH", os.defpath)
    return {**kept, "PATH": f"{prefix}/bin:{path}" if prefix else path, "HOME": str(home), "PWD": str(home),
            "LC_ALL": "C.UTF-8", "TZ": "UTC", "CUDA_VISIBLE_DEVICES": "", "BRIM_CLAIMS_DIR": f"{home.parent}/claims",
            "OMP_NUM_THREADS": "2", "ONEDNN_MAX_CPU_ISA": "AVX2"}  # the size of a plan's scratch depends on both


def run(blocks, folder, prefix, seconds):
    """Returns the output of each block that was begun, and the error or None."""
    home, outputs = folder / "home", folder / "outputs"
    home.mkdir()
    outputs.mkdir()
    (folder / "page.sh").write_text(script(blocks, outputs), encoding="utf-8")
    process = subprocess.Popen(["bash", "--noprofile", "--norc", folder / "page.sh"], cwd=home,
                               stdin=subprocess.DEVNULL, env=environment(home, prefix), start_new_session=True)
    wrong = None
    try:
        if process.wait(timeout=seconds) != 0:
            wrong = "a command failed"
    except subprocess.TimeoutExpired:
        wrong = f"not done after {seconds} seconds"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # kills processes that the page left in the background too
        except ProcessLookupError:
            pass
        process.wait()
    printed = []
    while (outputs / str(len(printed))).exists():
        text = (outputs / str(len(printed))).read_text(encoding="utf-8", errors="replace")
        text = text.replace(str(home), HOME)
        printed.append((text.replace(str(prefix), PREFIX) if prefix else text).splitlines())
    return printed, wrong


def compared(lines):
    """Returns the lines without the parts that differ between machines."""
    result = []
    for line in lines:
        for pattern, name in VARIES:
            line = pattern.sub(name, line)
        result.append(re.sub(r"(?<=\S) +", " ", line.rstrip()))
    return result


def examples(lines):
    """Returns the indented commands, each with its line number from 1; a backslash continues a line."""
    result, i = [], 0
    while i < len(lines):
        first, command = i + 1, lines[i]
        while command.startswith("    brim ") and command.endswith("\\") and i + 1 < len(lines):
            i += 1
            command = command[:-1] + lines[i]
        if re.match(r"    brim (--config-name \S+ )?(train|federate|plan)\b", command):
            result.append((first, command.strip()))
        i += 1
    return result


def configurations(command):
    """Returns the commands that show the configurations of a training or a plan, one for each job of a sweep."""
    words = subprocess.run(["bash", "--noprofile", "--norc", "-c", 'brim() { printf "%s\\0" "$@"; }\n' + command],
                           stdout=subprocess.PIPE, text=True, check=True).stdout.split("\0")[:-1]
    sweeps = "-m" in words
    start = ["--config-name", "federate"] if "federate" in words else []
    choices = [[word] for word in words if "=" in word]
    if sweeps:
        pairs = [word[0].split("=", 1) for word in choices]
        choices = [[f"{key}={value}" for value in re.split(r",(?![^\[]*\])", values)] for key, values in pairs]
    return [["brim", "--quiet", *start, "config", *job] for job in itertools.product(*choices)]


def check_examples(page, lines, arguments):
    """Returns True if brim accepts the configurations of all examples."""
    true = True
    with tempfile.TemporaryDirectory(prefix="brim-docs-") as folder:
        home = pathlib.Path(folder).resolve() / "home"
        home.mkdir()
        for number, command in examples(lines):
            for job in configurations(command):
                result = subprocess.run(job, cwd=home, env=environment(home, arguments.prefix), text=True, check=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                if result.returncode != 0:
                    print(f"{page}:{number}: {' '.join(job)}", *result.stderr.splitlines(), sep="\n  ")
                    true = False
    return true


def check(page, arguments):
    """Checks a page, or writes it. Returns True if its outputs are now those of its commands."""
    lines = page.read_text(encoding="utf-8").splitlines()
    blocks = parse(lines, page)
    if not blocks and not examples(lines):
        print(f"{page}: no block of commands (```sh), and no example")
        return False
    true = check_examples(page, lines, arguments)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="brim-docs-")).resolve()
    try:
        printed, wrong = run(blocks, folder, arguments.prefix, arguments.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not wrong and len(printed) < len(blocks):
        wrong = "the shell has ended here"
    if wrong:
        print(f"{page}:{blocks[len(printed) - 1].line + 1}: {wrong}:", *printed[-1], sep="\n  ")
        return False
    for block, got in reversed(list(zip(blocks, printed))):  # backwards, so that lines keep their numbers
        if block.output is None or compared(lines[block.output]) == compared(got):
            continue
        if arguments.write:
            lines[block.output] = got
            continue
        true = False
        print(f"{page}:{block.line + 1}: prints something else:", *difflib.unified_diff(
            compared(lines[block.output]), compared(got), "the page", "now", lineterm=""), sep="\n  ")
    if arguments.write:
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if true:
        print(f"{page}: {len(blocks)} blocks of commands, {sum(b.output is not None for b in blocks)} with their "
              f"output")
    return true


def main():
    parser = argparse.ArgumentParser(description="Runs the commands of pages, and compares their output.")
    parser.add_argument("page", nargs="+", type=pathlib.Path)
    parser.add_argument("--prefix", type=lambda text: pathlib.Path(text).resolve(), help="of brim, or its build folder")
    parser.add_argument("--write", action="store_true", help="write the output into the pages")
    parser.add_argument("--seconds", type=float, default=600, help="time limit of a page")
    arguments = parser.parse_args()
    if arguments.prefix and not (arguments.prefix / "bin/brim").is_file():
        parser.error(f"there is no bin/brim in '{arguments.prefix}'")
    return 0 if all([check(page, arguments) for page in arguments.page]) else 1


if __name__ == "__main__":
    sys.exit(main())
