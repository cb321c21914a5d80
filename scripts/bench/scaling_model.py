#!/usr/bin/env python3
"""A theoretical model of the time of a step on many GPUs: computation, reductions over the ranks and the part of them
that the backward pass hides, votes and checkpoints. It measures nothing. Every input is an option, so that it can be
adapted to other machines.

    scripts/bench/scaling_model.py                                   GPT-2 124M and 1558M on 8, 64, 512 GPUs
    scripts/bench/scaling_model.py --weak 32768                      the same number of tokens for each GPU
    scripts/bench/scaling_model.py --nic-gb-s 12.5 --bucket-mib 200  a slower network, larger buckets
    scripts/bench/scaling_model.py --model mine 350e6 90000 524288   parameters, tokens/s of a GPU, effective batch
"""

import argparse
import math

SHARDS = ("none", "optimizer", "gradients")
# name, parameters, tokens a second of one GPU, tokens of the effective batch
MODELS = [("124M", 124439808, 468000, 1 << 19), ("1558M", 1557611200, 46800, 1 << 20)]
# NCCL's protocols LL128 and Simple: the share of the bandwidth available for data; the latency of a start in
# microseconds; the latency of a hop by NVLink and by the network, for a ring; and for a tree. From NCCL's own model,
# src/graph/tuning.cc of version 2.28.
PROTOCOLS = [(0.92, 14.0, (1.9, 4.0), (1.25, 8.5)), (1.0, 8.4, (3.4, 14.0), (4.0, 14.0))]
TREE_SHARE = 0.92  # relative to the bandwidth of rings

FORMULAS = """\
compute    tokens a GPU / tokens/s of one GPU; a third of it forward, two thirds backward
bandwidth  B = efficiency x NVLink; over several nodes efficiency x min(NVLink, GPUs a node x network card)
ring       passes x (N-1)/N x bytes / B + begin + passes x ((N - nodes) x hop by NVLink + (nodes - 1) x hop by network)
           passes: 2 for an all-reduce, 1 for a reduce-scatter or a gather
tree       all-reduce only: 2 x (N-1)/N x bytes / (0.92 B) + begin + 2 x ((GPUs a node - 1) x hop + log2(nodes) x hop)
buckets    one after another, each once its gradients exist; the fastest of rings, trees and protocols.
           none: all-reduce in the last micro-batch. optimizer: reduce-scatter there, parameters gathered after the
           update. gradients: the same, but reduce-scatter in every micro-batch
vote       message + (N-1) x further message to rank 0 + ceil(log2 N) x (message + N x 64 bytes / host's bandwidth);
           two a step
checkpoint 12 bytes a parameter / min(writers x a writer's rate, storage's rate) / steps between two; one writer with
           none, all with shards
step       compute + sums and gathers that are not hidden + votes + checkpoint"""


def bandwidth(o, n):
    """Returns the bytes a second of a ring over n GPUs: the "bus bandwidth" of nccl-tests."""
    inside = o.nvlink_gb_s * 1e9
    if n <= o.node:
        return o.efficiency * inside
    return o.efficiency * min(inside, o.node * o.nic_gb_s * 1e9)


def collective(o, n, size, passes):
    """Returns the seconds of a collective. passes: 2 for an all-reduce, else 1."""
    if n == 1:
        return 0.0
    nodes, local = math.ceil(n / o.node), min(n, o.node)
    data = passes * (n - 1) / n * size / bandwidth(o, n)
    times = []
    for share, begin, ring, tree in PROTOCOLS:
        times.append(data / share + 1e-6 * (begin + passes * ((n - nodes) * ring[0] + (nodes - 1) * ring[1])))
        if passes == 2:
            hops = (local - 1) * tree[0] + math.ceil(math.log2(nodes)) * tree[1]
            times.append(data / share / TREE_SHARE + 1e-6 * (begin + 2 * hops))
    return min(times)


def vote(o, n):
    if n == 1:
        return 0.0
    down = math.ceil(math.log2(n)) * (o.message_us * 1e-6 + n * 64 / (o.host_gb_s * 1e9))
    return o.message_us * 1e-6 + (n - 1) * o.further_us * 1e-6 + down


