"""A parser of the OpenMetrics text format 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/): its grammar,
and the rules about families, labels and types that concern files without histograms, exemplars and timestamps."""

import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|Inf|NaN)")
ESCAPED = re.compile(r'(?:[^"\\\n]|\\[n"\\])*')  # the escaped text of a label value
TYPES = {"unknown": ("",), "gauge": ("",), "counter": ("_total", "_created"), "info": ("_info",)}
UNESCAPED = {r"\n": "\n", r"\"": '"', r"\\": "\\"}


class Problem(ValueError):
    pass


class Family:
    def __init__(self, name):
        self.name, self.type, self.help, self.unit = name, None, None, None
        self.samples = {}  # {sorted pairs of labels: value}

    def suffixes(self):
        return TYPES[self.type or "unknown"]


def take(pattern, text, what):
    match = pattern.match(text)
    if not match:
        raise Problem(f"expected {what} at {text[:40]!r}")
    return match.group(), text[match.end():]


def take_word(text, word):
    if not text.startswith(word):
        raise Problem(f"expected {word!r} at {text[:40]!r}")
    return text[len(word):]


def parse_labels(text):
    """Returns the labels after '{', and the text after '}'."""
    labels = {}
    while not text.startswith("}"):
        if labels:
            text = take_word(text, ",")
        name, text = take(LABEL, text, "the name of a label")
        value, text = take(ESCAPED, take_word(text, '="'), "a value")
        text = take_word(text, '"')
        if name.startswith("__") or name in labels:
            raise Problem(f"the label {name} is reserved, or there twice")
        labels[name] = re.sub(r"\\.", lambda m: UNESCAPED[m.group()], value)
    return labels, text[1:]


def parse_sample(line, families):
    name, rest = take(NAME, line, "the name of a sample")
    labels = {}
    if rest.startswith("{"):
        labels, rest = parse_labels(rest[1:])
    number, rest = take(NUMBER, take_word(rest, " "), "a number")
    if rest:
        raise Problem(f"{rest!r} after the value")
    family = families[-1] if families else None
    if not family or not any(family.name + suffix == name for suffix in family.suffixes()):
        if any(name.startswith(other.name) and name[len(other.name):] in other.suffixes() for other in families[:-1]):
            raise Problem(f"the samples of {name} are in two places")
        family = Family(name)  # a family of unknown type, without a description
        families.append(family)
    series = (name, *sorted(labels.items()))
    if series in family.samples:
        raise Problem("the series is there twice")
    value = float(number)
    if family.type == "counter" and not value >= 0:
        raise Problem("a counter must not be negative or NaN")
    if family.type == "info" and value != 1:
        raise Problem("the value of an info is 1")
    family.samples[series] = value


def parse_description(line, families):
    match = re.fullmatch(r"# (TYPE|HELP|UNIT) ([^ ]+) (.*)", line)
    if not match or not NAME.fullmatch(match.group(2)):
        raise Problem("neither a sample nor a description")
    kind, name, text = match.groups()
    if not families or families[-1].name != name:
        if any(family.name == name for family in families):
            raise Problem(f"the family {name} is in two places")
        families.append(Family(name))
    family = families[-1]
    if family.samples or getattr(family, kind.lower()) is not None:
        raise Problem(f"{kind} after the samples, or twice")
    if kind == "TYPE" and text not in TYPES:
        raise Problem(f"the type {text} is unknown to this parser, or does not exist")
    if kind == "UNIT" and not name.endswith("_" + text):
        raise Problem("the name of a family ends in its unit")
    if kind == "HELP" and not ESCAPED.fullmatch(text.replace('"', "")):
        raise Problem("an escape that does not exist")
    setattr(family, kind.lower(), text)


def parse(text):
    """Returns the families of a file. Raises Problem with the number of the line."""
    families = []
    if not text.endswith("# EOF\n"):
        raise Problem("the last line is '# EOF'")
    lines = text.split("\n")[:-2]
    for number, line in enumerate(lines, 1):
        try:
            if line.startswith("#"):
                parse_description(line, families)
            else:
                parse_sample(line, families)
        except Problem as problem:
            raise Problem(f"line {number}: {problem}: {line}") from None
    names = [family.name + suffix for family in families for suffix in (*family.suffixes(), "")]
    for family in families:
        clashes = [name for name in set(names) if names.count(name) > 1 and name.startswith(family.name + "_")]
        if clashes:
            raise Problem(f"the name {clashes[0]} belongs to two families")
    return families
