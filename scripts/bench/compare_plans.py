#!/usr/bin/env python3
"""Compares the plans of two builds of brim on drawn configurations: `compare_plans.py OLD NEW [--count N] [--seed S]`.

Each is `brim plan --no-timing --json`. Everything that is a function of the configuration must be equal; what depends
on the free memory of this machine is left out. A plan that became smaller is reported, and is not an error.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

LLAMA = {"model_type": "llama", "vocab_size": 3000, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "hidden_size": 64, "intermediate_size": 160, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
         "rope_theta": 500000.0, "tie_word_embeddings": False}
VOLATILE = ("host", "devices")


def draw(rng, models, folder):
    model = rng.choice(models)
    batch = rng.choice([1, 2, 4, 6, 8, 12, 16, 32])
    words = [f"model={model}", f"training.effective_batch_size={batch}",
             f"training.batch_size={rng.choice([d for d in range(1, batch + 1) if batch % d == 0])}",
             f"memory.limit_mb={1 << 20}"]
    text = model in ("gpt2", "hf", "hf_lora")
    if text:
        words += ["dataset=text", f"dataset.path={folder}/text.txt"]
        words += [f"dataset.context={rng.choice([16, 64, 100, 256])}"]
        words += [f"dataset.test_fraction={rng.choice([0, 0.1])}"]
    if model.startswith("hf"):
        config = {**LLAMA, "num_hidden_layers": rng.choice([1, 2, 5, 12, 30])}
        path = f"{folder}/{config['num_hidden_layers']}"
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/config.json", "w", encoding="utf-8") as f:
            json.dump(config, f)
        words.append(f"model.weights={path}")
    words.append(f"memory.recompute={rng.choice(['none', 'none', 'blocks', 'full', 'auto', 'auto'])}")
    words.append(f"memory.recompute_budget_mb={rng.choice([1, 20, 60, 200, 1000, 100000])}")
    words.append(f"backend={rng.choice(['cpu', 'cpu', 'reference'])}")
    if "backend=cpu" in words:
        words.append(f"precision={rng.choice(['fp32', 'bf16'])}")
    words.append(f"optimizer={rng.choice(['adamw', 'sgd', 'lion', 'adamw8bit'])}")
    if rng.random() < 0.2:
        words.append("training.ema_decay=0.99")
    if rng.random() < 0.2:
        words.append("memory.offload=optimizer")
    if rng.random() < 0.15:
        words.append("optimizer.update=fused_backward")
    if rng.random() < 0.2:
        words += ["dist.ranks=2", f"dist.shard={rng.choice(['none', 'optimizer', 'gradients'])}"]
    return words


def plan(binary, words, env):
    r = subprocess.run([binary, "plan", "--no-timing", "--json", *words], capture_output=True, text=True, env=env)
    if r.returncode not in (0, 4) or not r.stdout:
        return r.returncode, r.stderr.strip().splitlines()[-1:]
    out = json.loads(r.stdout)
    for key in VOLATILE:
        out.pop(key, None)
    out["frontier"].pop("limit_bytes")
    out.get("cards", {}).pop("described", None)
    for choice in out["frontier"]["choices"]:
        choice.pop("fits")
    return r.returncode, out


def peaks(value):
    """Returns all peaks in a plan, in order."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key == "peak_bytes" and isinstance(part, int):
                yield part
            else:
                yield from peaks(part)
    elif isinstance(value, list):
        for part in value:
            yield from peaks(part)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default="mlp,cnn,resnet18,resnet50,vit,gpt2,hf,hf_lora")
    parser.add_argument("--also", action="append", default=[], help="a word for every plan")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    same = smaller = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "BRIM_CACHE": folder, "XDG_CACHE_HOME": folder}
        with open(f"{folder}/text.txt", "w", encoding="utf-8") as f:
            f.write("In the beginning was the Word. " * 3000)
        for _ in range(args.count):
            words = draw(rng, args.models.split(","), folder) + args.also
            was, now = plan(args.old, words, env), plan(args.new, words, env)
            if was == now:
                same += 1
                refused += not isinstance(was[1], dict)
                continue
            if isinstance(was[1], dict) and isinstance(now[1], dict):
                pairs = list(zip(peaks(was[1]), peaks(now[1])))
                if pairs and all(b <= a for a, b in pairs) and any(b < a for a, b in pairs):
                    smaller += 1
                    print("smaller:", " ".join(words))
                    continue
                keys = [k for k in was[1] if was[1][k] != now[1].get(k)]
                print("DIFFERENT:", " ".join(words), keys)
                for k in keys:
                    print("  ", k, "was", json.dumps(was[1][k])[:600], "now", json.dumps(now[1].get(k))[:600])
            else:
                print("DIFFERENT:", " ".join(words), was[:1], now[:1], was[1] if not isinstance(was[1], dict) else "",
                      now[1] if not isinstance(now[1], dict) else "")
    print(f"{args.count} plans: {same} equal, {refused} of them refused; {smaller} smaller")
    return 0 if same + smaller == args.count else 1


if __name__ == "__main__":
    sys.exit(main())
