#!/usr/bin/env python3
"""Makes optimizers.txt: the results of Lion, Adafactor, AdamW with 8-bit states, Muon, Adan and schedule-free AdamW for
given gradients.

    python3 tests/golden/make_optimizers.py        # needs only Python; writes into this folder

Written from the papers and the public implementations, in plain Python and double precision:

* Lion: Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023, program 1.
* Adafactor: torch.optim.Adafactor (PyTorch 2.5), whose matrices here are the first dimension by all others.
* AdamW8bit: Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022; the maps are
  bitsandbytes.functional.create_dynamic_map, and the nearest entry of a map is found by a linear search. A second
  moment above 0 has an entry above 0.
* Muon: torch.optim.Muon (PyTorch 2.9), which is for matrices only; here tensors of more dimensions are matrices too,
  and its iteration is not rounded to bfloat16. Other parameters use AdamW. With --torch, a Python with PyTorch compares
  it with this program instead.
* Adan: the authors' program, sail-sg/Adan, without clipping. With --timm, a Python with PyTorch and timm compares
  timm's Adan with this program instead.
* Schedule-free AdamW: the authors' program, facebookresearch/schedule_free. `average` is evaluated. With
  --schedulefree, a Python with PyTorch and schedulefree compares that with this program instead.

The parameters are those of the model `cnn` of width 6 for images of 1x12x14 and 5 classes. Parameters and gradients are
functions of a value's index and the step (see `start` and `gradient`), repeated in
tests/conformance/test_golden_optimizers.c, so the file has results only, after the last of STEPS steps. make_models.py
describes its format.
"""
import math
import pathlib
import sys

STEPS = 6
PARAMETERS = [("conv1.weight", (6, 1, 3, 3)), ("conv1.bias", (6,)), ("conv2.weight", (12, 6, 3, 3)),
              ("conv2.bias", (12,)),
              ("fc1.weight", (24, 240)), ("fc1.bias", (24,)), ("fc2.weight", (5, 24)), ("fc2.bias", (5,))]
SIZES = [1.0, 1e-1, 1e-2, 1e-3, 1e-4]


def count_of(shape):
    return math.prod(shape)


def start(which, i):
    return ((i * 7919 + which * 31) % 10007 - 5003) * 1e-4


def gradient(which, step, i):
    """Returns a gradient; magnitudes are very different."""
    return ((i * 6007 + which * 17 + step * 4001) % 9973 - 4986) * 2e-4 * SIZES[(i + step) % 5]


def write(out, name, shape, values):
    out.write(f"{name} {len(shape)} {' '.join(map(str, shape))}\n")
    for at in range(0, len(values), 6):
        out.write(" ".join(repr(v) for v in values[at:at + 6]) + "\n")


# ---- Lion ----

def lion(p, gradients, lr=0.01, beta1=0.9, beta2=0.99, weight_decay=0.1):
    m = [0.0] * len(p)
    for g in gradients:
        for i, d in enumerate(g):
            c = beta1 * m[i] + (1 - beta1) * d
            p[i] = p[i] * (1 - lr * weight_decay) - lr * ((c > 0) - (c < 0))
            m[i] = beta2 * m[i] + (1 - beta2) * d
    return {"": p, "exp_avg": m}


# ---- Adafactor ----

def rms(x):
    return math.sqrt(sum(v * v for v in x) / len(x))


def lerp(a, b, weight):
    return [x + weight * (y - x) for x, y in zip(a, b)]


def adafactor(p, gradients, shape, lr=0.05, beta1=0.0, beta2_decay=-0.8, eps1=1e-7, eps2=1e-3, d=0.9, weight_decay=0.1):
    columns = count_of(shape[1:]) if len(shape) > 1 else len(p)
    rows = len(p) // columns
    row, column, variance, m = [0.0] * rows, [0.0] * columns, [0.0] * len(p), [0.0] * len(p)
    for t, g in enumerate(gradients, 1):
        one_minus_beta2 = t ** beta2_decay
        alpha = max(eps2, rms(p)) * min(lr, 1 / math.sqrt(t))
        p = [v * (1 - lr * weight_decay) for v in p]
        if len(shape) > 1:
            matrix = [g[r * columns:(r + 1) * columns] for r in range(rows)]
            row = lerp(row, [sum(v * v for v in line) / columns for line in matrix], one_minus_beta2)
            column = lerp(column, [sum(v * v for v in line) / rows for line in zip(*matrix)], one_minus_beta2)
            mean = max(sum(row) / rows, eps1)
            estimate = [r * c / mean for r in row for c in column]
        else:
            variance = lerp(variance, [v * v for v in g], one_minus_beta2)
            estimate = variance
        update = [v / math.sqrt(max(e, eps1 * eps1)) for v, e in zip(g, estimate)]
        denominator = max(1.0, rms(update) / d)
        update = [alpha / denominator * u for u in update]
        if beta1 > 0:
            m = update = [beta1 * a + (1 - beta1) * u for a, u in zip(m, update)]
        p = [v - u for v, u in zip(p, update)]
    states = {"exp_avg_sq_row": row, "exp_avg_sq_col": column} if len(shape) > 1 else {"exp_avg_sq": variance}
    if beta1 > 0:
        states["exp_avg"] = m
    return {"": p, **states}


