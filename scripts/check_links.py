#!/usr/bin/env python3
"""Checks every link of the Markdown pages that git knows.

    scripts/check_links.py [FILE...]

A relative link must lead to a file or folder of the repository, and its anchor to a heading of that page. Links to
other sites are not followed. Exit status 1 if a link leads nowhere."""

import pathlib
import re
import subprocess
import sys
import urllib.parse

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^()\s>]+(?:\([^()\s]*\)[^()\s>]*)?)>?(?:\s+\"[^\"]*\")?\)")
HTML = re.compile(r"""\b(?:src|srcset|href)=["']([^"'\s]+)["']""")
DEFINED = re.compile(r"^\[[^\]]+\]:\s+(\S+)")
ANCHOR = re.compile(r"""<a\s+(?:id|name)=["']([^"']+)["']""")


def without_code(path):
    """Returns (number, text) of the lines outside of code blocks, with inline code blanked."""
    fence = None
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", text)
        if mark and (fence is None or text.strip().startswith(fence)):
            fence = mark[1] if fence is None else None
            continue
        if fence is None and not text.startswith("    "):
            yield number, text


def slug(heading):
    """Returns the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(path, known={}):
    if path not in known:
        found, seen = set(), {}
        for _, text in without_code(path):
            found.update(ANCHOR.findall(text))
            heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", text)
            if heading:
                name = slug(heading[1])
                found.add(name if name not in seen else f"{name}-{seen[name]}")
                seen[name] = seen.get(name, 0) + 1
        known[path] = found
    return known[path]


def links(path):
    for number, text in without_code(path):
        text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)(?![^\[]*\]\()", "", text)
        for target in LINK.findall(text) + HTML.findall(text) + DEFINED.findall(text):
            yield number, target


def problem(page, target):
    if re.match(r"[a-z][a-z0-9+.-]*:|//", target):
        return None
    name, _, anchor = target.partition("#")
    name = urllib.parse.unquote(name)
    file = (page.parent / name) if name else page
    if name.startswith("/") or not file.exists():
        return "there is no such file"
    if anchor and file.suffix == ".md" and urllib.parse.unquote(anchor) not in anchors(file.resolve()):
        return f"{name or page.name} has no heading '{anchor}'"
    return None


def check(names):
    """Prints the links of these pages that lead nowhere. Returns True if all links are good."""
    bad = 0
    for page in map(pathlib.Path, names):
        for number, target in links(page):
            why = problem(page, target)
            if why:
                print(f"{page}:{number}: link {target}: {why}")
                bad += 1
    return bad == 0


def main():
    names = sys.argv[1:] or subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True,
                                           check=True).stdout.splitlines()
    return 0 if check(names) else 1


if __name__ == "__main__":
    sys.exit(main())
