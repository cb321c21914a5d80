#!/usr/bin/env python3
"""The traffic of a step by operation, as a table, with times at rates of one's own: those of kernels, not the peaks.

    scripts/bench/traffic.py [--binary build/release/bin/brim] [--tflops 600] [--gbs 3350] WORD...

WORD... go to `brim plan --traffic`. The rates are those of products, and of memory; other arithmetic keeps the rate of
the data sheet. The last lines compare the step's least time with that of its products' arithmetic alone."""
import argparse
import json
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/bin/brim")
    parser.add_argument("--tflops", type=float, help="of products; default: the device's peak")
    parser.add_argument("--gbs", type=float, help="GB/s of memory; default: the device's peak")
    arguments, words = parser.parse_known_args()
    result = subprocess.run([arguments.binary, "plan", "--traffic", "--json", "--no-timing", *words],
                            capture_output=True, text=True, check=False)
    if "traffic" not in (result.stdout or ""):
        sys.exit(result.stderr)
    traffic = json.loads(result.stdout)["traffic"]
    rates, ops = traffic["rates"], {}
    memory = 1e9 * arguments.gbs if arguments.gbs else rates["bytes"]
    for row in traffic["operations"]:
        peak = rates["products_f32" if row["dtype"] == "F32" else "products_16"]
        rate = (1e12 * arguments.tflops if arguments.tflops else peak) if row["product"] else rates["flops"]
        seconds = max(row["flops"] / rate, row["bytes"] / memory)
        sums = ops.setdefault((row["class"], row["op"]), [0] * 6)
        for i, figure in enumerate((row["nodes"], row["launches"], row["flops"], row["bytes"], seconds,
                                    row["flops"] / rate if row["product"] else 0)):
            sums[i] += figure
    for row in traffic["classes"]:  # adds a row for the bytes that belong to no operation
        if row["nodes"] == 0:
            ops[row["class"], "-"] = [0, row["launches"], 0, row["bytes"], row["bytes"] / memory, 0]
    whole = [sum(column) for column in zip(*ops.values())]
    print("| class | operation | nodes | launches | GFLOP | GB | ms | % |\n|---|---|---|---|---|---|---|---|")
    for (kind, op), (nodes, launches, flops, moved, seconds, _) in sorted(ops.items(), key=lambda item: -item[1][4]):
        print(f"| {kind} | `{op}` | {nodes} | {launches} | {flops / 1e9:.1f} | {moved / 1e9:.2f} | {1e3 * seconds:.3f} "
              f"| {100 * seconds / whole[4]:.1f} |")
    nodes, launches, flops, moved, seconds, products = whole
    print(f"| | **a step** | {nodes} | {launches} | {flops / 1e9:.0f} | {moved / 1e9:.1f} | {1e3 * seconds:.2f} "
          "| 100 |\n")
    started = launches * rates["launch_seconds"]
    print(f"{traffic['device']}: products alone {1e3 * products:.2f} ms; with all bytes {seconds / products:.2f} times "
          f"that, with launches one after another {(seconds + started) / products:.2f} times")


if __name__ == "__main__":
    main()
