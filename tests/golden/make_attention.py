#!/usr/bin/env python3
"""Makes attention.txt: PyTorch's results, in double precision, for attention and rotary position embedding.

    python3 tests/golden/make_attention.py        # needs torch; writes into this folder

Each case has inputs, the result y, the incoming gradient dy, and the gradients of the inputs. Attention is
torch.nn.functional.scaled_dot_product_attention with key heads repeated where query heads share them; its is_causal
lets query 0 see key 0 for all lengths, so causal cases pass a mask. With a window, documents or a soft cap the formula
is written out, with the mask of each token's document and position. Rotary embedding is written out. The settings are
repeated in tests/conformance/test_golden_attention.c.
"""
import pathlib

import torch
import torch.nn.functional as F

from make_models import write


def heads_of(x, heads):
    """[N,T,heads*D] -> [N,heads,T,D]"""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def attend(q, k, v, heads, kv_heads, causal=False, scale=None):
    q, k, v = heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads)
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    blind = max(0, q.shape[2] - k.shape[2]) if causal else 0  # number of queries that see no key; their result is 0
    seeing = q[:, :, blind:]
    mask = None
    if causal:
        mask = torch.ones(seeing.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - seeing.shape[2])
    y = F.scaled_dot_product_attention(seeing, k, v, attn_mask=mask, scale=scale)
    return F.pad(y, (0, 0, blind, 0)).transpose(1, 2).flatten(2)


def places_of(documents):
    """Returns the index of each token in its own document: [N,T]."""
    return torch.tensor([[place for length in row for place in range(length)] for row in documents])


def attend_limited(q, k, v, heads, kv_heads, documents=None, window=None, softcap=None):
    """Computes causal attention, with as many queries as keys, from elementary operations."""
    q, k, v = heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads)
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    score = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    if softcap:
        score = softcap * torch.tanh(score / softcap)
    length = q.shape[2]
    document = torch.tensor([[i for i, n in enumerate(row) for _ in range(n)] for row in documents or [[length]]])
    at = torch.arange(length)
    sees = (at[:, None] >= at) & (at[:, None] - at < (window or length)) & (document[:, :, None] == document[:, None])
    weight = score.masked_fill(~sees[:, None], -torch.inf).softmax(-1)
    return (weight @ v).transpose(1, 2).flatten(2)


def rotate(x, heads, dims, base, interleaved, documents=None):
    x = heads_of(x, heads)
    at = places_of(documents)[:, None, :, None] if documents else torch.arange(x.shape[2])[:, None]
    angle = at * base ** (-torch.arange(0, dims, 2) / dims)
    turned, rest = x[..., :dims], x[..., dims:]
    if interleaved:  # as in GPT-J, neighbours are the real and the imaginary part
        pairs = torch.view_as_complex(turned.unflatten(-1, (-1, 2)).contiguous())
        turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    else:  # as in LLaMA's rotate_half
        a, b = turned.chunk(2, -1)
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        turned = turned * cos + torch.cat([-b, a], -1) * sin
    return torch.cat([turned, rest], -1).transpose(1, 2).flatten(2)


def make(out, name, function, **shapes):
    inputs = {key: torch.randn(shape, requires_grad=True) for key, shape in shapes.items()}
    y = function(*inputs.values())
    dy = torch.randn(y.shape)
    y.backward(dy)
    for key, value in inputs.items():
        write(out, f"{name}.{key}", value)
        write(out, f"{name}.d{key}", value.grad)
    write(out, f"{name}.y", y)
    write(out, f"{name}.dy", dy)


def make_limited(out, name, samples, length, size, heads, kv_heads, **settings):
    kv = (samples, length, kv_heads * size)
    if "documents" in settings:
        write(out, f"{name}.places", places_of(settings["documents"]))
    make(out, name, lambda q, k, v: attend_limited(q, k, v, heads, kv_heads, **settings),
         q=(samples, length, heads * size), k=kv, v=kv)


def make_attention(out, name, samples, queries, keys, size, heads, kv_heads, **settings):
    kv = (samples, keys, kv_heads * size)
    make(out, name, lambda q, k, v: attend(q, k, v, heads, kv_heads, **settings),
         q=(samples, queries, heads * size), k=kv, v=kv)


def make_rotary(out, name, heads, size, **settings):
    if "documents" in settings:
        write(out, f"{name}.places", places_of(settings["documents"]))
    make(out, name, lambda x: rotate(x, heads, **settings), x=(2, 7, heads * size))


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(21)
    with open(pathlib.Path(__file__).resolve().parent / "attention.txt", "w") as out:
        make_attention(out, "full", 2, 5, 5, 3, 4, 4)
        make_attention(out, "causal", 2, 6, 6, 4, 2, 2, causal=True)
        make_attention(out, "shared", 2, 5, 5, 3, 6, 2, causal=True, scale=0.7)
        make_attention(out, "cross", 1, 3, 8, 5, 2, 1)
        make_attention(out, "continued", 2, 3, 7, 2, 2, 2, causal=True)
        make_attention(out, "blind", 1, 6, 4, 2, 4, 2, causal=True)
        make_rotary(out, "halves", 2, 6, dims=6, base=10000.0, interleaved=False)
        make_rotary(out, "neighbours", 3, 4, dims=4, base=10000.0, interleaved=True)
        make_rotary(out, "partly", 2, 7, dims=4, base=50.0, interleaved=False)
        make_limited(out, "window", 2, 7, 3, 2, 2, window=3)
        make_limited(out, "capped", 1, 5, 4, 2, 1, softcap=0.5)
        make_limited(out, "documents", 2, 9, 3, 4, 2, documents=[[4, 1, 4], [2, 7]])
        make_limited(out, "limited", 2, 9, 2, 2, 1, documents=[[9], [1, 5, 3]], window=4, softcap=2.0)
        make_rotary(out, "places", 2, 4, dims=4, base=100.0, interleaved=False, documents=[[3, 4], [1, 1, 5]])


if __name__ == "__main__":
    main()
