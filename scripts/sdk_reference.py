#!/usr/bin/env python3
"""Writes docs/sdk, the reference of the SDK: a page for each header of core/include/brim, made from its declarations
and comments, and one for the parameters of the shipped plugins, as `brim plugins` lists them.

    scripts/sdk_reference.py [--brim PROGRAM] [--check]

--check changes nothing: it prints the differences, and fails if there are any. PROGRAM defaults to
build/release/bin/brim. Plugins that this build lacks, such as those for GPUs, keep their entries in the page."""

import argparse
import difflib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "core" / "include" / "brim"
PAGES = ROOT / "docs" / "sdk"
SYMBOLS = ROOT / "tests" / "abi" / "symbols.txt"
# Reading order; other headers follow.
ORDER = ["plugin", "policy", "model", "dataset", "selector", "aggregator", "optimizer", "formula", "schedule", "loss",
         "augment", "backend", "comm", "ops", "tensor", "status", "host", "memory", "engine", "random"]
MADE = "<!-- Made by scripts/sdk_reference.py: change the {source}, then run it. -->\n"
# The lines that a condition of the preprocessor hides: True, those before #else; False, those after it. The reference
# shows C on the host, with gcc or clang.
HIDDEN = {"#ifdef __cplusplus": True, "#ifdef __CUDACC__": True, "#if defined(__GNUC__)": False}

# ---- reading headers ----


class Item:
    """Declarations that share a comment: .code, .names ({name: kind}), .doc (lines), or only a .title."""

    def __init__(self, doc=(), code="", title=""):
        self.doc, self.code, self.title, self.names = list(doc), code, title, {}

    def heading(self):
        return (self.title[0].upper() + self.title[1:]).rstrip(". ")


def visible(text):
    """Returns the lines between the guards, without includes and hidden sides of conditions."""
    shown, hidden = [], []
    for line in text.splitlines():
        word = line.split(" ")[0]
        if word in ("#ifdef", "#if"):
            hidden.append(next((value for start, value in HIDDEN.items() if line.startswith(start)), False))
        elif word == "#ifndef":
            hidden.append(False)
        elif word == "#else":
            hidden[-1] = not hidden[-1]
        elif word == "#endif":
            hidden.pop()
        elif word == "#include" or re.match(r"#define BRIM_\w+_H$", line) or "clang-format" in line \
                or "#define BRIM_ANYWHERE" in line or any(hidden):
            continue
        else:
            shown.append(line)
    return shown


def comment_at(lines, i):
    """Returns the comment that begins in line i, as lines of text, and the number of the line after it."""
    end = i
    while "*/" not in lines[end]:
        end += 1
    text = [re.sub(r"^ ?\*/|^ \* ?|^/\* ?| ?\*/$", "", line).rstrip() for line in lines[i:end + 1]]
    return text[:-1] if text[-1] == "" else text, end + 1


def declaration_at(lines, i):
    """Returns the declaration that begins in line i, without the body of a function, and the number of the line after
    it."""
    if lines[i].startswith("#"):
        end = i
        while lines[end].endswith("\\"):
            end += 1
        return [re.sub(r" +\\$", " \\\\", line) for line in lines[i:end + 1]], end + 1
    head = i
    while not re.search(r"[;{]", re.sub(r"/\*.*?\*/", "", lines[head])) and lines[head + 1] != "{":
        head += 1
    if lines[head + 1:head + 2] == ["{"]:  # an inline function
        end = head + 1
        while lines[end] != "}":
            end += 1
        return lines[i:head] + [lines[head] + ";"], end + 1
    depth, end, comment = 0, i, False
    while True:
        code, comment = without_comments(lines[end], comment)
        depth += code.count("{") - code.count("}")
        end += 1
        if depth == 0 and code.rstrip().endswith(";"):
            return lines[i:end], end


def without_comments(line, inside):
    """Returns a line's code, and whether the line ends within a comment."""
    code = ""
    while line:
        start, end = line.find("/*"), line.find("*/")
        if inside:
            if end < 0:
                return code, True
            line, inside = line[end + 2:], False
        elif start < 0:
            return code + line, False
        else:
            code, line, inside = code + line[:start], line[start + 2:], True
    return code, inside


