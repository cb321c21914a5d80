#!/usr/bin/env python3
"""Makes engine.txt: random networks, their training, and PyTorch's results in double precision.

    python3 tests/golden/make_engine.py                           # needs torch and numpy; writes into this folder
    python3 tests/golden/make_engine.py --compare PROGRAM [--first N] [--count N] [--backend cpu]

The second form compares every loss and value of other cases with brim; PROGRAM is the build's tests/test_engine_golden.

A case is a line "case", then the loss, the optimizer and the operations, a line each (tests/engine/described.c reads
them), and the results: "losses TOLERANCE ...", "value NAME COUNT OFFSET SCALE SUM TOLERANCE" for each parameter, and
"answers SUM TOLERANCE". Parameters, samples and labels are functions of the case's seed (`number`), so the file has no
other values. A sum is over all values, each times a number in [-1, 1). A tolerance is for single precision: TOLERATED
times PyTorch's own error there, plus some rounding.

Networks grow from the input: a random operation that fits the shapes is tried in PyTorch. `Run` defines each operation
in PyTorch. Dropout uses brim's masks (brim/random.h).
"""
import argparse
import fnmatch
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

from make_optimizers import create_dynamic_map

SEED, CASES, TOLERATED = 7000, 200, 20
CLASS, TOKENS, VALUES = range(3)
STREAM_PARAMETERS, STREAM_SUMS, STREAM_BATCHES = 1, 900, 1000
MASK64 = (1 << 64) - 1
VALUES_MAX, PARAMETERS_MAX = 40000, 45000  # values in a tensor of one sample, and in all parameters


# ---- numbers that C computes too ----

def mix(x):
    with np.errstate(over="ignore"):
        x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def bits(seed, stream, count):
    with np.errstate(over="ignore"):
        return mix(mix(mix(seed) + np.uint64(stream)) + np.arange(count, dtype=np.uint64))


def number(seed, stream, count):
    return (bits(seed, stream, count) >> np.uint64(40)).astype(np.float64) / 8388608.0 - 1


# ---- dropout: brim/random.h ----

def philox(c, k0, k1):
    """Returns four random numbers for each counter. c: four arrays of uint64 below 2^32."""
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c)


