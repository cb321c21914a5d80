#!/usr/bin/env python3
"""Hydra's results for the cases of cases.txt, over the configurations in tree/: golden.txt, which a test without Hydra
compares with brim; and OmegaConf's results for interpolations: interpolation_golden.txt.

    compare.py              compares the golden files with the installed Hydra; says so if there is none
    compare.py --write      makes them again

A line of golden.txt is "PATH TYPE VALUE" (TYPE: int float str bool null, and list or map for an empty one), after a
line "== case". "!! error" stands for every error of Hydra: brim has its own texts."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["BRIM_HYDRA_SET"] = "from the environment"
os.environ.pop("BRIM_HYDRA_UNSET", None)


def flatten(path, value, out):
    if isinstance(value, dict) and value:
        for key, child in value.items():
            flatten(f"{path}.{key}" if path else str(key), child, out)
    elif isinstance(value, list) and value:
        for i, child in enumerate(value):
            flatten(f"{path}.{i}" if path else str(i), child, out)
    elif value is None:
        out.append(f"{path} null")
    elif isinstance(value, bool):
        out.append(f"{path} bool {str(value).lower()}")
    else:
        kind = {int: "int", float: "float", str: "str", dict: "map", list: "list"}[type(value)]
        text = "" if isinstance(value, (dict, list)) else repr(value) if isinstance(value, float) else str(value)
        out.append(f"{path} {kind} {text}" if text else f"{path} {kind}")


def lines_of(name):
    with open(os.path.join(HERE, name)) as file:
        return [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]


def compose(words):
    from hydra import compose as hydra_compose
    from omegaconf import OmegaConf
    return OmegaConf.to_container(hydra_compose(words[0], words[1:]), resolve=True)


def compositions():
    from hydra import initialize_config_dir
    out = []
    with initialize_config_dir(os.path.join(HERE, "tree"), version_base="1.3"):
        for case in lines_of("cases.txt"):
            out.append("== " + case)
            try:
                flatten("", compose(case.split(" | ")), out)
            except Exception:  # any error counts
                out.append("!! error")
    return "\n".join(out) + "\n"


def interpolations():
    """Resolves each line of interpolations.txt, a YAML map, and returns the values of its keys."""
    from omegaconf import OmegaConf
    out = []
    for case in lines_of("interpolations.txt"):
        out.append("== " + case)
        try:
            flatten("", OmegaConf.to_container(OmegaConf.create(case), resolve=True), out)
        except Exception:
            out.append("!! error")
    return "\n".join(out) + "\n"


def main():
    try:
        import hydra
    except ImportError:
        print("SKIP: Hydra is not installed, so the golden files are not compared with it (pip install hydra-core)")
        return 77
    differ = False
    for name, text in (("golden.txt", compositions()), ("interpolation_golden.txt", interpolations())):
        path = os.path.join(HERE, name)
        if "--write" in sys.argv:
            with open(path, "w") as file:
                file.write(text)
        with open(path) as file:
            same = file.read() == text
        differ = differ or not same
        print(f"{name}: {'as' if same else 'NOT as'} Hydra {hydra.__version__} says")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
