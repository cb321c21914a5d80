"""Makes tables from the results of limits.py and inserts them into a page."""

import statistics

MIB = 1 << 20
START, END = "<!-- tables: scripts/bench/limits.sh -->", "<!-- tables end -->"
# Ratios to print: numerator, denominator.
RATIOS = [("brim none", "torch eager"), ("brim auto", "torch eager"), ("brim auto", "torch checkpoint"),
          ("brim auto bf16", "torch checkpoint")]


def table(title, columns, rows):
    lines = [title, "", "| MiB | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def divided(a, b):
    if not b:
        return "only brim" if a else "neither"
    return f"{a / b:.2f}"


def pairs_in(names):
    return [pair for pair in RATIOS if pair[0] in names and pair[1] in names]


def ratio_titles(pairs):
    return [f"{a} / {b}".replace("torch ", "").replace("brim ", "") for a, b in pairs]


def batches(result, key, title):
    names = list(next(iter(result.values())))
    pairs = pairs_in(names)
    rows = [[limit, *(cells[n][key] or "-" for n in names), *(divided(cells[a][key], cells[b][key]) for a, b in pairs)]
            for limit, cells in result.items()]
    return table(title, names + ratio_titles(pairs), rows)


def rates(cell):
    return [run["samples_per_second"] for run in cell.get("runs", []) if run["samples_per_second"]]


def speed(result):
    """Returns a table of medians over the rounds; a ratio is the median of the rounds' ratios."""
    names = list(next(iter(result.values())))
    pairs = pairs_in(names)
    rows = []
    for limit, cells in result.items():
        row = [limit] + [f"{statistics.median(rates(cells[n])):.0f}" if rates(cells[n]) else "-" for n in names]
        for a, b in pairs:
            both = [x / y for x, y in zip(rates(cells[a]), rates(cells[b]))]
            row.append(f"{statistics.median(both):.2f}" if both else "-")
        rows.append(row)
    return table("Samples/s at the powers of two:", names + ratio_titles(pairs), rows)


def grown(result):
    names = list(next(iter(result.values())))
    rows = [[limit] + [f"{max(r['growth'] for r in cells[n]['runs']) / MIB:.1f}" if cells[n].get("runs") else "-"
                       for n in names] for limit, cells in result.items()]
    return table("Memory of the process above that before the model existed, MiB, the largest of all rounds:",
                 names, rows)


def chosen(result):
    """Lists the cases in which training.batch_size=auto chooses a batch smaller than the largest that fits, to save
    time."""
    lines = [f"- {limit} MiB, {name}: {cell['chosen']}, where {cell['largest']} would fit"
             for limit, cells in result.items() for name, cell in cells.items()
             if cell.get("chosen", cell["largest"]) < cell["largest"]]
    return "`training.batch_size=auto` takes smaller micro-batches:\n\n" + "\n".join(lines) + "\n" if lines else ""


def page(head, helps, results):
    parts = [head + "\n"]
    for model, result in results.items():
        parts.append(f"### {model}\n\n{helps[model]}.\n")
        parts.append(batches(result, "largest", "Largest micro-batch, of the powers of two:"))
        if any(cell["refined"] != cell["largest"] for cells in result.values() for cell in cells.values()):
            parts.append(batches(result, "refined", "Largest micro-batch, in quarters between them:"))
        if any("runs" in cell for cells in result.values() for cell in cells.values()):
            parts += [speed(result), grown(result)]
        parts.append(chosen(result))
    return "\n".join(part for part in parts if part)


def put(path, text):
    """Replaces the tables in a page."""
    old = path.read_text()
    before, rest = old.split(START, 1)
    path.write_text(f"{before}{START}\n\n{text}\n{END}{rest.split(END, 1)[1]}")