def step(o, parameters, rate, tokens, n, shard):
    """Returns the seconds of a step by cause."""
    own = o.weak or tokens / n
    compute = own / rate
    micro_batches = max(1, math.ceil(own / o.micro_tokens))
    gradients = 4.0 * parameters
    buckets = max(1, math.ceil(gradients / (o.bucket_mib * 2**20)))
    one = collective(o, n, gradients / buckets, 2 if shard == "none" else 1)
    forward, backward = compute / micro_batches / 3, compute / micro_batches * 2 / 3
    now = free = total = 0.0
    for i in range(micro_batches):
        now += forward
        if shard == "gradients" or i == micro_batches - 1:
            for k in range(buckets):
                free = max(free, now + backward * (k + 1) / buckets) + one
                total += one
        now += backward
    exposed = max(0.0, free - now)
    if shard != "none":
        gather = buckets * collective(o, n, gradients / buckets, 1)
        exposed, total = exposed + gather, total + gather
    writers = 1 if shard == "none" else n
    written = 12.0 * parameters / min(writers * o.writer_gb_s * 1e9, o.storage_gb_s * 1e9)
    return {"compute": compute, "sums": total, "exposed": exposed if n > 1 else 0.0, "votes": 2 * vote(o, n),
            "checkpoint": written / o.checkpoint_steps, "tokens": own * n}


def state_bytes(parameters, n, shard):
    """Returns the bytes on each GPU: parameters, their gradients and adamw's two moments, four bytes each."""
    moments = 8.0 * parameters / (1 if shard == "none" else n)
    gradients = 4.0 * parameters / (n if shard == "gradients" else 1)
    return 4.0 * parameters + gradients + moments


def short(x):
    return f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:.0f}"


def table(o):
    print("| model | GPUs | `dist.shard` | state a GPU, GiB | computed, ms | sums and gathers, ms | not hidden, ms "
          "| votes, ms | checkpoints, ms | step, ms | M tokens/s | computed, of the step |")
    print("|---|---:|---|" + "---:|" * 9)
    for name, parameters, rate, tokens in o.model:
        for n in o.gpus:
            for shard in SHARDS:
                s = step(o, parameters, rate, tokens, n, shard)
                whole = s["compute"] + s["exposed"] + s["votes"] + s["checkpoint"]
                causes = [s[cause] for cause in ("compute", "sums", "exposed", "votes", "checkpoint")]
                cells = [state_bytes(parameters, n, shard) / 2**30, *(1e3 * seconds for seconds in (*causes, whole)),
                         s["tokens"] / whole / 1e6]
                print(f"| {name} | {n} | {shard} | {' | '.join(map(short, cells))} | {s['compute'] / whole:.0%} |")


def options():
    p = argparse.ArgumentParser(description="The time of a step on many GPUs, on paper.",
                                formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = p.add_argument
    add("--gpus", type=int, nargs="+", default=[8, 64, 512], help="total number of GPUs")
    add("--model", nargs=4, action="append", metavar=("NAME", "PARAMETERS", "TOKENS/S", "TOKENS"),
        help="instead of GPT-2; tokens of one GPU a second, and of the effective batch")
    add("--weak", type=float, metavar="TOKENS", help="tokens of each GPU in a step, instead of its share of the batch")
    add("--micro-tokens", type=float, default=1 << 14, help="maximum tokens of a micro-batch on one GPU")
    add("--bucket-mib", type=float, default=25, help="dist.bucket_mb")
    add("--node", type=int, default=8, help="GPUs of a node")
    add("--nvlink-gb-s", type=float, default=450, help="bandwidth of a GPU, each way")
    add("--nic-gb-s", type=float, default=50, help="bandwidth of the network card of each GPU, each way")
    add("--efficiency", type=float, default=0.8, help="fraction of these bandwidths that collectives reach")
    add("--message-us", type=float, default=5, help="time of one message between hosts")
    add("--further-us", type=float, default=1, help="time of each further message to the same host")
    add("--host-gb-s", type=float, default=10, help="bandwidth between hosts, for votes")
    add("--writer-gb-s", type=float, default=1, help="write bandwidth of one rank")
    add("--storage-gb-s", type=float, default=20, help="write bandwidth of all ranks together")
    add("--checkpoint-steps", type=float, default=1000, help="steps between checkpoints")
    add("--formulas", action="store_true", help="also print the formulas and the inputs")
    o = p.parse_args()
    o.model = [(m[0], float(m[1]), float(m[2]), float(m[3])) for m in o.model or MODELS]
    return o


def main():
    o = options()
    if o.formulas:
        print(FORMULAS, end="\n\n")
        inputs = {name: value for name, value in vars(o).items() if name not in ("formulas", "model")}
        print(", ".join(f"{name}={value}" for name, value in inputs.items()), end="\n\n")
    table(o)


if __name__ == "__main__":
    main()
