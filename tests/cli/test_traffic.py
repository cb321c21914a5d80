"""Tests `brim plan --traffic`: bytes, arithmetic and launches of a step by class of operation, and their least time."""

import json
import math
import pathlib
import re

from support import DONE, SMALL, Case, main

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "flops.jsonl"  # made by scripts/bench/flops_torch.py
CNN = ["model=cnn", "model.width=8", "dataset=synthetic", "dataset.shape=[1,12,12]", "training.batch_size=64"]
CPU = ["backend=cpu", "backend.threads=1", "--no-timing"]
BYTES = {"f64": 8, "f32": 4, "i32": 4, "bf16": 2, "f16": 2, "u8": 1}
# The index of the first output that a kernel adds to. It reads and writes this output and those after it.
ADDS = {"linear_grad_weight": 0, "conv2d_grad_weight": 0, "embedding_grad": 0, "linear_cross_entropy_grad": 1,
        "linear_cross_entropy+grad": 3, "layer_norm_grad": 1, "layer_norm_grad+add": 1,
        "rms_norm_grad+add": 1, "batch_norm_grad": 1, "batch_norm+relu_grad": 1, "batch_norm+add+relu_grad": 2,
        "sum_to": 0, "accumulate": 0}


def tensors(text, batch):
    """Returns the type and the number of elements in memory of each tensor of a signature."""
    for dtype, dims, block in re.findall(r"(\w+)\[([^]]*)\](?:/(\d+))?", text):
        sizes = []
        for dim in dims.split(",") if dims else []:
            of_n = re.fullmatch(r"N(?:\*(\d+)|/(\d+))?", dim)
            sizes.append(batch * int(of_n[1] or 1) // int(of_n[2] or 1) if of_n else int(dim))
        if block:  # in memory, channels fill whole blocks
            sizes[1] = -(-sizes[1] // int(block)) * int(block)
        yield dtype, math.prod(sizes)


def bytes_of(row, batch, begins=False):
    """Returns the bytes that a node of this row reads and writes, each operand once, computed from its signature.
    begins: the node is in a step's first micro-batch, which overwrites gradients; later ones add to them. A node that
    computes only some rows of a gradient always adds to it."""
    inputs, outputs = row["signature"].split(" > ")
    read = [BYTES[dtype] * count for dtype, count in tensors(inputs, batch)]
    written = [BYTES[dtype] * count for dtype, count in tensors(outputs, batch)]
    if row["op"] == "embedding":  # reads only the rows that are looked up
        read[1] = min(read[1], written[0])
    if row["op"] == "embedding_grad":
        written[0] = min(written[0], read[1])
    if row["op"] == "slice":
        read = written
    adds = ADDS.get(row["op"], len(written))
    if begins and row["op"] != "embedding_grad":
        adds = len(written)
    return sum(read) + sum(written) + sum(written[adds:])


class Traffic(Case):
    def traffic(self, *words, status=DONE):
        return json.loads(self.brim("plan", *words, "--traffic", "--json", status=status).out)["traffic"]

    def test_rows_add_up_to_classes_and_these_to_the_step(self):
        traffic = self.traffic(*CNN, *CPU)
        for figure in ("nodes", "launches", "flops", "bytes"):
            whole = traffic["step"][figure]
            self.assertEqual(sum(row[figure] for row in traffic["classes"]), whole)
            rows = sum(row[figure] for row in traffic["operations"])
            besides = sum(row[figure] for row in traffic["classes"] if row["class"] == "zeroing and input")
            self.assertEqual(rows + besides, whole)
        self.assertEqual([row["class"] for row in traffic["classes"] if row["class"] == "convolution"], ["convolution"])

    def test_the_bytes_are_those_of_the_operands(self):
        """The test counts the bytes again from the shapes, for networks of all kinds."""
        nets = [[*CNN], ["model=resnet18", "dataset=synthetic", "dataset.shape=[3,32,32]", "training.batch_size=16"],
                ["model=vit_tiny", "model.depth=2", "dataset=synthetic", "dataset.shape=[3,32,32]",
                 "training.batch_size=16", "model.patch=8"],
                ["model=mlp", "dataset=synthetic", "training.batch_size=32"]]
        for net in nets:
            batch = int(net[[word.startswith("training.batch_size") for word in net].index(True)].split("=")[1])
            for precision in ("fp32", "bf16"):
                for row in self.traffic(*net, *CPU, f"precision={precision}", "training.effective_batch_size=64"
                                        )["operations"]:
                    with self.subTest(net=net[0], row=row["signature"]):
                        firsts = row["nodes"] * batch // 64  # number of nodes in the first micro-batch
                        if row["class"] == "optimizer":
                            firsts = 0
                        self.assertEqual(row["bytes"], firsts * bytes_of(row, batch, begins=True)
                                         + (row["nodes"] - firsts) * bytes_of(row, batch))
                        if "_norm" in row["op"]:  # includes norms fused with a sum or an activation
                            self.assertEqual(row["class"], "optimizer" if row["op"] == "squared_norm" else "norm")

    def test_each_micro_batch_counts_and_the_update_once(self):
        one = self.traffic(*CNN, *CPU, "training.effective_batch_size=64")
        four = self.traffic(*CNN, *CPU, "training.effective_batch_size=256")
        self.assertEqual(len(one["operations"]), len(four["operations"]))
        for a, b in zip(one["operations"], four["operations"]):
            times = 1 if a["class"] == "optimizer" else 4
            for figure in ("nodes", "launches", "flops"):
                self.assertEqual(times * a[figure], b[figure], a)
            # Gradients, which every micro-batch except the first reads.
            read = bytes_of(a, 64) - bytes_of(a, 64, begins=True)
            self.assertEqual(times * a["bytes"] + (times - 1) * a["nodes"] * read, b["bytes"], a)

    def test_a_kernel_is_a_launch_and_a_view_is_none(self):
        traffic = self.traffic(*CNN, *CPU)
        for row in traffic["operations"]:
            self.assertEqual(row["nodes"], row["launches"])
            self.assertGreater(row["bytes"], 0, row)

    def test_the_arithmetic_is_what_pytorch_counts(self):
        for line in GOLDEN.read_text().splitlines():
            case = json.loads(line)
            if "dataset=tokens" in case["words"]:
                (self.folder / "tokens").mkdir(exist_ok=True)
                (self.folder / "tokens" / "train.bin").write_bytes(b"\0" * 100000)
            rows = self.traffic(*case["words"], *CPU, f"training.batch_size={case['batch']}",
                                "memory.limit_mb=1000000", status=None)["operations"]
            for kind, theirs in case["flops"].items():
                ours = sum(row["flops"] for row in rows if row["class"] == kind)
                if kind == "matmul":
                    ours += sum(row["flops"] for row in rows if row["class"] == "matmul with loss")
                if kind == "attention" and "model=gpt2" in case["words"]:  # PyTorch counts masked scores too
                    theirs *= 0.5
                # Besides products, brim counts a fused operation's activation and softmax; PyTorch's reference
                # attention keeps the scores that brim computes again.
                self.assertGreaterEqual(ours, 0.99 * theirs, (case["words"], kind))
                self.assertLessEqual(ours, 1.35 * theirs, (case["words"], kind))

    def test_least_times_follow_from_the_rates(self):
        made = self.folder / "made.jsonl"
        plan = ["plan", *CNN, "backend=cpu", "backend.threads=1", "memory.profile=made.jsonl"]
        self.brim(*plan)  # makes the profile, without ceilings
        ceilings = [{"what": "ceiling product F32", "n": 100000000000, "seconds": 1.0, "at": 1},
                    {"what": "ceiling copy F32", "n": 10000000000, "seconds": 1.0, "at": 1}]
        made.write_text(made.read_text() + "".join(json.dumps(line) + "\n" for line in ceilings))
        traffic = json.loads(self.brim(*plan, "--no-timing", "--traffic", "--json").out)["traffic"]
        self.assertEqual((traffic["rates"]["flops"], traffic["rates"]["bytes"]), (1e11, 1e10))
        self.assertTrue(traffic["rates"]["measured"])
        for row in traffic["operations"]:
            least = max(row["flops"] / 1e11, row["bytes"] / 1e10)
            self.assertAlmostEqual(row["least_seconds"], least, delta=1e-6 * least)
            bound = "compute" if row["flops"] / 1e11 > row["bytes"] / 1e10 else "memory"
            self.assertEqual(row["bound"], "launches" if row["launch_seconds"] > least else bound)
        self.assertAlmostEqual(sum(row["least_seconds"] for row in traffic["classes"]),
                               traffic["step"]["least_seconds"], delta=1e-9)
        least = [row["least_seconds"] for row in traffic["classes"]]
        self.assertEqual(least, sorted(least, reverse=True))

    def test_text_shows_the_classes_and_says_when_rates_are_unknown(self):
        text = self.brim("plan", *SMALL, "--no-timing", "--traffic").out
        self.assertIn("the traffic of a step; its least time is not known, as the rates of ", text)
        self.assertRegex(text, r"\n *class +nodes +launches +GFLOP +GB")
        self.assertRegex(text, r"\nmatmul +\d+")
        self.assertRegex(text, r"\na step +\d+")
        self.assertNotIn("bound by", text)

    def test_federations_are_refused_with_a_line(self):
        result = self.brim("--config-name", "federate", "plan", "--traffic", "--no-timing", "model=mlp",
                           "dataset=synthetic", "dataset.shape=[1,8,8]", "backend=cpu", status=None)
        self.assertIn("--traffic does not support federations yet", result.err)


if __name__ == "__main__":
    main()