# ---- AdamW of 8-bit states ----

def create_dynamic_map(signed, exponents=7):
    data = []
    for i in range(exponents):
        items = 2 ** i if signed else 2 ** (i + 1)
        borders = [0.1 + 0.9 * k / items for k in range(items + 1)]
        for low, high in zip(borders, borders[1:]):
            mean = 10 ** (i - exponents + 1) * (low + high) / 2
            data += [mean, -mean] if signed else [mean]
    data += [0.0, 1.0]
    assert len(data) == 256
    return sorted(data)


def quantize(values, codes):
    absmax = max(abs(v) for v in values)
    nearest = [min(range(256), key=lambda k: abs(codes[k] - v / absmax)) for v in values]
    if codes[0] == 0:
        nearest = [max(k, v > 0) for k, v in zip(nearest, values)]
    return nearest, absmax


def adamw8bit(p, gradients, lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1, block=256):
    with_sign, without = create_dynamic_map(True), create_dynamic_map(False)
    blocks = range(0, len(p), block)
    m, v = [with_sign.index(0.0)] * len(p), [without.index(0.0)] * len(p)
    m_absmax, v_absmax = [0.0] * len(blocks), [0.0] * len(blocks)
    if len(p) < 4096:  # small parameters keep states of full size
        m, v = [0.0] * len(p), [0.0] * len(p)
    for t, g in enumerate(gradients, 1):
        c1, c2 = 1 - beta1 ** t, 1 - beta2 ** t
        for b, at in enumerate(blocks):
            part = range(at, min(at + block, len(p)))
            if len(p) < 4096:
                mean, square = [m[i] for i in part], [v[i] for i in part]
            else:
                mean = [with_sign[m[i]] * m_absmax[b] for i in part]
                square = [without[v[i]] * v_absmax[b] for i in part]
            mean = [beta1 * x + (1 - beta1) * g[i] for x, i in zip(mean, part)]
            square = [beta2 * x + (1 - beta2) * g[i] * g[i] for x, i in zip(square, part)]
            for x, y, i in zip(mean, square, part):
                p[i] = p[i] * (1 - lr * weight_decay) - lr / c1 * x / (math.sqrt(y) / math.sqrt(c2) + eps)
            if len(p) < 4096:
                m[at:at + block], v[at:at + block] = mean, square
            else:
                m[at:at + block], m_absmax[b] = quantize(mean, with_sign)
                v[at:at + block], v_absmax[b] = quantize(square, without)
    if len(p) < 4096:
        return {"": p, "exp_avg": m, "exp_avg_sq": v}
    return {"": p, "exp_avg": m, "exp_avg_absmax": m_absmax, "exp_avg_sq": v, "exp_avg_sq_absmax": v_absmax}


# ---- Muon ----

