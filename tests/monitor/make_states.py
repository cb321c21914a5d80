#!/usr/bin/env python3
"""Makes the recorded looks in states/ that the tests of the picture draw: objects of the JSON form that `brim monitor
--json` prints. Everything is made up, and the same each time."""

import json
import math
import pathlib

STATES = pathlib.Path(__file__).resolve().parent / "states"
NOW = 1795769071  # 2026-11-27 08:44:31 UTC
GIB, MIB = 1 << 30, 1 << 20


def curve(name, points, first, last, steps, noise=0.03):
    """Returns a curve that falls from `first` to `last`, with a regular disturbance."""
    step = [round(steps * i / (points - 1)) for i in range(points)]
    value = [last + (first - last) * math.exp(-4 * i / points) + noise * (first - last) * math.sin(7.3 * i * i)
             for i in range(points)]
    return {"curve": name, "step": step, "value": [float(f"{v:.4g}") for v in value]}


def memory(total):
    parts = {"parameters": 0.10, "gradients": 0.10, "optimizer": 0.21, "activations": 0.53, "workspace": 0.04,
             "data": 0.02}
    return [{"class": name, "bytes": int(total * share)} for name, share in parts.items()]


def event(ago, step, kind, text):
    return {"time": NOW - ago, "step": step, "event": kind, "text": text}


def host(name="lab7", load=12.4, processors=64, used=91.2, total=503.6):
    return {"name": name, "time": NOW, "load": load, "processors": processors, "ram_used_bytes": int(used * GIB),
            "ram_total_bytes": int(total * GIB)}


def gpu(number, mine, brim, libraries, other, load, celsius, watts, host_of=0):
    total = int(79.6 * GIB)
    parts = [int(x * GIB) for x in (mine, brim, libraries, other)]
    return {"host": host_of, "device": f"cuda:{number}", "name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{number:04x}",
            "total_bytes": total, "mine_bytes": parts[0], "brim_bytes": parts[1], "libraries_bytes": parts[2],
            "other_bytes": parts[3], "free_bytes": total - sum(parts), "load_percent": load, "celsius": celsius,
            "watts": watts, "watts_max": 700}


def run(name, state, pid, user, device=None, share=0.5, steps=10000, rate=1300.0, left=600.0, gib=10.0, **more):
    out = {"host": 0, "name": name, "state": state, "pid": pid, "user": user, "mine": user == "ann", "ranks": 1,
           "command": "train", "started": NOW - 5000, "since": NOW - 4000, "changed": NOW - 1,
           "step": int(share * steps), "steps": steps, "rate": rate, "seconds_left": left,
           "device_bytes": int(gib * GIB)}
    if device is not None:
        out |= {"device": f"cuda:{device}", "device_index": device}
    out |= more
    return out


def seen(model, dataset, loss, score, steps=10000, share=0.5, gib=10.0, name="run"):
    """Returns the values that a run's folder adds."""
    done = max(2, int(steps * share))
    return {"folder": f"/home/ann/runs/{name}", "model": model, "dataset": dataset, "loss": loss, "score": score,
            "score_name": "accuracy", "epoch": 1 + int(share * 10), "epochs": 10, "memory": memory(gib * GIB),
            "libraries_bytes": int(0.6 * GIB), "micro_batch": 32, "batch": 128, "step_seconds": 0.0991,
            "predicted_step_seconds": 0.0962, "loader_share": 0.031, "decisions": 2,
            "curves": [curve("train loss", 96, 2.31, loss, done), curve("validation loss", 12, 2.2, loss * 1.1, done),
                       curve("train accuracy", 96, 0.1, score, done),
                       curve("validation accuracy", 12, 0.12, score - 0.02, done)],
            "events": [event(4990, 0, "decision", "auto_plan: micro-batch 32: the largest that fits"),
                       event(4989, 0, "claimed", "cuda:0, after 0:12"),
                       event(3100, int(done * .4), "decision", "elastic: micro-batch 16: another run waits"),
                       event(2050, int(done * .6), "recovery", "light cleanup, 1 of 3: step: out of memory"),
                       event(1900, int(done * .6), "decision", "elastic: micro-batch 32: the queue is empty"),
                       event(60, done - 1, "warning", "validation loss has not fallen for 3 epochs")]}


