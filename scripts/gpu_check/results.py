"""Results of the checks: a line of JSON for each in results.jsonl, written when the check ends, and a page of them.

The first line of a command names the command, the device, the build and the date; the lines up to the next such line
are its checks. A command that is killed loses only the checks that had not ended."""

import contextlib
import json
import threading
import time

VERDICTS = ("ok", "failed", "unfinished", "skipped")
DETAILS_MAX = 20000  # characters of one program's output


class Results:
    def __init__(self, folder, identity, carried=None):
        """`carried`: a results.jsonl of an earlier command, perhaps from a machine that is gone. Its lines are kept,
        and checks that were ok on the same device and build are not repeated."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.details_path = folder / "results.jsonl", folder / "details.txt"
        lines = whole_lines(carried or self.path)  # leaves out a truncated last line, so that nothing is appended to it
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        self.done = {line["check"] for line in read(self.path)
                     if line["verdict"] == "ok" and all(line[key] == identity[key] for key in identity)}
        self.lock = threading.Lock()
        self.found = []
        self.append({"began": time.strftime("%Y-%m-%d %H:%M:%S"), **identity})

    def append(self, line):
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def add(self, name, verdict, seconds, **figures):
        assert verdict in VERDICTS, verdict
        line = {"check": name, "verdict": verdict, "seconds": round(seconds, 1), **figures}
        with self.lock:
            self.found.append(line)
            self.append(line)
            print(f"{verdict:10} {name} ({line['seconds']} s){': ' if figures else ''}{text_of(figures)}", flush=True)

    def details(self, name, text):
        """Appends the output of a failed program: its first part, which has the error, and its end."""
        half = DETAILS_MAX // 2
        text = text if len(text) <= DETAILS_MAX else f"{text[:half]}\n...\n{text[-half:]}"
        with self.lock, self.details_path.open("a", encoding="utf-8") as file:
            file.write(f"== {name}\n{text}\n")


def text_of(figures):
    return ", ".join(f"{key} {value}" for key, value in figures.items())


def whole_lines(path):
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            lines.append(json.loads(text))
    return lines


def read(path):
    """Returns the checks of a results.jsonl, each with the fields of its command's first line."""
    lines, head = [], {}
    for line in whole_lines(path):
        if "began" in line:
            head = line
        else:
            lines.append({**head, **line})
    return lines


def page(lines):
    """Returns Markdown with a table for each command on a device; of a repeated check the last line counts."""
    def cell(text):
        return str(text).replace("|", "\\|").replace("\n", "<br>")

    tables = {}
    for line in lines:
        title = f"{line['command']}: {line['device']}, build {line['build']}"
        tables.setdefault(title, {})[line["check"]] = line
    out = ["# gpu_check"]
    for title, checks in tables.items():
        verdicts = [line["verdict"] for line in checks.values()]
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in VERDICTS if v in verdicts)
        out += ["", f"## {title}", "", f"{counts}.", "", "| check | verdict | s | figures |", "|---|---|---|---|"]
        for name, line in checks.items():
            figures = {k: v for k, v in line.items()
                       if k not in ("check", "verdict", "seconds", "began", "command", "device", "build")}
            out.append(f"| {cell(name)} | {line['verdict']} | {line['seconds']} | {cell(text_of(figures))} |")
    return "\n".join(out) + "\n"