def dropout_mask(seed, step, stream, p, first, shape):
    """Returns the kept elements of sample `first` and the following ones."""
    def each(*words):
        return [np.array([w], dtype=np.uint64) for w in words]
    key = philox(each(0, step, 0, (5 << 24) | 0xFFFFFF), seed & 0xFFFFFFFF, seed >> 32)[:, 0]
    inner = np.arange(math.prod(shape[1:]), dtype=np.uint64)
    if len(shape) == 4:
        _, c, h, w = shape
        at = np.arange(h * w)[None, :] * (-(-c // 4) * 4) + np.arange(c)[:, None]
        inner = at.reshape(-1).astype(np.uint64)
    sample = (first + np.arange(shape[0]))[:, None].astype(np.uint64) + 0 * inner[None, :]
    block = 0 * sample + (inner // np.uint64(4))[None, :]
    drawn = philox([block, 0 * block, sample, 0 * block + np.uint64((5 << 24) | stream)], int(key[0]), int(key[1]))
    mine = np.take_along_axis(drawn, (0 * block + inner % np.uint64(4))[None].astype(np.int64), 0)[0]
    return torch.from_numpy((mine >= np.uint64(int(p * 4294967296.0))).reshape(shape))


# ---- operations in PyTorch ----

class Run:
    """A forward pass. `parameters`: name -> tensor; if `describes`, missing ones are made with initial values."""

    def __init__(self, x, parameters, training=True, describes=None, dropout=None):
        self.tensors, self.parameters, self.training = [x], parameters, training
        self.describes, self.dropout, self.streams = describes, dropout, 0
        self.statistics = {}  # batch norm's name -> mean, variance

    def parameter(self, name, shape, scale, offset=0.0):
        if self.describes is not None and name not in self.parameters:
            self.describes.append((name, tuple(shape), offset, scale))
            self.parameters[name] = offset + scale * torch.rand(shape, dtype=torch.float64)
        return self.parameters[name]

    def weight(self, name, shape, fan_in, bias=True, of=None):
        scale = 2.0 ** round(math.log2(math.sqrt(2 / fan_in)))
        weight = self.parameter(f"{name}.weight", shape, scale)
        return weight, self.parameter(f"{name}.bias", (of or shape[0],), 0.125) if bias else None

    def norm(self, name, channels):
        return self.parameter(f"{name}.weight", (channels,), 0.25, 1.0), \
            self.parameter(f"{name}.bias", (channels,), 0.125)

    def apply(self, line):
        op, *words = line.split()
        made = getattr(self, "op_" + op)(*words)
        self.tensors += made if isinstance(made, list) else [made]

    def t(self, word):
        return self.tensors[int(word)]

    def op_parameter(self, name, rank, *dims):
        return self.parameter(name, tuple(map(int, dims)), 0.25)

    def op_linear(self, name, x, out, bias=True):
        x = self.t(x)
        return F.linear(x, *self.weight(name, (int(out), x.shape[-1]), x.shape[-1], bias))

    def op_linear_no_bias(self, name, x, out):
        return self.op_linear(name, x, out, False)

    def op_linear_with(self, name, x, weight, bias):
        return F.linear(self.t(x), self.t(weight), self.t(bias) if int(bias) >= 0 else None)

    def op_matmul(self, a, b, ta, tb):
        a, b = self.t(a), self.t(b)
        return (a.mT if int(ta) else a) @ (b.mT if int(tb) else b)

    def conv(self, function, dims, name, x, out, *words):
        o = list(map(int, words))
        kernel, stride, padding, dilation = (o[i * dims:(i + 1) * dims] for i in range(4))
        groups, no_bias = o[4 * dims:]
        x = self.t(x)
        shape = (int(out), x.shape[1] // groups, *kernel)
        w, b = self.weight(name, shape, math.prod(shape[1:]), not no_bias)
        return function(x, w, b, stride, padding, dilation, groups)

    def op_conv2d(self, *words):
        return self.conv(F.conv2d, 2, *words)

    def op_conv1d(self, *words):
        return self.conv(F.conv1d, 1, *words)

    def conv_transpose(self, function, dims, name, x, out, *words):
        o = list(map(int, words))
        kernel, stride, padding, more, dilation = (o[i * dims:(i + 1) * dims] for i in range(5))
        groups, no_bias = o[5 * dims:]
        x = self.t(x)
        shape = (x.shape[1], int(out) // groups, *kernel)
        fan_in = shape[0] // groups * math.prod(kernel) / math.prod(stride)
        w, b = self.weight(name, shape, fan_in, not no_bias, int(out))
        return function(x, w, b, stride, padding, more, groups, dilation)

    def op_conv_transpose2d(self, *words):
        return self.conv_transpose(F.conv_transpose2d, 2, *words)

    def op_conv_transpose1d(self, *words):
        return self.conv_transpose(F.conv_transpose1d, 1, *words)

    def op_embedding(self, name, x, count, dim):
        return F.embedding(self.t(x), self.parameter(f"{name}.weight", (int(count), int(dim)), 1.0))

    def op_embedding_with(self, x, weight):
        return F.embedding(self.t(x), self.t(weight))

    def op_max_pool2d(self, x, kh, kw, sh, sw, ph, pw, _):
        return F.max_pool2d(self.t(x), (int(kh), int(kw)), (int(sh) or int(kh), int(sw) or int(kw)),
                            (int(ph), int(pw)))

    def op_avg_pool2d(self, x, kh, kw, sh, sw, ph, pw, excluded):
        return F.avg_pool2d(self.t(x), (int(kh), int(kw)), (int(sh) or int(kh), int(sw) or int(kw)),
                            (int(ph), int(pw)), count_include_pad=not int(excluded))

    def op_max_pool1d(self, x, kernel, stride, padding):
        return F.max_pool1d(self.t(x), int(kernel), int(stride) or None, int(padding))

    def op_adaptive_avg_pool2d(self, x, h, w):
        return F.adaptive_avg_pool2d(self.t(x), (int(h), int(w)))

    def op_global_avg_pool(self, x):
        return self.t(x).flatten(2).mean(2)

    def upsample(self, x, size, factor, mode, align, linear):
        size = [s or f * d for s, f, d in zip(size, factor, x.shape[2:])]
        return F.interpolate(x, size, mode=linear, align_corners=bool(align)) if mode else F.interpolate(x, size)

    def op_upsample2d(self, x, *words):
        o = list(map(int, words))
        return self.upsample(self.t(x), o[:2], o[2:4], o[4], o[5], "bilinear")

    def op_upsample1d(self, x, *words):
        o = list(map(int, words))
        return self.upsample(self.t(x), o[:1], o[1:2], o[2], o[3], "linear")

    def op_batch_norm(self, name, x, eps, momentum):
        # PyTorch 2.15 computes wrong gradients of weight and bias if x or its gradient is a transposed [N,C,1,W].
        x = self.t(x).clone(memory_format=torch.contiguous_format)
        weight, bias = self.norm(name, x.shape[1])
        mean = self.parameter(f"{name}.running_mean", (x.shape[1],), 0.125)
        var = self.parameter(f"{name}.running_var", (x.shape[1],), 0.25, 1.0)
        if not self.training:
            return F.batch_norm(x, mean, var, weight, bias, False, 0, float(eps))
        # with momentum 1, PyTorch stores the statistics themselves
        mean, var = torch.zeros_like(mean), torch.ones_like(var)
        y = F.batch_norm(x, mean, var, weight, bias, True, 1.0, float(eps))
        if y.requires_grad:
            y.register_hook(lambda dy: dy.clone(memory_format=torch.contiguous_format))
        self.statistics[name] = mean, var, float(momentum)
        return y

    def op_group_norm(self, name, x, groups, eps):
        x = self.t(x)
        return F.group_norm(x, int(groups), *self.norm(name, x.shape[1]), float(eps))

    def op_layer_norm(self, name, x, eps):
        x = self.t(x)
        return F.layer_norm(x, x.shape[-1:], *self.norm(name, x.shape[-1]), float(eps))

    def op_rms_norm(self, name, x, eps):
        x = self.t(x)
        return F.rms_norm(x, x.shape[-1:], self.parameter(f"{name}.weight", x.shape[-1:], 0.25, 1.0), float(eps))

    def op_gelu(self, x, kind):
        x = self.t(x)
        return x * torch.sigmoid(1.702 * x) if int(kind) == 2 else F.gelu(x, approximate=["none", "tanh"][int(kind)])

    def op_leaky_relu(self, x, slope):
        return F.leaky_relu(self.t(x), float(slope))

    def op_scale(self, x, factor):
        return self.t(x) * float(factor)

    def drop(self, x, p):
        stream, self.streams = self.streams, self.streams + 1
        if not self.training or p == 0 or self.dropout is None:
            return x
        seed, step, first = self.dropout
        return x * dropout_mask(seed, step, stream, p, first, tuple(x.shape)).to(x.dtype) / (1 - p)

    def op_dropout(self, x, p):
        return self.drop(self.t(x), float(p))

    def op_softmax(self, x):
        return F.softmax(self.t(x), -1)

    def op_log_softmax(self, x):
        return F.log_softmax(self.t(x), -1)

    def op_sum(self, x, keep, count, *axes):
        return self.t(x).sum([int(a) for a in axes], keepdim=bool(int(keep)))

    def op_mean(self, x, keep, count, *axes):
        return self.t(x).mean([int(a) for a in axes], keepdim=bool(int(keep)))

    def op_reshape(self, x, rank, _, *dims):
        x = self.t(x)
        return x.reshape(x.shape[0], *map(int, dims))

    def op_flatten(self, x):
        return self.t(x).flatten(1)

    def op_transpose(self, x, a, b):
        return self.t(x).transpose(int(a), int(b))

    def op_permute(self, x, *order):
        x = self.t(x)
        return x.permute([int(o) for o in order])

    def op_concat(self, axis, count, *xs):
        return torch.cat([self.t(x) for x in xs], int(axis))

    def op_slice(self, x, axis, start, length):
        return self.t(x).narrow(int(axis), int(start), int(length))

    def op_split(self, x, axis, count):
        return list(self.t(x).chunk(int(count), int(axis)))

    def op_pad(self, x, value, rank, *ends):
        rank, ends = int(rank), list(map(int, ends))
        return F.pad(self.t(x), [e for d in reversed(range(rank)) for e in (ends[d], ends[rank + d])],
                     value=float(value))

    def op_gather(self, x, axis, index):
        return self.t(x).gather(int(axis), self.t(index).long())

    def op_attention(self, q, k, v, heads, kv, causal, scale, dropout):
        q, k, v, heads = self.t(q), self.t(k), self.t(v), int(heads)
        kv = int(kv) or heads
        dims, scale, p = q.shape[-1] // heads, float(scale), float(dropout)

        def split(x, count):
            return x.unflatten(-1, (count, -1)).transpose(1, 2)
        q, k, v = split(q, heads), *(split(x, kv).repeat_interleave(heads // kv, 1) for x in (k, v))
        t, s = q.shape[2], k.shape[2]
        mask = torch.ones(t, s, dtype=torch.bool).tril(s - t) if int(causal) else None
        scale = scale or 1 / math.sqrt(dims)
        if p == 0:
            self.streams += 1  # masks of later dropouts do not depend on p
            y = F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
        else:
            scores = q @ k.mT * scale
            y = self.drop_attention(scores if mask is None else scores.masked_fill(~mask, -math.inf), p) @ v
        return y.transpose(1, 2).flatten(2)

    def drop_attention(self, scores, p):
        n, h, t, s = scores.shape
        return self.drop(F.softmax(scores, -1).reshape(n, h * t * s), p).reshape(n, h, t, s)

    def op_rotary(self, x, heads, dims, base, interleaved):
        x, heads = self.t(x), int(heads)
        n, t, width = x.shape
        d = int(dims) or width // heads
        y = x.reshape(n, t, heads, -1)
        turned, rest = y[..., :d], y[..., d:]
        inverse = (float(base) or 10000) ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        angle = (torch.arange(t, dtype=torch.float64)[:, None] * inverse)[:, None]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        if int(interleaved):
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
        return torch.cat([turned, rest], -1).reshape(n, t, width)

    def op_lstm(self, name, x, hidden, layers, both):
        x, hidden, layers, both = self.t(x), int(hidden), int(layers), int(both)
        flat, width, scale = [], x.shape[-1], 2.0 ** round(math.log2(1 / math.sqrt(hidden)))
        for layer in range(layers):
            for way in ["", "_reverse"][:1 + both]:
                end = f"l{layer}{way}"
                flat += [self.parameter(f"{name}.weight_ih_{end}", (4 * hidden, width), scale),
                         self.parameter(f"{name}.weight_hh_{end}", (4 * hidden, hidden), scale),
                         self.parameter(f"{name}.bias_ih_{end}", (4 * hidden,), 0.125),
                         self.parameter(f"{name}.bias_hh_{end}", (4 * hidden,), 0.125)]
            width = hidden * (1 + both)
        state = x.new_zeros(layers * (1 + both), x.shape[0], hidden)
        return torch.lstm(x, (state, state), flat, True, layers, 0.0, True, bool(both), True)[0]

    def op_block(self, x):
        return self.t(x)


for simple in ["relu", "silu", "sigmoid", "tanh", "exp"]:
    setattr(Run, "op_" + simple, lambda self, x, f=getattr(torch, simple, None) or F.silu: f(self.t(x)))
for simple in ["add", "sub", "mul", "div"]:
    setattr(Run, "op_" + simple, lambda self, a, b, f=getattr(torch, simple): f(self.t(a), self.t(b)))


# ---- networks ----

class Network:
    """A network that grows operation by operation; `shape` is without N."""

    def __init__(self, draw, sample, task, classes):
        self.draw, self.task, self.classes = draw, task, classes
        x = torch.zeros(2, *sample, dtype=torch.int64) if task == TOKENS else torch.rand(2, *sample).double()
        self.lines, self.described, self.names = [], [], {}
        self.run = Run(x, {}, True, self.described)
        self.at = 0
        self.parameters_alone = set()

    def shape(self, at=None):
        return tuple(self.run.tensors[self.at if at is None else at].shape[1:])

    def name(self, kind):
        self.names[kind] = self.names.get(kind, 0) + 1
        return f"{kind}{self.names[kind]}"

    def add(self, line, limit=True):
        """Tries an operation, whose result becomes the current tensor. Returns False if it does not fit."""
        described, parameters = len(self.described), dict(self.run.parameters)
        try:
            self.run.apply(line)
            y = self.run.tensors[-1]
            fits = all(d > 0 for d in y.shape) and (not limit or y.numel() / 2 <= VALUES_MAX) and \
                sum(math.prod(s) for _, s, _, _ in self.described) <= PARAMETERS_MAX
        except (RuntimeError, IndexError, ValueError):
            fits = False
        if not fits:
            del self.described[described:]
            self.run.parameters = parameters
            del self.run.tensors[sum(self.made(old) for old in self.lines) + 1:]
            return False
        self.lines.append(line)
        self.at = len(self.run.tensors) - 1
        return True

    def add_alone(self, line):
        """Adds a tensor that depends only on parameters and has no samples."""
        if self.add(line):
            self.parameters_alone.add(self.at)
            return True
        return False

    @staticmethod
    def made(line):
        words = line.split()
        return int(words[3]) if words[0] == "split" else 1

    def same_shape(self):
        return [i for i, t in enumerate(self.run.tensors)
                if i not in self.parameters_alone and t.is_floating_point() and tuple(t.shape[1:]) == self.shape()]

    # -- possible next operations, by the rank of the current tensor (with N) --

    def any_rank(self):
        d, x, shape = self.draw, self.at, self.shape()
        rank = len(shape) + 1
        axis = d.randint(1, rank - 1)
        yield f"{d.choice(['relu', 'silu', 'sigmoid', 'tanh'])} {x}"
        yield f"gelu {x} {d.randint(0, 2)}"
        yield f"leaky_relu {x} {d.choice([0.01, 0.2, 0.5])}"
        yield f"scale {x} {d.choice([0.5, -1.25, 3])}"
        yield f"dropout {x} {d.choice([0.1, 0.25, 0.5])}"
        yield f"block {x}"
        yield f"{d.choice(['softmax', 'log_softmax'])} {x}"
        yield f"linear {self.name('fc')} {x} {self.width()}"
        yield f"linear_no_bias {self.name('fc')} {x} {self.width()}"
        yield f"layer_norm {self.name('ln')} {x} {d.choice([1e-5, 1e-3])}"
        yield f"rms_norm {self.name('rms')} {x} {d.choice([1e-6, 1e-3])}"
        yield f"batch_norm {self.name('bn')} {x} 1e-5 {d.choice([0.1, 0.3])}"
        divisors = [g for g in range(1, shape[0] + 1) if shape[0] % g == 0]
        if rank > 2:
            yield f"group_norm {self.name('gn')} {x} {d.choice(divisors)} 1e-5"
        others = self.same_shape()
        for op in ["add", "add", "add", "sub", "mul"]:
            yield f"{op} {x} {d.choice(others)}"
        yield f"concat {d.choice([axis, axis - rank])} 2 {x} {d.choice(others)}"
        if shape[axis - 1] > 1:
            start = d.randrange(shape[axis - 1])
            yield f"slice {x} {axis} {start} {d.randint(1, shape[axis - 1] - start)}"
        parts = [c for c in (2, 3, 4) if shape[axis - 1] % c == 0]
        if parts:
            yield f"split {x} {axis} {d.choice(parts)}"
        ends = [str(d.randint(0, 2)) if i % rank else "0" for i in range(2 * rank)]
        yield f"pad {x} {d.choice([0, 0.5])} {rank} {' '.join(ends)}"
        if rank > 2:
            axes = sorted(d.sample(range(1, rank), d.randint(1, rank - 2)))
            yield f"{d.choice(['sum', 'mean'])} {x} {d.randint(0, 1)} {len(axes)} {' '.join(map(str, axes))}"
            order = d.sample(range(1, rank), rank - 1)
            yield f"permute {x} 0 {' '.join(map(str, order))}"
            yield f"transpose {x} {axis} {d.choice([-1, 1])}"
            yield f"reshape {x} 3 0 {shape[0]} {math.prod(shape[1:])}"
        elif shape[0] % 2 == 0:
            yield f"reshape {x} 3 0 2 {shape[0] // 2}"

    def width(self):
        return self.draw.choice([1, 3, 5, 8, 12, 16, 17, 24, 32, 33, 48])

    def sequence(self):
        d, x, (t, f) = self.draw, self.at, self.shape()
        yield f"lstm {self.name('lstm')} {x} {d.choice([1, 4, 7, 8])} {d.randint(1, 2)} {d.randint(0, 1)}"
        yield f"conv1d {self.name('conv')} {x} {self.channels(t)}"
        yield f"conv_transpose1d {self.name('up')} {x} {self.channels(t, True)}"
        yield f"max_pool1d {x} {d.randint(1, 4)} {d.randint(0, 3)} {d.randint(0, 1)}"
        yield f"upsample1d {x} {d.choice([f'{d.randint(1, 2 * f)} 0', '0 2', '0 3'])} {d.choice(['0 0', '1 0', '1 1'])}"
        yield f"matmul {x} {x} 0 1"
        yield f"matmul {x} {x} 1 0"
        yield "attention"
        yield "attention"

    def channels(self, of, transposed=False, dims=1):
        """Draws out channels, kernel, stride, padding, [output padding], dilation, groups, no_bias."""
        d = self.draw
        groups = d.choice([g for g in range(1, of + 1) if of % g == 0] + [1, 1])
        out = groups * d.randint(1, max(1, 20 // groups))
        words = [[d.choice([1, 2, 3, 3, 3, 4, 5]) for _ in range(dims)], [d.choice([1, 1, 2, 3]) for _ in range(dims)],
                 [d.randint(0, 2) for _ in range(dims)]]
        if transposed:
            words.append([d.randint(0, 1) if s > 1 else 0 for s in words[1]])
        words.append([d.choice([1, 1, 1, 2]) for _ in range(dims)])
        return " ".join(map(str, [out] + sum(words, []) + [groups, d.randint(0, 1)]))

    def image(self):
        d, x, (c, h, w) = self.draw, self.at, self.shape()
        for _ in range(6):
            yield f"conv2d {self.name('conv')} {x} {self.channels(c, dims=2)}"
        yield f"conv_transpose2d {self.name('up')} {x} {self.channels(c, True, 2)}"
        kernel = [d.randint(1, 4), d.randint(1, 4)]
        rest = [d.randint(0, 3), d.randint(0, 3), d.randint(0, kernel[0] // 2), d.randint(0, kernel[1] // 2)]
        words = " ".join(map(str, kernel + rest))
        for _ in range(2):
            yield f"max_pool2d {x} {words} 0"
            yield f"avg_pool2d {x} {words} {d.randint(0, 1)}"
            yield f"batch_norm {self.name('bn')} {x} 1e-5 0.1"
        yield f"adaptive_avg_pool2d {x} {d.randint(1, 5)} {d.randint(1, 5)}"
        size = d.choice([f"{d.randint(1, 2 * h)} {d.randint(1, 2 * w)} 0 0", "0 0 2 2", f"{d.randint(1, 9)} 0 0 3"])
        yield f"upsample2d {x} {size} {d.choice(['0 0', '1 0', '1 1'])}"
        yield f"matmul {x} {x} 0 1"

    def attention(self):
        """Adds projections, perhaps rotated, and attention. Keys come from the whole sequence or a part."""
        d, x, t = self.draw, self.at, self.shape()[0]
        heads = d.randint(1, 4)
        kv = d.choice([g for g in range(1, heads + 1) if heads % g == 0])
        dims = d.choice([2, 4, 6, 8, 16])
        self.add(f"linear {self.name('q')} {x} {heads * dims}")
        if self.at == x:
            return False
        if d.random() < 0.4:
            of = d.choice([0, 2, dims])
            self.add(f"rotary {self.at} {heads} {of} {d.choice([0, 100])} {d.randint(0, 1)}")
        q, source = self.at, x
        if d.random() < 0.3 and t > 1:
            start = d.randrange(t)
            self.add(f"slice {x} 1 {start} {d.randint(1, t - start)}")
            source = self.at
        causal = int(d.random() < 0.5)
        if causal and self.shape(source)[0] < t:
            causal = 0  # in PyTorch, rows that see nothing are NaN
        self.add(f"linear {self.name('k')} {source} {kv * dims}")
        k = self.at
        self.add(f"linear {self.name('v')} {source} {kv * dims}")
        return self.add(f"attention {q} {k} {self.at} {heads} {kv if kv < heads else 0} {causal} "
                        f"{d.choice([0, 0, 0.3])} {d.choice([0, 0, 0, 0.2])}")

    def mean_product(self):
        """Adds an expression of several operations: x * sigmoid(linear(x)), or x / (1 + exp(tanh(x)))."""
        d, x = self.draw, self.at
        if d.random() < 0.5:
            return self.add(f"linear {self.name('gate')} {x} {self.shape()[-1]}") and \
                self.add(f"sigmoid {self.at}") and self.add(f"mul {x} {self.at}")
        return self.add(f"tanh {x}") and self.add(f"exp {self.at}") and self.add(f"div {x} {self.at}")

    def parameter_operand(self):
        """Adds or multiplies by a parameter, or by a slice or norm of one."""
        d, x, shape = self.draw, self.at, self.shape()
        dims = shape[d.randrange(len(shape)):]
        if not self.add_alone(f"parameter {self.name('p')} {len(dims)} {' '.join(map(str, dims))}"):
            return False
        if d.random() < 0.3:
            self.add_alone(f"tanh {self.at}")
        return self.add(f"{d.choice(['add', 'mul', 'sub'])} {x} {self.at}")

    def grow(self):
        d = self.draw
        for _ in range(20):
            before = self.at
            lines = list(self.any_rank())
            if len(self.shape()) == 2:
                lines += list(self.sequence()) * 2
            if len(self.shape()) == 3:
                lines += list(self.image()) * 2
            chosen = d.random()
            line = d.choice(lines)
            if chosen < 0.06:
                grown = self.mean_product()
            elif chosen < 0.14:
                grown = self.parameter_operand()
            elif line == "attention":
                grown = self.attention()
            else:
                grown = self.add(line)
            if grown and self.run.tensors[self.at].abs().max() < 50:
                return
            self.at = before  # keeps the operations, because a network may have results that nothing reads

    def finish(self, tied=None):
        """Ends the network in [N, classes], or [N, T, classes] for tokens."""
        d = self.draw
        if self.task == TOKENS:
            if tied is not None and self.add(f"linear_with head {self.at} {tied} -1"):
                return True
            return self.add(f"linear head {self.at} {self.classes}")
        if len(self.shape()) > 1:
            small = math.prod(self.shape()) <= 300
            if small and d.random() < 0.6:
                self.add(f"flatten {self.at}")
            elif d.random() < 0.5:
                self.add(f"global_avg_pool {self.at}")
            else:
                axes = range(1, len(self.shape()))
                self.add(f"mean {self.at} 0 {len(axes)} {' '.join(map(str, axes))}")
        return self.add(f"{d.choice(['linear', 'linear', 'linear_no_bias'])} head {self.at} {self.classes}")


# ---- cases ----

class Case:
    def __init__(self, seed):
        d = self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.seed, self.name = seed, f"c{seed}"
        self.task = d.choice([CLASS, CLASS, CLASS, VALUES, VALUES, TOKENS])
        self.classes = d.choice([1, 2, 3, 5, 10, 17, 33] if self.task == VALUES else [2, 3, 5, 10, 17, 33])
        if self.task != VALUES and d.random() < 0.08:
            self.classes = d.choice([4096, 4100])  # with that many classes the loss contains the product
        self.sample = self.draw_sample()
        self.batch = d.choice([1, 2, 3, 4, 6, 8, 12, 16, 17])
        self.micro = d.choice([m for m in range(1, self.batch + 1) if self.batch % m == 0])
        self.grain = d.choice([0, 0] + [g for g in range(1, self.micro + 1) if self.micro % g == 0])
        self.recompute = d.randint(0, 2)
        self.answers = d.randint(0, 1)
        self.steps = d.randint(1, 4)
        self.draw_loss()
        self.draw_optimizer()
        while not self.draw_network():
            pass

    def draw_sample(self):
        d = self.draw
        if self.task == TOKENS:
            return (d.choice([1, 2, 5, 7, 8, 12, 16][:5 if self.classes > 1000 else 7]),)
        return d.choice([lambda: (d.randint(1, 40),), lambda: (d.randint(1, 12), d.randint(1, 20)),
                         lambda: (d.randint(1, 6), d.randint(3, 14), d.randint(3, 14)),
                         lambda: (d.randint(1, 6), d.randint(3, 14), d.randint(3, 14)),
                         lambda: tuple(d.randint(1, 5) for _ in range(4))])()

    def draw_loss(self):
        d = self.draw
        self.ignored, self.no_label, self.loss_options = 0.0, -100, {}
        if self.task == VALUES:
            self.loss = d.choice(["mse", "mse", "mae", "huber", "bce", "cross_entropy"])  # the last one has soft labels
        else:
            self.loss = "cross_entropy"
            if self.task == CLASS and d.random() < 0.2 and self.classes < 4096:
                self.loss = d.choice(["mse", "mae", "huber", "bce"])
        if self.loss == "huber":
            self.loss_options["delta"] = d.choice([0.3, 1.0])
        if self.loss == "cross_entropy":
            if d.random() < 0.3:
                self.loss_options["label_smoothing"] = d.choice([0.1, 0.4])
            if self.task == TOKENS and d.random() < 0.4:
                self.ignored = 0.3
            if self.task != VALUES and d.random() < 0.25 and self.classes < 4096:
                self.loss_options["ignore_index"] = self.no_label = d.randrange(self.classes)

    def draw_optimizer(self):
        d = self.draw
        self.optimizer = d.choice(["adamw", "adamw", "adam", "sgd", "sgd", "lion", "adafactor", "adamw8bit"])
        o = self.options = {"lr": d.choice([0.01, 0.003] if self.optimizer != "sgd" else [0.05, 0.01])}
        if d.random() < 0.5:
            o["weight_decay"] = d.choice([0.1, 0.01])
        if self.optimizer == "sgd":
            o["momentum"] = d.choice([0.0, 0.9, 0.5])
            if o["momentum"] and d.random() < 0.4:
                o["nesterov"] = "true"
        elif self.optimizer == "adafactor":
            if d.random() < 0.4:
                o["beta1"] = 0.9
        elif d.random() < 0.5:
            o["beta1"], o["beta2"] = d.choice([(0.8, 0.95), (0.9, 0.99)])
        if self.optimizer in ("adam", "adamw", "adamw8bit") and d.random() < 0.3:
            o["eps"] = 1e-5
        self.no_decay = d.choice(["", "", "*.bias", "*.bias ln*.weight"])
        if self.no_decay and " " not in self.no_decay:
            o["no_decay"] = self.no_decay
        else:
            self.no_decay = ""

    def draw_network(self):
        d = self.draw
        net = Network(d, self.sample, self.task, self.classes)
        tied = None
        if self.task == TOKENS:
            width = d.choice([4, 8, 12, 17])
            if d.random() < 0.4:
                if not net.add_alone(f"parameter table 2 {self.classes} {width}"):
                    return False
                tied = net.at
                net.add(f"embedding_with 0 {tied}")
            else:
                net.add(f"embedding embed 0 {self.classes} {width}")
            if not net.at:
                return False  # the network has too many parameters
            if d.random() < 0.5:
                net.add_alone(f"parameter position 2 {self.sample[0]} {width}")
                net.add(f"add {net.at - 1} {net.at}")
            if self.classes < 100 and d.random() < 0.3:
                self.look_up(net)
        first = net.at
        for _ in range(d.randint(1, 9)):
            before = net.at
            net.grow()
            if self.task == TOKENS and (len(net.shape()) != 2 or net.shape()[0] != self.sample[0]):
                net.at = before
        if self.task == TOKENS and net.at != first and d.random() < 0.3:
            last = net.at
            net.add(f"matmul {last} {last} 0 1") and net.add(f"matmul {net.at} {last} 0 0")
        if not net.finish(tied) or len(net.lines) > 60 or len(net.described) > 90:
            return False
        self.lines, self.parameters, self.net = net.lines, net.described, net
        return True

    def look_up(self, net):
        """Gives each token the value that the whole sequence's result has for it: a gather by the tokens."""
        x = net.at
        if net.add(f"mean {x} 0 1 1") and net.add(f"linear table {net.at} {self.classes}"):
            net.add(f"gather {net.at} {self.draw.choice([1, -1])} 0")
            net.add(f"reshape {net.at} 3 0 {self.sample[0]} 1")
            net.add(f"mul {x} {net.at}")

    def text(self, expected=None):
        what = [self.name, self.task, self.classes, self.batch, self.micro, self.grain, self.recompute, 0, self.answers,
                self.steps, self.ignored, self.no_label, self.seed, *self.sample]
        lines = ["case " + " ".join(map(str, what))]
        lines.append(" ".join(["loss", self.loss] + [f"{k}={v}" for k, v in self.loss_options.items()]))
        lines.append(" ".join(["optimizer", self.optimizer] + [f"{k}={v}" for k, v in self.options.items()]))
        lines += self.lines
        for i, (name, shape, offset, scale) in enumerate(self.parameters):
            sums = expected["values"][i] if expected else (0, 0)
            lines.append(f"value {name} {math.prod(shape)} {offset} {scale} {sums[0]:.12g} {sums[1]:.2g}")
        if expected:
            lines.append(f"losses {expected['loss'][1]:.2g} " + " ".join(f"{v:.14g}" for v in expected["loss"][0]))
            if self.answers:
                lines.append(f"answers {expected['answers'][0]:.12g} {expected['answers'][1]:.2g}")
        return "\n".join(lines + ["end", ""])


# ---- training in PyTorch ----

def batch_of(case, step, dtype):
    stream, shape = STREAM_BATCHES + 10 * step, (case.batch, *case.sample)
    count = math.prod(shape)
    if case.task == TOKENS:
        x = torch.from_numpy((bits(case.seed, stream, count) % np.uint64(case.classes)).astype(np.int64))
    else:
        x = torch.from_numpy(number(case.seed, stream, count)).to(dtype)
    if case.task == VALUES:
        label = torch.from_numpy(number(case.seed, stream + 1, case.batch * case.classes)).to(dtype)
        return x.reshape(shape), label.reshape(case.batch, case.classes)
    count = count if case.task == TOKENS else case.batch
    label = (bits(case.seed, stream + 1, count) % np.uint64(case.classes)).astype(np.int64)
    label[(number(case.seed, stream + 2, count) + 1) / 2 < case.ignored] = case.no_label
    return x.reshape(shape), torch.from_numpy(label).reshape((case.batch, -1) if case.task == TOKENS else (-1,))


def loss_sum(case, y, label):
    """Returns the sum of the losses, and their number."""
    if case.loss == "cross_entropy":
        o = case.loss_options
        if case.task == VALUES:
            smoothing = o.get("label_smoothing", 0.0)
            return F.cross_entropy(y, label, reduction="sum", label_smoothing=smoothing), len(y)
        y, label = y.reshape(-1, case.classes), label.reshape(-1)
        ignore = o.get("ignore_index", -100)
        loss = F.cross_entropy(y, label, reduction="sum", ignore_index=ignore,
                               label_smoothing=o.get("label_smoothing", 0.0))
        return loss, (label != ignore).sum().item()
    target = label if case.task == VALUES else F.one_hot(label, case.classes).to(y.dtype)
    each = {"mse": F.mse_loss, "mae": F.l1_loss, "bce": F.binary_cross_entropy_with_logits,
            "huber": lambda a, b, reduction: F.huber_loss(a, b, reduction, case.loss_options["delta"])}[case.loss]
    return each(y, target, reduction="none").mean(1).sum(), len(y)


class Lion:
    def __init__(self, lr, weight_decay=0.0, beta1=0.9, beta2=0.99):
        self.lr, self.decay, self.beta1, self.beta2 = lr, weight_decay, beta1, beta2

    def update(self, p, g, state, t, decays):
        m = state.setdefault("m", torch.zeros_like(p))
        c = self.beta1 * m + (1 - self.beta1) * g
        p.mul_(1 - self.lr * self.decay * decays).sub_(self.lr * c.sign())
        m.mul_(self.beta2).add_((1 - self.beta2) * g)


class Adafactor:
    """torch.optim.Adafactor, but with beta1, and a matrix is the first dimension by all others."""

    def __init__(self, lr, weight_decay=0.0, beta1=0.0):
        self.lr, self.decay, self.beta1 = lr, weight_decay, beta1

    def update(self, p, g, state, t, decays):
        eps1, eps2 = 1.1920929e-07, 1e-3
        share = t ** -0.8
        alpha = max(eps2, p.square().mean().sqrt().item()) * min(self.lr, 1 / math.sqrt(t))
        p.mul_(1 - self.lr * self.decay * decays)
        if p.dim() > 1:
            square = g.reshape(len(g), -1).square()
            row = state.setdefault("row", torch.zeros_like(square[:, 0])).lerp_(square.mean(1), share)
            column = state.setdefault("column", torch.zeros_like(square[0])).lerp_(square.mean(0), share)
            estimate = torch.outer(row, column).div_(row.mean().clamp(min=eps1)).reshape(p.shape)
        else:
            estimate = state.setdefault("square", torch.zeros_like(p)).lerp_(g.square(), share)
        update = g / estimate.clamp(min=eps1 * eps1).sqrt()
        update = alpha / max(1.0, update.square().mean().sqrt().item()) * update
        if self.beta1:
            update = state.setdefault("m", torch.zeros_like(p)).mul_(self.beta1).add_((1 - self.beta1) * update)
        p.sub_(update)


class Adamw8bit:
    """AdamW that stores the moments of parameters with 4096 values or more as codes, in blocks of 256."""
    maps = [torch.tensor(create_dynamic_map(signed), dtype=torch.float64) for signed in (True, False)]

    def __init__(self, lr, weight_decay=0.01, beta1=0.9, beta2=0.999, eps=1e-8):
        self.lr, self.decay, self.beta1, self.beta2, self.eps = lr, weight_decay, beta1, beta2, eps

    def rounded(self, x, codes, positive):
        flat = x.reshape(-1)
        blocks = F.pad(flat, (0, -len(flat) % 256)).reshape(-1, 256)
        most = blocks.abs().amax(1, keepdim=True)
        share = (blocks / most.clamp(min=1e-300)).double()
        code = torch.searchsorted((codes[1:] + codes[:-1]) / 2, share)
        if positive:
            code = torch.maximum(code, (share > 0).long())
        return (codes[code].to(x.dtype) * most).reshape(-1)[:len(flat)].reshape(x.shape)

    def update(self, p, g, state, t, decays):
        m, v = state.get("m", torch.zeros_like(p)), state.get("v", torch.zeros_like(p))
        m, v = self.beta1 * m + (1 - self.beta1) * g, self.beta2 * v + (1 - self.beta2) * g * g
        p.mul_(1 - self.lr * self.decay * decays)
        p.sub_(self.lr / (1 - self.beta1 ** t) * m / (v.sqrt() / math.sqrt(1 - self.beta2 ** t) + self.eps))
        small = p.numel() < 4096
        state["m"] = m if small else self.rounded(m, self.maps[0], False)
        state["v"] = v if small else self.rounded(v, self.maps[1], True)


class Own:
    """An optimizer that PyTorch lacks or defines differently."""

    def __init__(self, rule, parameters, no_decay):
        self.rule, self.t = rule, 0
        self.items = [(p, {}, not no_decay or not fnmatch.fnmatch(n, no_decay)) for n, p in parameters]

    def zero_grad(self):
        for p, _, _ in self.items:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p, state, decays in self.items:
            self.rule.update(p, p.grad if p.grad is not None else torch.zeros_like(p), state, self.t, decays)


def optimizer_of(case, parameters):
    o = {k: v for k, v in case.options.items() if k != "no_decay"}
    own = {"lion": Lion, "adafactor": Adafactor, "adamw8bit": Adamw8bit}.get(case.optimizer)
    if own:
        return Own(own(**o), parameters, case.no_decay)
    groups = [{"params": [p for n, p in parameters if not (case.no_decay and fnmatch.fnmatch(n, case.no_decay))]},
              {"params": [p for n, p in parameters if case.no_decay and fnmatch.fnmatch(n, case.no_decay)],
               "weight_decay": 0.0}]
    if case.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=o["lr"], momentum=o["momentum"], weight_decay=o.get("weight_decay", 0.0),
                               nesterov="nesterov" in o)
    kind, decay = (torch.optim.Adam, 0.0) if case.optimizer == "adam" else (torch.optim.AdamW, 0.01)
    return kind(groups, lr=o["lr"], betas=(o.get("beta1", 0.9), o.get("beta2", 0.999)), eps=o.get("eps", 1e-8),
                weight_decay=o.get("weight_decay", decay))


def is_buffer(name):
    return name.endswith((".running_mean", ".running_var"))


def train(case, dtype):
    """Returns the losses, the parameters and the answers after the last step; None if a number is not finite. Sets
    case.least_share to the smallest norm of a parameter's gradient relative to that of all, or its smallest value."""
    p, case.least_share = {}, 1.0
    for i, (name, shape, offset, scale) in enumerate(case.parameters):
        value = np.float32(offset) + np.float32(scale) * \
            number(case.seed, STREAM_PARAMETERS + i, math.prod(shape)).astype(np.float32)
        p[name] = torch.from_numpy(value).to(dtype).reshape(shape).requires_grad_(not is_buffer(name))
    optimizer = optimizer_of(case, [(n, v) for n, v in p.items() if not is_buffer(n)])
    # Without batch norm, PyTorch processes the whole batch at once, even if brim splits it.
    cut = case.micro if any(line.startswith("batch_norm") for line in case.lines) else case.batch
    losses = []
    for step in range(case.steps):
        x, label = batch_of(case, step, dtype)
        optimizer.zero_grad()
        runs, total, weight = [], 0, 0
        for at in range(0, case.batch, cut):
            run = Run(x[at:at + cut], p, True, None, (case.seed, step, at))
            for line in case.lines:
                run.apply(line)
            loss, count = loss_sum(case, run.tensors[-1], label[at:at + cut])
            total, weight = total + loss, weight + count
            runs.append(run)
        if weight == 0:
            return None
        (total / weight).backward()
        all_norm = 1e-300 + math.sqrt(sum(v.grad.square().sum().item() for v in p.values() if v.grad is not None))
        for name, value in p.items():
            if value.grad is not None:
                share, each = value.grad.norm(), value.grad.abs()
                if case.loss == "mae":  # the gradients of mae, +1 and -1, may add up to 0
                    share = each.min()
                elif case.optimizer == "lion" and each.any():  # lion takes signs
                    share = each[each > 0].min()
                case.least_share = min(case.least_share, share.item() / all_norm)
            elif not is_buffer(name):  # PyTorch does not change a parameter without a gradient, but in brim it decays
                value.grad = torch.zeros_like(value)
        losses.append((total / weight).item())
        optimizer.step()
        for name, (_, _, momentum) in runs[0].statistics.items():
            for i, kind in enumerate(["mean", "var"]):
                mean = torch.stack([run.statistics[name][i] for run in runs]).mean(0)
                buffer = p[f"{name}.running_{kind}"]
                buffer += momentum * (mean - buffer)
    with torch.no_grad():
        run = Run(x[case.batch - case.micro:], p, False)
        for line in case.lines:
            run.apply(line)
    values = [p[name].detach().double().reshape(-1).numpy() for name, *_ in case.parameters]
    answers = run.tensors[-1].double().reshape(-1).numpy()
    good = all(np.isfinite(v).all() and np.abs(v).max() < 1e4 for v in [*values, answers, np.array(losses)])
    return (np.array(losses), values, answers) if good else None


def cases(first, count, backend="cpu"):
    """Returns the cases with PyTorch's numbers. Leaves out cases that rounding determines: those in which a gradient is
    0 except for rounding (as that of a bias before batch norm, or of queries that see one key) and the optimizer makes
    full steps of it."""
    least = {"sgd": 0, "other": 1e-9 if backend == "reference" else 1e-5}
    for seed in range(first, first + count):
        case = Case(seed)
        try:
            exact = train(case, torch.float64)
            if case.least_share < least.get(case.optimizer, least["other"]):
                continue
            single = train(case, torch.float32) if exact else None
        except ValueError as error:  # a batch norm has only a single value
            if "more than 1 value" not in str(error):
                raise
            continue
        if single:
            yield case, exact, single


def expected_of(case, exact, single):
    def summed(stream, value, other):
        error, size = np.linalg.norm(other - value), np.linalg.norm(value)
        return float((value * number(case.seed, stream, len(value))).sum()), TOLERATED * error + 1e-6 * size + 1e-7
    return {"loss": (exact[0], TOLERATED * np.abs(single[0] - exact[0]).max() + 1e-6 * np.abs(exact[0]).max()),
            "values": [summed(STREAM_SUMS + i, a, b) for i, (a, b) in enumerate(zip(exact[1], single[1]))],
            "answers": summed(STREAM_SUMS - 1, exact[2], single[2])}


# ---- comparing with brim ----

def read_results(path):
    results, result = {}, None
    for line in open(path):
        kind, *words = line.split()
        if kind == "case":
            result = results[words[0]] = {"status": words[1], "values": []}
        elif kind == "error":
            result["error"] = " ".join(words)
        elif kind == "losses":
            result["losses"] = np.array(words, dtype=np.float64)
        elif kind == "values":
            result["values"].append((words[0], np.array(words[2:], dtype=np.float64)))
        elif result is not None and "error" in result:
            result["error"] += " / " + line.strip()
    return results


def differences(case, exact, single, got, is_double):
    """Returns [(what, error relative to the values, error relative to the tolerance)]."""
    rows = []
    bound = max(np.abs(exact[0]).max(), 1e-9)  # with a single class the loss is 0
    if is_double:
        rows.append(("loss", np.abs(got["losses"] - exact[0]).max() / bound, 1e-9))
    else:
        rows.append(("loss", np.abs(got["losses"] - exact[0]).max() / bound,
                     5 * np.abs(single[0] - exact[0]).max() / bound + 1e-6))
    values = list(zip([n for n, *_ in case.parameters] + ["answers"], exact[1] + [exact[2]], single[1] + [single[2]]))
    for (name, value, other), (_, mine) in zip(values, got["values"]):
        size = np.linalg.norm(value) + 1e-30
        own = np.linalg.norm(other - value) / size
        rows.append((name, np.linalg.norm(mine - value) / size, 1e-7 if is_double else 5 * own + 1e-6))
    return rows


def compare(program, first, count, backend):
    chosen = list(cases(first, count, backend))
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/cases.txt", "w") as out:
            out.writelines(case.text() for case, *_ in chosen)
        done = subprocess.run([program, f"{folder}/cases.txt", backend, f"{folder}/results.txt"])
        results = read_results(f"{folder}/results.txt") if os.path.exists(f"{folder}/results.txt") else {}
    worst, refused, wrong = {}, 0, 0
    for case, exact, single in chosen:
        got = results.get(case.name)
        if not got or got["status"] != "OK":
            refused += 1
            print(f"{case.name}: {got['status'] + ': ' + got.get('error', '') if got else 'no result'}")
            continue
        rows = differences(case, exact, single, got, backend == "reference")
        for name, error, allowed in rows:
            kind = name if name in ("loss", "answers") else "parameters"
            worst[kind] = max(worst.get(kind, (0,)), (error, case.name, name))
        bad = [r for r in rows if not r[1] <= r[2]]
        wrong += bool(bad)
        for name, error, allowed in sorted(bad, key=lambda r: -r[1])[:3]:
            print(f"{case.name}: {name}: error {error:.3g}, allowed {allowed:.3g} ({case.optimizer}, {case.loss})")
    print(f"{len(chosen)} cases on {backend}: {wrong} differ, {refused} refused; program's status {done.returncode}")
    for kind, (error, *where) in worst.items():
        print(f"  largest difference of {kind}: {error:.3g} ({' '.join(where)})")
    return 1 if wrong or refused or done.returncode else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare")
    parser.add_argument("--first", type=int, default=100000)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--backend", default="cpu")
    o = parser.parse_args()
    torch.set_num_threads(1)
    if o.compare:
        return compare(o.compare, o.first, o.count, o.backend)
    with open(pathlib.Path(__file__).resolve().parent / "engine.txt", "w") as out:
        out.write("# made by make_engine.py\n")
        for case, exact, single in cases(SEED, CASES):
            out.write(case.text(expected_of(case, exact, single)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