def lab():
    devices = [gpu(0, 41.2, 0, 0.6, 0, 97, 71, 655), gpu(1, 22.4, 30.1, 1.2, 0, 88, 66, 590),
               gpu(2, 0, 70.2, 0.6, 0, 99, 87, 690), gpu(3, 0, 12.5, 1.1, 40.3, 45, 52, 310),
               gpu(4, 0, 0, 0, 18.2, 0, 34, 71), gpu(5, 9.9, 39.8, 1.8, 6.1, 92, 69, 612),
               gpu(6, 0, 61.0, 0.6, 0, 96, 70, 640), gpu(7, 0, 0.4, 0.6, 77.9, 100, 78, 699)]
    runs = []

    def add(name, state, pid, user, device, share, rate, left, gib, readable=None, **more):
        base = run(name, state, pid, user, device, share=share, rate=rate, left=left, gib=gib, **more)
        if readable:
            base |= seen(*readable, share=share, gib=gib, name=name)
        runs.append(base)

    add("resnet50-lr3", "training", 7630, "ann", 0, .932, 5852, 72, 41.2, ("resnet50", "imagenet", .9142, .7613))
    add("vit-b-mixup", "training", 7702, "ann", 1, .501, 2961, 3725, 22.4, ("vit", "imagenet", 2.207, .5411))
    add("gpt2-medium", "evaluating", 8011, "bob", 1, .25, 159, 90123, 30.1, counts_tokens=True)
    add("bob 8024", "training", 8024, "bob", 2, .04, 88, 400000, 70.2)
    add("lora-mistral", "checkpoint", 8100, "carla", 3, .77, 12, 8800, 12.5,
        ("lora", "chat", 1.31, .66), counts_tokens=True)
    add("cnn-small", "training", 8203, "ann", 5, .611, 48213, 31, 4.1, ("cnn", "fashion_mnist", .2871, .9042))
    add("cnn-wide", "recovering", 8204, "ann", 5, .602, 40313, 35, 5.8, ("cnn", "fashion_mnist", .2613, .9117))
    add("dmitri 8210", "training", 8210, "dmitri", 5, .12, 1.7, 250000, 39.8, silent_seconds=40)
    add("segformer", "training", 8300, "dmitri", 6, .33, 512, 12000, 61.0, ("unet", "cub200", .71, .8),
        silent_seconds=3725, stopped=True)
    add("fed-clients", "training", 8311, "eve", 7, .5, 210, 1900, .4, ("cnn", "cifar10", 1.01, .65), federated=True,)
    for i, (name, user) in enumerate((("vit-l-224", "ann"), ("vit-l-384", "ann"), ("bob 8402", "bob"),
                                      ("gpt2-long", "carla"), ("dmitri 8404", "dmitri"))):
        runs.append({"host": 0, "name": name, "state": "waiting", "pid": 8400 + i, "user": user, "mine": user == "ann",
                     "command": "train", "started": NOW - 900 + 100 * i, "changed": NOW - 1,
                     "device_bytes": int((22 + 9 * i) * GIB)})
    add("sweep-17", "planning", 8500, "ann", None, 0, None, None, 0, steps=0)
    for i, (name, state, share) in enumerate((("sweep-16", "finished", 1), ("sweep-15", "interrupted", .4),
                                              ("sweep-14", "failed", .02), ("sweep-13", "killed", .63))):
        add(name, state, 0, "ann", None, share, None, None, 4.1, ("mlp", "csv", .4 + .1 * i, .85 - .02 * i),
            changed=NOW - 700 * 8 ** i)
    queue = [{"host": 0, "place": i + 1, "run": 10 + i, "pid": 8400 + i, "user": runs[10 + i]["user"],
              "mine": runs[10 + i]["mine"], "process": "brim", "backend": "cuda",
              "wish": "cuda:4" if i == 3 else "any", "need_bytes": int((22 + 9 * i) * GIB),
              "since": NOW - 880 + 100 * i,
              "starts": [NOW + 72, NOW + 1900, NOW + 3725, None, NOW + 90000][i], "accepts": list(range(8))}
             for i in range(5)]
    advice = [{"text": "vit-l-224 fits on cuda:4 if pid 4711 (18.2 GiB, load 0 % for 12 min) ends",
               "command": "kill 4711"},
              {"text": "vit-b-mixup at micro-batch 16 needs 13.1 GiB, with the same bits: then vit-l-384 fits too",
               "command": "brim train --resume runs/vit-b-mixup policy=elastic"},
              {"text": "cnn-small waits for samples 31 % of the step",
               "command": "brim train --resume runs/cnn-small training.num_workers=3"}]
    return {"brim_look": 1, "hosts": [host()], "devices": devices, "queue": queue, "runs": runs, "advice": advice,
            "problems": []}


def cpu_device(number=0, mine=44.6, total=64.0):
    return {"host": 0, "device": f"cpu:{number}", "name": "AMD EPYC 9354 32-Core Processor", "is_host": True,
            "total_bytes": int(total * MIB), "mine_bytes": int(mine * MIB), "brim_bytes": 0, "libraries_bytes": 0,
            "other_bytes": 0, "free_bytes": int((total - mine) * MIB), "load_percent": 98}


def empty():
    return {"brim_look": 1, "hosts": [host("desk", .1, 8, 3.2, 31.2)], "devices": [cpu_device(0, 0, 16000)],
            "queue": [], "runs": [], "advice": [], "problems": []}


