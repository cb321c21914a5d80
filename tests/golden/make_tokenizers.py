#!/usr/bin/env python3
"""Makes tokenizers/: small tokenizers of every kind that brim reads, and the ids and texts that the package tokenizers
gives for some texts.

    python3 tests/golden/make_tokenizers.py        # needs the package tokenizers 0.23.3; writes into this folder

Each NAME.json is a tokenizer.json; cases.json has, for each NAME, a list of [text, ids, ids with the template, text of
the ids without special tokens]. The vocabularies are learnt from the lines of make_bpe.py.
"""
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).resolve().parent
LINES = (FOLDER / "make_bpe.py").read_text().split('LEARNT_FROM = """\n')[1].split('"""')[0].split("\n")
LOW = "\u2581"
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
SPECIAL = [AddedToken(text, normalized=False, special=True) for text in ("<s>", "</s>")]


def learn_bytes(**how):
    t = Tokenizer(models.BPE(**how))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=400, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.decoder = decoders.ByteLevel()
    return t


def learn_characters(special=(), alphabet=60):
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=330, show_progress=False, limit_alphabet=alphabet,
                                                     special_tokens=["<unk>", "<s>", "</s>", *special]))
    return t


def changed(t, **model):
    """Returns the tokenizer with other options of its model, for which it has no setter."""
    tree = json.loads(t.to_str())
    tree["model"].update(model)
    return Tokenizer.from_str(json.dumps(tree))


def llama3():
    t = changed(learn_bytes(), ignore_merges=True)
    t.add_special_tokens([AddedToken(text, normalized=False) for text in ("<|begin|>", "<|end_of_text|>")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A",
                                      special_tokens=[("<|begin|>", t.token_to_id("<|begin|>"))])])
    return t


def qwen():
    t = learn_bytes()
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    t.add_tokens([AddedToken("<think>", normalized=False), AddedToken("the", single_word=True),
                  AddedToken("[mask]", lstrip=True, rstrip=True), AddedToken("Größe", normalized=True)])
    return t


def llama2():
    t = changed(learn_characters([f"<0x{b:02X}>" for b in range(256)]), fuse_unk=True, byte_fallback=True)
    t.pre_tokenizer = None
    t.normalizer = normalizers.Sequence([normalizers.Prepend(LOW), normalizers.Replace(" ", LOW)])
    t.decoder = decoders.Sequence([decoders.Replace(LOW, " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken("<unk>", normalized=False), *SPECIAL])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def unknown(fuse):
    t = changed(learn_characters(alphabet=40), fuse_unk=fuse)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    return t


def words():
    t = learn_characters(alphabet=50)
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"),
                                               pre_tokenizers.Digits()])
    return t


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=180, unk_token="<unk>", show_progress=False,
                                                         special_tokens=["<unk>", "<s>", "</s>"]))
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(SPECIAL)
    return t


def unigram_bytes():
    t = unigram()
    tree = json.loads(t.to_str())
    tree["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
    tree["model"]["byte_fallback"] = True
    tree["normalizer"] = {"type": "NFD"}
    tree["pre_tokenizer"] = None
    tree["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "ByteFallback"}, {"type": "Metaspace", "replacement": LOW, "prepend_scheme": "never", "split": True}]}
    return Tokenizer.from_str(json.dumps(tree))


def behavior(name, invert):
    t = learn_characters()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\s+|[aeiou]|\d"), name, invert),
                                               pre_tokenizers.Split("th", name, invert)])
    return t


def texts():
    draw = random.Random(7)
    out = ["", " ", "  a", "a  ", "\n\n a\n", "it's IT'S we'll 12345 \t x", "<s>hi</s> <|begin|> the[mask] there the.",
           "Größe Gro\u0308ße ﬁ ² ①Ⅷ \u0130I \u1e9e", "\u00a0\u2003\u3000x\u180ey\u200dz\u0085",
           "🙂👩\u200d👩\u200d👧 \u0e01\u0e33",
           "a\u0000b", LOW + "a" + LOW * 3 + "b", "<0x41><0xFF>", "the  the,the [mask]  x", "\ufffd\U0010ffff"]
    out += [line for line in LINES if line]
    pool = [*"  \n\t.,'-aeiouth0123456789éß中文字\u0301\u2581", "the", " memory", "<s>", "[mask]", "<think>",
            "🙂", "Größe"]
    return out + ["".join(draw.choice(pool) for _ in range(draw.randrange(1, 40))) for _ in range(25)]


def cases(t, step):
    for text in texts()[::step]:
        ids = t.encode(text, add_special_tokens=False).ids
        yield [text, ids, t.encode(text).ids, t.decode(ids)]


def main():
    made = {"llama3": llama3(), "qwen": qwen(), "llama2": llama2(), "unknown": unknown(False), "fused": unknown(True),
            "words": words(), "unigram": unigram(), "unigram_bytes": unigram_bytes()}
    for name in BEHAVIORS:
        made |= {name: behavior(name, False), f"{name}_inverted": behavior(name, True)}
    folder = FOLDER / "tokenizers"
    folder.mkdir(exist_ok=True)
    for name, t in made.items():
        tree = json.loads(t.to_str())
        if name in BEHAVIORS:
            # The form of versions before 0.20.
            tree["model"]["merges"] = [" ".join(pair) for pair in tree["model"]["merges"]]
        text = json.dumps(tree, ensure_ascii=name == "qwen", separators=(",", ":"))
        (folder / f"{name}.json").write_text(text + "\n")
    found = {name: list(cases(t, 3 if name.removesuffix("_inverted") in BEHAVIORS else 1))
             for name, t in made.items()}
    (folder / "cases.json").write_text("{" + ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(case) for case in list_) + "]"
        for name, list_ in found.items()) + "}\n")


if __name__ == "__main__":
    main()