def names_of(code):
    """Returns the names that a declaration declares: {name: "function", "macro", "struct" ...}."""
    if match := re.match(r"#define (\w+)", code):
        return {match[1]: "macro"}
    if match := re.search(r"^}\s*(\w+);", code, re.MULTILINE):
        return {match[1]: "union" if "typedef union" in code else "struct"}
    if match := re.match(r"enum (\w+) {", code):
        return {match[1]: "enum"}
    if match := re.match(r"typedef [^;]*\(\*(\w+)\)\(", code) or re.match(r"typedef [^({]*\b(\w+);", code):
        return {match[1]: "type"}
    if match := re.match(r"[^;(={]*?\b(\w+)\(", code):
        return {match[1]: "function"}
    return {}


def belong(before, names):
    """Returns whether declarations without a comment belong to those before them. Types join types, functions join
    functions, and macros join either."""
    kinds = {kind == "function" for kind in before.values() if kind != "macro"}
    return all(kind == "macro" or {kind == "function"} >= kinds for kind in names.values())


def paragraphs(doc):
    """Returns a comment's lines; an empty line between two indented ones is indented too."""
    for i, line in enumerate(doc):
        within = line == "" and 0 < i < len(doc) - 1 and doc[i - 1].startswith("  ") and doc[i + 1].startswith("  ")
        yield "  " if within else line


def tidy(code):
    if code.startswith("BRIM_EXPORT "):
        code = re.sub(r"(?m)^ {12}", "", code[len("BRIM_EXPORT "):])
    code = re.sub(r"\s+BRIM_PRINTF\(\d, \d\)", "", code)
    return re.sub(r"(?m)^BRIM_ANYWHERE ", "static inline ", code)


def read_header(path):
    """Returns the header's opening comment and its items."""
    lines = visible(path.read_text(encoding="utf-8"))
    intro, i = comment_at(lines, 0)
    items, doc, functions = [], None, set()
    beside = False  # True if no empty line followed the last declaration
    while i < len(lines):
        line = lines[i]
        if line.strip() in ("", 'extern "C" {', "}"):
            if doc:  # a comment without a declaration
                items.append(Item(doc))
            doc, beside = None, False
            i += 1
        elif line.startswith("/*"):
            if doc:
                items.append(Item(doc))
            doc, i = comment_at(lines, i)
            if match := re.match(r"-+ (.*?) ?-*$", " ".join(doc).strip(" -") and " ".join(doc)):
                items.append(Item(title=match[1].rstrip(" -")))
                doc = None
        else:
            code, i = declaration_at(lines, i)
            text = tidy("\n".join(code))
            names = names_of(text)
            if any(name in functions for name in names) or text.startswith(("extern ", "#undef")):
                continue  # skips the macros of model.h that put brim_at before a function
            functions.update(name for name, kind in names.items() if kind == "function")
            follows = doc is None and items and items[-1].code and beside
            if follows and belong(items[-1].names, names):
                items[-1].code += "\n" + text
            else:
                items.append(Item(doc or (), text))
            items[-1].names.update(names)
            doc, beside = None, True
    return intro, items


# ---- writing pages ----