def one():
    only = run("first", "training", 7630, "ann", share=.932, steps=220, rate=1310, left=1.2)
    only |= seen("cnn", "fashion_mnist", .4802, .838, steps=220, share=.932, gib=44.6 / 1024, name="first")
    only |= {"device": "cpu:0", "device_index": 0, "device_bytes": int(44.6 * MIB), "libraries_bytes": None,
             "epoch": 5, "epochs": 5}
    return {"brim_look": 1, "hosts": [host("desk", 1.9, 2, 9.1, 23.5)], "devices": [cpu_device()], "queue": [],
            "runs": [only], "advice": [], "problems": []}


def broken():
    """Returns a look with values and texts that no honest source sends."""
    names = ["<script>alert(1)</script>", "\u001b[2J\u001b[31mred\u0007", "line\nbreak\ttab", "\u6f22\u5b57" * 20,
             "e\u0301\u0302\u0303 combining", "\u202eesrever", "x" * 300, "\U0001f680 rocket", ""]
    runs = []
    for i, name in enumerate(names):
        bad = run(name, "training", 100 + i, "\u001b]0;user\u0007", share=0, rate=[-1, 1e300, 0][i % 3],
                  left=[-5, 1e30, 1e8][i % 3])
        bad |= {"step": [-5, 2 ** 62, 7, 300][i % 4], "steps": [-1, 3, 0, 100][i % 4], "model": name, "dataset": name,
                "loss": [1e300, -1e-300, None][i % 3], "score": 1e9, "score_name": name, "device": name,
                "started": -1e300, "changed": 1e300,
                "silent_seconds": [1e300, -5, None][i % 3], "epoch": -1e18, "epochs": 1e18, "folder": f"/tmp/{name}",
                "device_bytes": 2 ** 62, "micro_batch": 2 ** 62, "batch": 1, "step_seconds": 1e-300, "rank": 2 ** 62,
                "ranks": 2 ** 62, "retries": -3,
                "memory": [{"class": name, "bytes": 2 ** 62}, {"class": "", "bytes": None}],
                "curves": [{"curve": name, "step": [0, 1, 2, 3], "value": [None, 1e38, -1e38, 0]},
                           {"curve": "train loss", "step": [5, 5], "value": [1, 1]},
                           {"curve": "loss", "step": [None, None], "value": [None, None]}],
                "events": [{"time": 1e300, "step": -2 ** 62, "event": name, "text": name}]}
        runs.append(bad)
    runs.append({"host": 0, "name": "waits", "state": "waiting"})
    device = cpu_device(0, 44.6) | {"device": names[1], "name": names[3], "total_bytes": 0, "mine_bytes": 2 ** 62,
                                    "load_percent": 1e300, "celsius": -1e300, "watts": 1e300}
    other = cpu_device(1, 60, 64) | {"free_bytes": 2 ** 62, "device": names[6], "other_bytes": 2 ** 61}
    queue = [{"host": 0, "place": 2 ** 40, "run": 9, "process": names[1], "wish": names[1], "backend": "%s%n",
              "user": names[1], "need_bytes": 2 ** 62, "since": 1e300, "starts": -1e300}]
    return {"brim_look": 1, "hosts": [host(names[1], -1e300, 1e300, 1, 0)], "devices": [device, other], "queue": queue,
            "runs": runs, "advice": [{"text": names[1], "command": "\u001b[2J; rm -rf"}],
            "problems": ["runs/x: \u001b[2Jnot a run", names[6]]}


def hosts():
    """Returns a look at two machines that answer and one that does not."""
    first, second = lab(), lab()
    for part in ("devices", "queue", "runs"):
        for item in second[part]:
            item["host"] = 1
    for item in second["runs"]:
        if "device_index" in item:
            item["device_index"] += 2
    for item in second["queue"]:
        # This item's run comes after three runs of lab7 and three of lab8.
        item |= {"run": item["run"] - 10 + 6, "accepts": [2, 3]}
    second["runs"] = [r for r in second["runs"] if r.get("device_index", 2) < 4][:11]
    first["runs"] = [r for r in first["runs"] if r.get("device_index", 9) < 2][:3]
    return {"brim_look": 1, "hosts": [host("lab7"), host("lab8", 3.1, 32, 40, 251.0),
                                      {"name": "lab9", "time": NOW, "failure": "ssh: connect to host lab9 port 22: "
                                       "Connection refused; try: ssh lab9 brim monitor --once"}],
            "devices": first["devices"][:2] + second["devices"][:2], "queue": second["queue"][:2],
            "runs": first["runs"] + second["runs"], "advice": first["advice"][:1], "problems": []}


def main():
    for make in (lab, empty, one, broken, hosts):
        text = json.dumps(make(), ensure_ascii=True, separators=(",", ":"))
        (STATES / f"{make.__name__}.json").write_text(text.replace('},{"host"', '},\n{"host"') + "\n")


if __name__ == "__main__":
    main()
