"""Tests that an operation is defined in one place, by its descriptor, with a kernel in each backend. No other file
lists operations by name."""

import pathlib
import re

from support import Case, main

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# Files that name an operation, apart from core/graph/ops and the lines that register kernels, and the reason.
BUILDS = "builds graphs of operations"
FAMILY = "kernels of a family, which distinguishes its own operations"
WORD = "a word of its own, not the operation"
ALLOWED = {
    "core/graph/autodiff.c": BUILDS,
    "core/graph/build.c": BUILDS,
    "core/graph/federate.c": BUILDS,
    "core/graph/loss_build.c": BUILDS,
    "core/graph/shard_gradients.c": BUILDS,
    "core/graph/update.c": BUILDS,
    "core/graph/update_backward.c": BUILDS,
    "core/graph/update_build.c": BUILDS,
    "core/graph/wrap.c": BUILDS,
    "core/graph/lower.c": "has the descriptor of cast, and builds graphs of it",
    "core/graph/generate.c": "has the descriptor of cache_write, and builds graphs of it",
    "core/graph/fuse_qkv.c": "finds attention on slices of one tensor, and replaces these nodes",
    "core/graph/fuse.c": "finds the last product and its loss, which become one node, and relu before pooling",
    "core/builtin/loss.c": "the loss of that operation",
    "core/builtin/optimizer.c": "the optimizers of these operations",
    "core/engine/engine.c": "the default loss and optimizer",
    "core/exec/ceiling.c": "the loss of the models that it times",
    "core/cli/ops.c": "the operations of functions of brim/model.h",
    "plugins/backend/cpu/activation.c": FAMILY,
    "plugins/backend/cpu/conv.c": FAMILY,
    "plugins/backend/cuda/arithmetic.h": FAMILY,
    "core/config/compose.c": WORD,
    "core/config/gguf_config_write.c": WORD,
    "core/data/describe.c": WORD,
    "core/data/keep.c": WORD,
    "core/exec/predict.h": WORD,
    "core/federate/aggregation.c": WORD,
    "core/federate/world.c": WORD,
    "core/graph/plan_json.c": WORD,
    "core/monitor/folder.c": WORD,
    "core/observe/histogram.c": WORD,
    "core/planner/traffic.c": WORD,
    "core/report/index.c": WORD,
    "core/report/index_cells.c": WORD,
    "core/report/page_clients.c": WORD,
    "core/report/page_figures.c": WORD,
    "core/cli/eval.c": WORD,
    "core/setup/setup_graph.c": WORD,
    "core/store/summary.c": WORD,
    "core/store/weights_map_read.c": WORD,
    "core/train/hooks.c": WORD,
    "core/train/report.c": WORD,
    "core/train/run_insight.c": WORD,
    "core/train/run_metrics.c": WORD,
    "core/train/run_record.c": WORD,
    "plugins/backend/cuda/libraries/sdpa.c": WORD,
    "plugins/dataset/csv/kept.c": WORD,
    "plugins/dataset/language/tokenizer.c": WORD,
}


def named_in(text, operations):
    """Returns the operations that a C file has as string literals, also such as "+relu", except where it registers
    kernels."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    text = re.sub(r'(?<!\w)\.op = "[^"]*"|^[A-Z0-9_]+\(\w+, "[^"]*"', "", text, flags=re.MULTILINE)
    return {literal.strip("+") for literal in re.findall(r'"([^"\n]*)"', text)} & operations


class OperationNames(Case):
    def test_no_file_but_those_of_the_table_names_an_operation(self):
        operations = {row["name"] for row in self.brim("ops", "--json").json["operations"]}
        self.assertGreater(len(operations), 100)
        files = [path for folder in ("core", "plugins") for path in (SOURCE / folder).rglob("*")
                 if path.suffix in (".c", ".h", ".cpp", ".cu", ".cuh") and path.parent != SOURCE / "core/graph/ops"]
        self.assertGreater(len(files), 400)
        named = {path.relative_to(SOURCE).as_posix(): names for path in files
                 if (names := named_in(path.read_text(), operations))}
        new = {file: sorted(names) for file, names in named.items() if file not in ALLOWED}
        self.assertEqual(new, {}, "a property of an operation that a file needs is a field of its descriptor, op.h")
        self.assertEqual(sorted(named), sorted(ALLOWED), "files of the table that name no operation any more")

    def test_a_table_of_names_counts_and_a_kernel_does_not(self):
        operations = {"add", "linear", "relu"}
        self.assertEqual(named_in('static const row rows[] = {{"relu", 1}};', operations), {"relu"})
        self.assertEqual(named_in('if (strcmp(second, "+relu") == 0 || strncmp(op, "add+", 4) == 0)', operations),
                         {"add", "relu"})
        self.assertEqual(named_in('BRIM_KERNEL(relu) = {.op = "relu", .run = run};', operations), set())
        self.assertEqual(named_in('.loss.op = "relu"', operations), {"relu"})
        self.assertEqual(named_in('LINEAR(linear, "linear");\n/* "relu" */', operations), set())


if __name__ == "__main__":
    main()
