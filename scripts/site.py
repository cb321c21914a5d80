#!/usr/bin/env python3
"""Builds the pages of this repository as a site with search and versions: build/site/VERSION, with mkdocs-material.

    just docs                     builds it with the tools of a virtual environment in build/site-tools
    just docs --serve             builds it, then serves it on http://localhost:8000

The pages are the files that GitHub shows too: they are copied with whatever they link to, so that the same relative
links work. A version that was built before stays, and the pages have a menu of all. A link or an anchor that leads
nowhere ends the build with exit status 1."""

import argparse
import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import check_links

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "build/site"
WIDE = "wide.css"
TOOLS = ROOT / "build/site-tools"
REQUIRED = ["mkdocs==1.6.1", "mkdocs-material==9.7.*"]
# The menu: a section's title, and its pages in this order; "*" stands for all others of the folder.
MENU = [("Start", ["README.md", "docs/tutorial.md", "docs/explanation.md", "docs/glossary.md"]),
        ("Guide", ["docs/guide/README.md", "docs/guide/*"]),
        ("Reference", ["docs/sdk/README.md", "docs/sdk/*", "docs/README.md"]),
        ("Internals", ["docs/ARCHITECTURE.md", "docs/internals/README.md", "docs/internals/*"]),
        ("Measurements", ["docs/measurements/README.md", "docs/measurements/*"]),
        ("Project", ["docs/CONTRIBUTING.md", "CHANGELOG.md", "docs/*"])]


def tracked(*patterns):
    names = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return names.stdout.splitlines()


def version():
    return re.search(r"project\(brim VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def menu(pages):
    left, out = list(pages), []
    for title, patterns in MENU:
        chosen = []
        for pattern in patterns:
            folder = pattern.rpartition("/")[0]
            matching = [p for p in left if p == pattern or (pattern.endswith("*") and p.rpartition("/")[0] == folder)]
            chosen += [p for p in matching if p not in chosen]
            left = [p for p in left if p not in chosen]
        if chosen:
            out.append({title: [renamed(p) for p in chosen]})
    return out


def renamed(page):
    return "index.md" if page == "README.md" else page


def copy(name, folder):
    """Copies a page without its links to folders, which a site cannot show."""
    to = folder / renamed(name)
    to.parent.mkdir(parents=True, exist_ok=True)
    if not name.endswith(".md"):
        shutil.copy2(ROOT / name, to)
        return
    text = (ROOT / name).read_text(encoding="utf-8")
    page = pathlib.Path(name)

    def link(match):
        target = match[2].partition("#")[0]
        where = (ROOT / page.parent / target).resolve()
        if re.match(r"[a-z]+:", match[2]) or not target:
            return match[0]
        if where.is_dir():
            return match[1]
        if where == ROOT / "README.md":
            return f"[{match[1]}]({match[2].replace('README.md', 'index.md')})"
        return match[0]

    to.write_text(re.sub(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)", link, text), encoding="utf-8")


def linked(pages):
    """Returns the other files that the pages link to."""
    found = set()
    for page in pages:
        for _, target in check_links.links(ROOT / page):
            file = (ROOT / page).parent / target.partition("#")[0]
            if not re.match(r"[a-z]+:", target) and file.is_file() and file.suffix != ".md":
                found.add(str(file.resolve().relative_to(ROOT)))
    return sorted(found)


def config(pages, folder, site):
    return {"site_name": "brim", "docs_dir": str(folder), "site_dir": str(site), "use_directory_urls": False,
            "theme": {"name": "material", "font": False,
                      "features": ["navigation.tabs", "navigation.top", "navigation.footer", "toc.follow",
                                   "search.highlight", "search.suggest", "content.code.copy"],
                      "palette": [{"media": f"(prefers-color-scheme: {scheme})", "scheme": name, "primary": "indigo",
                                   "toggle": {"icon": icon, "name": f"show it {other}"}}
                                  for scheme, name, icon, other in (
                                      ("light", "default", "material/weather-sunny", "dark"),
                                      ("dark", "slate", "material/weather-night", "light"))]},
            "extra_css": [WIDE], "extra": {"version": {"provider": "mike"}, "generator": False},
            "plugins": ["search"],
            "markdown_extensions": ["tables", "admonition", "md_in_html", "pymdownx.superfences", "pymdownx.highlight",
                                    "pymdownx.inlinehilite", "pymdownx.magiclink", "sane_lists",
                                    {"toc": {"permalink": True, "toc_depth": 3, "slugify": "GITHUB"}}],
            "validation": {"omitted_files": "ignore", "absolute_links": "warn", "unrecognized_links": "warn",
                           "anchors": "warn"},
            "nav": menu(pages)}


def write_versions(new):
    """Writes the menu of versions, newest first. The site's first page leads to the newest version."""
    versions = sorted((f.name for f in OUT.iterdir() if (f / "index.html").exists()),
                      key=lambda v: [int(n) for n in re.findall(r"\d+", v)], reverse=True)
    (OUT / "versions.json").write_text(json.dumps(
        [{"version": v, "title": v, "aliases": ["latest"] if v == versions[0] else []} for v in versions]))
    (OUT / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>brim</title><meta http-equiv="refresh" content="0; '
        f'url={versions[0]}/index.html"><a href="{versions[0]}/index.html">brim {versions[0]}</a>\n')
    print(f"{OUT / new}: {sum(1 for _ in (OUT / new).rglob('*.html'))} pages; versions: {', '.join(versions)}")


def build():
    pages = tracked("*.md")
    if not check_links.check(pages):
        return 1
    name, folder = version(), OUT / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    for page in [*pages, *linked(pages)]:
        copy(page, folder)
    (folder / WIDE).write_text(".md-grid { max-width: 80rem; }\n")  # lines of code have up to 130 columns
    # JSON is valid YAML, except for the tag that names a function
    file, slugify = OUT / "mkdocs.yml", '!!python/object/apply:pymdownx.slugs.slugify {"kwds": {"case": "lower"}}'
    file.write_text(json.dumps(config(pages, folder, OUT / name)).replace('"GITHUB"', slugify))
    result = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", file],
                            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False)
    shutil.rmtree(folder)
    file.unlink()
    if result.returncode == 0:
        write_versions(name)
    return result.returncode


def run_in_tools():
    """Runs this program again with a Python that has mkdocs."""
    python = TOOLS / "bin/python3"
    if pathlib.Path(sys.prefix).resolve() == TOOLS.resolve():
        return
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", TOOLS], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIRED], check=True)
    sys.exit(subprocess.run([python, ROOT / "scripts/site.py", *sys.argv[1:]], check=False).returncode)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    os.chdir(ROOT)  # the names of pages are relative to this folder
    OUT.mkdir(parents=True, exist_ok=True)
    run_in_tools()
    status = build()
    if status == 0 and options.serve:
        print("http://localhost:8000, until Ctrl-C")
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=OUT)
        http.server.ThreadingHTTPServer(("localhost", 8000), handler).serve_forever()
    return status


if __name__ == "__main__":
    sys.exit(main())