class Reference:
    def __init__(self):
        self.since = self.read_symbols()
        stems = sorted((path.stem for path in HEADERS.glob("*.h")), key=lambda stem: (
            ORDER.index(stem) if stem in ORDER else len(ORDER), stem))
        self.headers = {stem: read_header(HEADERS / f"{stem}.h") for stem in stems if stem != "brim"}
        self.place = {}  # header and anchor of each name
        for stem, (_, items) in self.headers.items():
            for item in items:
                # gelu is an enum in ops.h and a function; links mean the function
                self.place.update({name: (stem, name) for name, kind in item.names.items()
                                   if kind == "function" or name not in self.place})
                for enum in re.finditer(r"^enum (\w+) {(.*?)};", item.code, re.MULTILINE | re.DOTALL):
                    self.place.update({name: (stem, enum[1]) for name in re.findall(r"\bBRIM_[A-Z0-9_]+\b", enum[2])
                                       if name not in self.place})

    @staticmethod
    def read_symbols():
        since, abi = {}, ""
        for line in SYMBOLS.read_text(encoding="utf-8").splitlines():
            abi = line.split()[-1] if line.startswith("# ABI ") else abi
            if line and line[0] != "#":
                since[line] = abi
        return since

    def since_of(self, item):
        """Returns the ABI version that introduced an item; "" for the first version."""
        stated = re.search(r"[Ss]ince ABI (\d+\.\d+)\.?$", " ".join(item.doc))
        versions = {self.since[name] for name in item.names if self.since.get(name, "1.0") != "1.0"}
        return stated[1] if stated else max(versions, default="")

    def link(self, text, page):
        """Links the SDK's names in a line of text, and formats constants as code."""

        def name(match):
            word = match[0]
            home, anchor = self.place.get(word.removesuffix("()"), (None, None))
            if not home:
                return f"`{word}`"
            return f"[`{word}`]({'' if home == page else home + '.md'}#{anchor})"

        parts = re.split(r"(`[^`]*`)", text)
        for i in range(0, len(parts), 2):
            part = cell(parts[i])
            part = re.sub(r"(?<![\w/.`(])(?:brim|BRIM)_\w+(?:\(\)|(?![\w(]))", name, part)
            parts[i] = re.sub(r"\[(plan|init|step|any thread|any time)\]", r"**[\1]**", part)
        return "".join(parts)

    def prose(self, doc, page):
        """Returns a comment as Markdown: indented text is code, and so is a whole table of tensors (ops.h)."""
        if any(re.search(r"\S {2,}(in|out):", line) for line in doc):
            return "```text\n" + "\n".join(doc) + "\n```\n"
        out = []
        for indented, lines in itertools.groupby(paragraphs(doc), lambda line: line.startswith("  ")):
            if indented:
                text = textwrap.dedent("\n".join(lines)).rstrip()
                is_code = re.search(r"[;{})]$", text, re.MULTILINE) and not re.search(r"\S {3,}\S", text)
                out.append(f"```{'c' if is_code else 'text'}\n{text}\n```")
            else:
                out.append("\n".join(self.link(line, page) for line in lines).strip("\n"))
        return "\n\n".join(text for text in out if text) + "\n"

    def item(self, item, page):
        if item.title:
            return f"## {self.link(item.heading(), page)}\n"
        text = ""
        if item.names:
            text = "".join(f'<a id="{name}"></a>' for name in item.names) + "\n\n"
            text += "### " + ", ".join(f"`{name}`" for name in item.names) + "\n\n"
        if since := self.since_of(item):
            if item.names and "ince ABI" not in " ".join(item.doc):
                text += f"Since ABI {since}.\n\n"
        if item.doc:
            text += self.prose(item.doc, page) + ("\n" if item.code else "")
        return text + (f"```c\n{item.code}\n```\n" if item.code else "")

    @staticmethod
    def contents(items):
        """Returns a line for each section, with its names."""
        sections = [("", [])]
        for item in items:
            if item.title:
                sections.append((f"{item.heading()}: ", []))
            sections[-1][1].extend(f"[`{name}`](#{name})" for name in item.names)
        return "".join(f"- {title}{', '.join(names)}\n" for title, names in sections if names)

    def page(self, stem):
        intro, items = self.headers[stem]
        parts = [MADE.format(source="header"), f"# brim/{stem}.h\n", self.prose(intro, stem),
                 f"[The header](../../core/include/brim/{stem}.h) · [all headers](README.md)\n",
                 self.contents(items)]
        return "\n".join(parts + [self.item(item, stem) for item in items])

    def index(self):
        text = MADE.format(source="headers") + """
# The SDK

Plugins and programs that use libbrim are written against these headers, in C17 or C++17. Comments mark functions:
**[plan]** is called before device memory is allocated, **[init]** may allocate, **[step]** must not allocate,
**[any thread]** may be called from any thread. "Since ABI" is the first ABI that has a name; `brim version` shows the
ABI of the installed brim.

| header | |
|---|---|
"""
        for stem, (intro, _) in self.headers.items():
            first = " ".join(itertools.takewhile(bool, intro)).split(". ")[0].rstrip(".:")
            text += f"| [brim/{stem}.h]({stem}.md) | {self.link(first, '')} |\n"
        text += "\n`#include <brim/brim.h>` includes all of them except brim/engine.h, which is for programs. "
        text += "[plugins.md](plugins.md) lists the shipped plugins and their parameters.\n\n## Names\n\n"
        rows = {}
        for stem, (_, items) in self.headers.items():
            for item in items:
                for name, kind in item.names.items():
                    rows[name, stem] = f"| [`{name}`]({stem}.md#{name}) | {kind} | {self.since_of(item)} |\n"
        text += "| name | | since ABI |\n|---|---|---|\n"
        return text + "".join(rows[key] for key in sorted(rows, key=lambda key: (key[0].lower(), key)))