def product(a, b):
    columns = list(zip(*b))
    return [[math.fsum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def orthogonal(x, steps, eps, a=3.4445, b=-4.775, c=2.0315):
    tall = len(x) > len(x[0])
    x = [list(row) for row in zip(*x)] if tall else x
    norm = max(math.sqrt(math.fsum(v * v for row in x for v in row)), eps)
    x = [[v / norm for v in row] for row in x]
    for _ in range(steps):
        gram = product(x, list(zip(*x)))
        square = product(gram, gram)
        update = [[b * v + c * w for v, w in zip(*rows)] for rows in zip(gram, square)]
        x = [[a * v + w for v, w in zip(*rows)] for rows in zip(x, product(update, x))]
    return [list(row) for row in zip(*x)] if tall else x


def muon(p, gradients, shape, lr=0.02, momentum=0.95, nesterov=True, steps=5, eps=1e-7, weight_decay=0.1, match=False,
         adamw_lr=3e-4, beta1=0.9, beta2=0.95, adamw_eps=1e-8):
    m, v = [0.0] * len(p), [0.0] * len(p)
    if len(shape) < 2:
        for t, g in enumerate(gradients, 1):
            m = [beta1 * a + (1 - beta1) * d for a, d in zip(m, g)]
            v = [beta2 * a + (1 - beta2) * d * d for a, d in zip(v, g)]
            p = [x * (1 - adamw_lr * weight_decay) - adamw_lr / (1 - beta1 ** t) * a /
                 (math.sqrt(b) / math.sqrt(1 - beta2 ** t) + adamw_eps) for x, a, b in zip(p, m, v)]
        return {"": p, "exp_avg": m, "exp_avg_sq": v}
    rows, columns = shape[0], count_of(shape[1:])
    adjusted = lr * (0.2 * math.sqrt(max(rows, columns)) if match else math.sqrt(max(1, rows / columns)))
    for g in gradients:
        m = lerp(m, g, 1 - momentum)
        d = lerp(g, m, momentum) if nesterov else m
        u = orthogonal([d[r * columns:(r + 1) * columns] for r in range(rows)], steps, eps)
        p = [x * (1 - lr * weight_decay) - adjusted * y for x, y in zip(p, (w for row in u for w in row))]
    return {"": p, "momentum_buffer": m}


def compare_with_torch():
    """Compares matrices of random shapes with random settings. Uses PyTorch's own iteration, without rounding."""
    import random

    import torch
    from torch.optim import _muon

    random.seed(5)
    exact = torch.Tensor.to
    torch.Tensor.to = lambda self, *a, **k: self.clone() if k.get("dtype") is torch.bfloat16 else exact(self, *a, **k)
    apart = 0.0
    for _ in range(50):
        shape = (random.randint(1, 30), random.randint(1, 30))
        match, nesterov, steps = random.random() < 0.5, random.random() < 0.5, random.randint(1, 7)
        weight_decay, momentum = random.random() / 10, random.random()
        start_, count = torch.randn(shape, dtype=torch.float64), shape[0] * shape[1]
        gradients = [torch.randn(shape, dtype=torch.float64) for _ in range(4)]
        parameter = torch.nn.Parameter(start_.clone())
        optimizer = _muon.Muon([parameter], lr=0.02, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
                               ns_steps=steps, adjust_lr_fn="match_rms_adamw" if match else "original")
        for g in gradients:
            parameter.grad = g.clone()
            optimizer.step()
        ours = muon(start_.flatten().tolist(), [g.flatten().tolist() for g in gradients], shape, momentum=momentum,
                    nesterov=nesterov, steps=steps, weight_decay=weight_decay, match=match)[""]
        theirs = parameter.detach().flatten().tolist()
        apart = max(apart, max(abs(ours[i] - theirs[i]) for i in range(count)))
    print(f"muon and torch.optim.Muon {torch.__version__} differ by {apart:.1e} at most")


def adan(p, gradients, lr=0.01, beta1=0.98, beta2=0.92, beta3=0.99, eps=1e-8, weight_decay=0.1, no_prox=False):
    m, diff, n = [0.0] * len(p), [0.0] * len(p), [0.0] * len(p)
    before = gradients[0]
    for t, g in enumerate(gradients, 1):
        change = [a - b for a, b in zip(g, before)]
        m = [beta1 * a + (1 - beta1) * b for a, b in zip(m, g)]
        diff = [beta2 * a + (1 - beta2) * b for a, b in zip(diff, change)]
        n = [beta3 * a + (1 - beta3) * (b + beta2 * c) ** 2 for a, b, c in zip(n, g, change)]
        for i in range(len(p)):
            denominator = math.sqrt(n[i]) / math.sqrt(1 - beta3 ** t) + eps
            p[i] *= 1 - lr * weight_decay if no_prox else 1
            p[i] -= lr / (1 - beta1 ** t) * m[i] / denominator
            p[i] -= lr * beta2 / (1 - beta2 ** t) * diff[i] / denominator
            p[i] /= 1 if no_prox else 1 + lr * weight_decay
        before = g
    return {"": p, "exp_avg": m, "exp_avg_sq": n, "exp_avg_diff": diff, "pre_grad": before}


def compare_with_timm():
    import random

    import timm.optim.adan
    import torch

    random.seed(6)
    apart = 0.0
    for _ in range(100):
        how = {"lr": random.random() / 10, "eps": 10 ** random.uniform(-9, -2), "weight_decay": random.random(),
               "no_prox": random.random() < 0.5}
        betas = [random.random() for _ in range(3)]
        first, gradients = torch.randn(20, dtype=torch.float64), torch.randn(7, 20, dtype=torch.float64)
        parameter = torch.nn.Parameter(first.clone())
        optimizer = timm.optim.adan.Adan([parameter], betas=betas, **how)
        for g in gradients:
            parameter.grad = g.clone()
            optimizer.step()
        ours = adan(first.tolist(), gradients.tolist(), beta1=betas[0], beta2=betas[1], beta3=betas[2], **how)[""]
        apart = max(apart, max(abs(a - b) for a, b in zip(ours, parameter.detach().tolist())))
    print(f"adan and timm's differ by {apart:.1e} at most")


def schedulefree(p, gradients, lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1, warmup=0):
    z, x, v, total = list(p), list(p), [0.0] * len(p), 0.0
    for t, g in enumerate(gradients, 1):
        rate = lr * (t / warmup if t <= warmup else 1)
        total += rate * rate
        share = rate * rate / total
        v = [beta2 * a + (1 - beta2) * b * b for a, b in zip(v, g)]
        u = [b / (math.sqrt(a / (1 - beta2 ** t)) + eps) + weight_decay * y for a, b, y in zip(v, g, p)]
        z = [a - rate * b for a, b in zip(z, u)]
        x = [(1 - share) * a + share * b for a, b in zip(x, z)]
        p = [(1 - beta1) * a + beta1 * b for a, b in zip(z, x)]
    return {"": p, "z": z, "exp_avg_sq": v, "average": x}


def compare_with_schedulefree():
    import random

    import torch
    from schedulefree import AdamWScheduleFree

    random.seed(7)
    apart = 0.0
    for _ in range(100):
        how = {"lr": random.random() / 10, "eps": 10 ** random.uniform(-9, -2), "weight_decay": random.random()}
        betas, warmup = (random.uniform(0.1, 0.99), random.random()), random.choice((0, 1, 4, 20))
        first, gradients = torch.randn(20, dtype=torch.float64), torch.randn(9, 20, dtype=torch.float64)
        parameter = torch.nn.Parameter(first.clone())
        optimizer = AdamWScheduleFree([parameter], betas=betas, warmup_steps=warmup, foreach=False, **how)
        optimizer.train()
        for g in gradients:
            parameter.grad = g.clone()
            optimizer.step()
        ours = schedulefree(first.tolist(), gradients.tolist(), beta1=betas[0], beta2=betas[1], warmup=warmup, **how)
        apart = max(apart, *(abs(a - b) for a, b in zip(ours[""], parameter.detach().tolist())))
        optimizer.eval()
        apart = max(apart, *(abs(a - b) for a, b in zip(ours["average"], parameter.detach().tolist())))
    print(f"schedulefree and the authors' program differ by {apart:.1e} at most")


def main():
    if "--schedulefree" in sys.argv:
        compare_with_schedulefree()
        return
    if "--timm" in sys.argv:
        compare_with_timm()
        return
    if "--torch" in sys.argv:
        compare_with_torch()
        return
    cases = [("lion", lambda p, g, shape: lion(p, g), ["conv2.weight", "fc1.bias"]),
             ("adafactor", lambda p, g, shape: adafactor(p, g, shape),
              ["conv1.weight", "conv2.weight", "fc1.bias", "fc2.weight"]),
             ("adafactor_mean", lambda p, g, shape: adafactor(p, g, shape, beta1=0.9, d=1.0),
              ["conv2.weight", "fc1.bias"]),
             ("adamw8bit", lambda p, g, shape: adamw8bit(p, g), ["fc1.weight", "fc1.bias"]),
             ("muon", muon, ["conv1.weight", "conv2.weight", "fc1.bias", "fc2.weight"]),
             ("muon_match", lambda p, g, shape: muon(p, g, shape, nesterov=False, steps=3, match=True),
              ["conv1.weight", "conv2.weight"]),
             ("adan", lambda p, g, shape: adan(p, g), ["conv2.weight", "fc1.bias"]),
             ("adan_no_prox", lambda p, g, shape: adan(p, g, no_prox=True, beta1=0.9, beta2=0.5, eps=1e-3),
              ["conv2.weight", "fc1.bias"]),
             ("schedulefree", lambda p, g, shape: schedulefree(p, g), ["conv2.weight", "fc1.bias"]),
             ("schedulefree_warm", lambda p, g, shape: schedulefree(p, g, warmup=4, beta1=0.6, eps=1e-3),
              ["conv2.weight", "fc1.bias"])]
    with open(pathlib.Path(__file__).resolve().parent / "optimizers.txt", "w") as out:
        for case, run, names in cases:
            for which, (name, shape) in enumerate(PARAMETERS):
                if name not in names:
                    continue
                count = count_of(shape)
                gradients = [[gradient(which, step, i) for i in range(count)] for step in range(STEPS)]
                result = run([start(which, i) for i in range(count)], gradients, shape)
                for key, values in result.items():
                    same = shape if len(values) == count else (len(values),)
                    write(out, f"{case}.{name}.{key}" if key else f"{case}.{name}", same, values)
        tall = (16, 1, 3, 3)  # a weight of the model of width 16
        gradients = [[gradient(0, step, i) for i in range(count_of(tall))] for step in range(STEPS)]
        for key, values in muon([start(0, i) for i in range(count_of(tall))], gradients, tall).items():
            write(out, f"muon_tall.conv1.weight.{key}" if key else "muon_tall.conv1.weight", tall, values)


if __name__ == "__main__":
    main()
