#!/usr/bin/env python3
"""Makes bpe/: a small vocabulary of byte-level byte-pair encoding, as vocab.json and merges.txt and as tokenizer.json,
and the ids of OpenAI's encoder for some texts.

    python3 tests/golden/make_bpe.py        # needs the module regex (Debian: python3-regex); writes into this folder

The vocabulary is learnt from the lines below. The encoder works like OpenAI's encoder.py (github.com/openai/gpt-2,
src/encoder.py): it repeatedly finds the pair of a word that was learnt first, and merges all its occurrences.
bpe/cases.json is a list of texts with their ids.
"""
import collections
import json
import pathlib
import random
import unicodedata

import regex

MERGES = 400
WORDS = regex.compile(r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""")
LEARNT_FROM = """
The memory of a step is known before the step begins, so nothing can run out of memory in the middle of it.
It's what we've got; you'll see that they're there, I'm sure, and he'd say that it isn't so.
def main(argv):
    for i in range(100):
        print("hello", i, 2024 * i)
Die Größe eines Schrittes ist bekannt, ehe er beginnt. Le pas commence où la mémoire est déjà connue.
Память известна заранее.  Память шага известна.
日本語の文章です。日本語のテキスト。
1234567890 1999 2000 2024 3.14159 -- ... !!! ??? ((( )))
"""


def bytes_to_unicode():
    seen = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    symbols, extra = {b: chr(b) for b in seen}, 0
    for b in range(256):
        if b not in symbols:
            symbols[b] = chr(256 + extra)
            extra += 1
    # encoder.py numbers the printable bytes first
    return {b: symbols[b] for b in [*seen, *(b for b in range(256) if b not in seen)]}


SYMBOLS = bytes_to_unicode()


def symbols_of(word):
    return tuple(SYMBOLS[b] for b in word.encode("utf-8"))


def merged(word, pair):
    """Merges every occurrence of the pair, from the left."""
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def learn(text):
    words = collections.Counter(symbols_of(w) for w in WORDS.findall(text))
    merges = []
    while len(merges) < MERGES:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        grown = collections.Counter()
        for word, count in words.items():
            grown[merged(word, best)] += count
        words = grown
    return merges


def encode(text, ids, ranks):
    out = []
    for found in WORDS.findall(text):
        word = symbols_of(found)
        while len(word) > 1:
            best = min(zip(word, word[1:]), key=lambda p: ranks.get(p, float("inf")))
            if best not in ranks:
                break
            word = merged(word, best)
        out += [ids[symbol] for symbol in word]
    return out


def texts():
    """Returns typical texts, and then texts of any characters of Unicode."""
    yield from ["", "a", " ", "\n", "The memory of a step", " the  the\n\n the   ", "it's we've IT'S don't 's 'll x'd",
                "tabs\tand\r\nlines\r", "  leading", "trailing  ", "日本語のテキスト です",
                "Память шага 2024", "e\u0301 é ﬁ Ⅷ ½ ٣", "🙂🙂 👨\u200d👩\u200d👧",
                "\u00a0\u3000\u2003x\u2028y\u0085z\u180ew\u200bv\ufeffu",
                "\x1c\x1d\x00\x7f", "<|endoftext|>", "print(\"hello\", i)", "a" * 700,
                "aaaaaaaaab" * 30, " " * 40 + "x",
                "Größe" * 20, "...!!!???", "_under_score_", "x=1+2*3"]
    draw = random.Random(5)
    for _ in range(120):
        ranges = [(0x20, 0x7F), (0, 0x250), (0x370, 0x800), (0x900, 0xD7FF), (0xE000, 0x10FFFF)]
        drawn = (chr(draw.randint(*draw.choice(ranges))) for _ in range(draw.randint(1, 60)))
        # leaves out unassigned characters, which may become letters in a later version of Unicode
        yield "".join(c for c in drawn if unicodedata.category(c) != "Cn")
    spaces = [" ", "  ", "\n", "\t", "\u00a0", "\u2009", "\u3000", "\u180e", "word", "7", "-", "'s", "é"]
    for _ in range(120):
        yield "".join(draw.choice(spaces) for _ in range(draw.randint(1, 12)))


def main():
    folder = pathlib.Path(__file__).resolve().parent / "bpe"
    merges = learn(LEARNT_FROM)
    tokens = [*SYMBOLS.values(), *(a + b for a, b in merges), "<|endoftext|>"]
    ids = {token: i for i, token in enumerate(tokens)}
    ranks = {pair: i for i, pair in enumerate(merges)}
    lines = [f"{a} {b}" for a, b in merges]
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]) + "\n", encoding="utf-8")
    special = {"id": ids["<|endoftext|>"], "content": "<|endoftext|>", "special": True}
    words = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "byte_fallback": False,
             "vocab": {token: i for token, i in ids.items() if token != "<|endoftext|>"}, "merges": lines}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": [special], "normalizer": None, "pre_tokenizer": words, "model": model}))
    cases = [{"text": text, "ids": encode(text, ids, ranks)} for text in texts()]
    (folder / "cases.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