# ---- plugins ----

KINDS = {"model": "Models", "dataset": "Data sets", "policy": "Memory policies", "selector": "Selectors of clients",
         "aggregator": "Aggregators of updates",
         "backend": "Backends", "comm": "Communicators", "optimizer": "Optimizers", "schedule": "Schedules",
         "loss": "Losses", "augment": "Augmentations"}


def cell(text):
    """Escapes text for Markdown."""
    return re.sub(r"([|*])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def code(text):
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def plugin_section(plugin):
    name = f"{plugin['kind']}/{plugin['id']}"
    text = f'<a id="{name.replace("/", "-")}"></a>\n\n### {name}\n\n{cell(plugin["help"])}\n'
    if plugin["parameters"]:
        text += "\n| key | type | default | range | |\n|---|---|---|---|---|\n"
    for row in plugin["parameters"]:
        default = "required" if row["default"] is None else code(row["default"] or "''")
        text += f"| `{row['key']}` | {row['type']} | {default} | {code(row['range'])} | {cell(row['help'])} |\n"
    return text


def shipped(kind, name):
    """Returns whether the sources have this plugin."""
    return (ROOT / "plugins" / kind / name).is_dir() or (kind == "model" and (ROOT / "models" / f"{name}.c").exists())


def plugins_page(program, before):
    """Returns the page; it copies plugins that this build lacks from the old page."""
    environment = {name: value for name, value in os.environ.items() if name != "BRIM_PLUGIN_PATH"}
    out = subprocess.run([program, "plugins", "--json"], check=True, text=True, env=environment,
                         stdout=subprocess.PIPE).stdout
    sections = {}
    for match in re.finditer(r'<a id="(\w+)-(\w+)"></a>\n.*?(?=\n<a id=|\n## |\Z)', before, re.DOTALL):
        if shipped(match[1], match[2]):
            sections[match[1], match[2]] = match[0].rstrip("\n") + "\n"
    for plugin in json.loads(out)["plugins"]:
        sections[plugin["kind"], plugin["id"]] = plugin_section(plugin)
    text = MADE.format(source="plugins' tables") + """
# Plugins and their parameters

The plugins that come with brim, as `brim plugins KIND/ID` shows them. In configurations and on the command line, the
prefix of a key is its group: `model.width=64`. Policies' keys also have the policy's name:
`policy.periodic.light_every=2`.

"""
    for kind, title in KINDS.items():
        names = sorted(name for of, name in sections if of == kind)
        text += f"[{title}](#{title.lower().replace(' ', '-')}): "
        text += ", ".join(f"[{name}](#{kind}-{name})" for name in names) + "\n\n"
    for kind, title in KINDS.items():
        text += f"## {title}\n\n" + "\n".join(text for (of, _), text in sorted(sections.items()) if of == kind) + "\n"
    return text.rstrip("\n") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--brim", default=str(ROOT / "build" / "release" / "bin" / "brim"))
    parser.add_argument("--check", action="store_true")
    words = parser.parse_args()
    before = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    reference = Reference()
    pages = {f"{stem}.md": reference.page(stem) for stem in reference.headers}
    pages["README.md"] = reference.index()
    pages["plugins.md"] = plugins_page(words.brim, before.get("plugins.md", ""))
    differs = False
    for name in sorted({*pages, *before}):
        was, now = before.get(name, ""), pages.get(name, "")
        if was == now:
            continue
        differs = True
        if words.check:
            lines = difflib.unified_diff(was.splitlines(), now.splitlines(), f"docs/sdk/{name}",
                                         "as it should be", "", "", 1, "")
            print("\n".join(list(lines)[:40]))
        elif now:
            PAGES.mkdir(exist_ok=True)
            (PAGES / name).write_text(now, encoding="utf-8")
        else:
            (PAGES / name).unlink()
    if words.check and differs:
        print("docs/sdk does not match the headers and tables: run scripts/sdk_reference.py --brim", words.brim,
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
