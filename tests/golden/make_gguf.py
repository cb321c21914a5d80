#!/usr/bin/env python3
"""Makes types.gguf, tokens-*.gguf and small.gguf with the Python package gguf (pip install gguf numpy transformers).

Made once, with gguf 0.19.0; the files are checked in, so the tests need neither. types.gguf has a tensor of drawn
blocks for each type that brim reads, and the numbers that gguf.dequantize makes of it (NAME.values). For the types that
brim writes it has the numbers that gguf.quantize made the blocks of (NAME.source). It also has metadata of every type
of value. tokens-llama.gguf and tokens-gpt2.gguf have tokenizers, and texts with the ids that transformers 5.23.0 makes
of them with the same file. small.gguf is a seed for the fuzzer.
"""
import pathlib

import gguf
import numpy
from gguf import GGMLQuantizationType as T
from gguf import GGUFValueType as V

HERE = pathlib.Path(__file__).parent
READ = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K]
WRITTEN = [T.F16, T.BF16, T.Q8_0]
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208]}  # places of the 16-bit numbers in a block


def draw_blocks(draw, kind, blocks):
    """Draws all bits, but with finite scales. The last blocks have the least and the greatest scales of 16 bits."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    data = draw.integers(0, 256, (blocks, size), dtype=numpy.uint8)
    for at in SCALES[kind]:
        scale = draw.normal(0, 0.01, blocks).astype(numpy.float16)
        scale[-1], scale[-2] = numpy.float16(6e-8), numpy.float16(-65504)
        data[:, at:at + 2] = scale.view(numpy.uint8).reshape(-1, 2)
    return data.reshape(1, -1)


def numbers(draw):
    values = draw.normal(0, 0.05, 96).astype(numpy.float32)
    values[:32] = 0
    values[32:36] = [1e-8, -3e-6, 65519, -65504]
    values[64:68] = [0.5, 1.5, 2.5, 127]
    return values.reshape(1, -1)


def types(path):
    draw = numpy.random.default_rng(1)
    w = gguf.GGUFWriter(path, "llama")
    for name, value in [("u8", 200), ("i8", -100), ("u16", 60000), ("i16", -30000), ("u32", 4000000000),
                        ("i32", -2000000000), ("u64", 1 << 40), ("i64", -(1 << 40)), ("f32", 0.1), ("f64", 0.1),
                        ("bool", True)]:
        kind = {"u8": V.UINT8, "i8": V.INT8, "u16": V.UINT16, "i16": V.INT16, "u32": V.UINT32, "i32": V.INT32,
                "u64": V.UINT64, "i64": V.INT64, "f32": V.FLOAT32, "f64": V.FLOAT64, "bool": V.BOOL}[name]
        w.add_key_value(f"test.{name}", value, kind)
    w.add_string("test.text", "ä\n")
    w.add_array("test.texts", ["a", "", "bc"])
    w.add_array("test.numbers", [3, -1, 2])
    for kind in READ:
        source = numbers(draw)
        if kind in (T.F32, *WRITTEN):
            data = source if kind == T.F32 else gguf.quantize(source, kind)
            if kind in WRITTEN:
                w.add_tensor(f"{kind.name}.source", source)
        else:
            data = draw_blocks(draw, kind, 3 if gguf.GGML_QUANT_SIZES[kind][0] == 32 else 2)
        w.add_tensor(kind.name, data, raw_dtype=None if kind == T.F32 else kind)
        w.add_tensor(f"{kind.name}.values", numpy.ascontiguousarray(gguf.dequantize(data, kind)))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


TEXTS = ["ab abc", " a  b", "", "abcab ca", "<s>ab</s> b", "a\nb\u00e9\u4e2d", "  ", "ab<x>ab", "x ab 12 aab"]


def tokenizer(path, answers):
    """Writes a tokenizer: SentencePiece's without merges, which follow from the scores, or a byte-level one."""
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(64)
    if "llama" in path.name:
        words = ["\u2581", "a", "b", "c", "ab", "\u2581a", "abc", "\u2581ab", "ca", "\u2581abc", "bc", "x",
                 "\u2581\u2581"]
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *words, "<x>"]
        w.add_tokenizer_model("llama")
        w.add_token_list(tokens)
        w.add_token_types([2, 3, 3, *[6] * 256, *[1] * len(words), 4])
        scores = [*[0] * 259, -30, -31, -32, -33, -1, -3, -5, -2, -2, -7, -1.5, -34, -4, 0]
        w.add_token_scores([float(score) for score in scores])
        w.add_unk_token_id(0)
        w.add_add_bos_token(True)
    else:
        from transformers.convert_slow_tokenizer import bytes_to_unicode
        tokens = ["<s>", "</s>", "<x>", *bytes_to_unicode().values(), "ab", "\u0120ab", "abc"]
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("qwen2")
        w.add_token_list(tokens)
        w.add_token_types([3, 3, 4, *[1] * (len(tokens) - 3)])
        w.add_token_merges(["a b", "\u0120 ab", "ab c"])
    w.add_bos_token_id(tokens.index("<s>"))
    w.add_eos_token_id(tokens.index("</s>"))
    if answers:
        w.add_array("test.texts", TEXTS)
        w.add_array("test.counts", [len(ids) for ids in answers])
        w.add_array("test.ids", [i for ids in answers for i in ids])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def tokenizers(path):
    from transformers import AutoTokenizer
    tokenizer(path, None)
    own = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer(path, [own(text)["input_ids"] for text in TEXTS])


def small(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(1)
    w.add_embedding_length(32)
    w.add_head_count(2)
    w.add_rope_freq_base(10000)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(["<e>", "a", "b", "ab", "\u0120"])
    w.add_token_types([3, 1, 1, 1, 1])
    w.add_token_merges(["a b"])
    w.add_eos_token_id(0)
    w.add_add_bos_token(False)
    w.add_tensor("token_embd.weight", gguf.quantize(numpy.zeros((5, 32), numpy.float32), T.Q8_0), raw_dtype=T.Q8_0)
    w.add_tensor("output_norm.weight", numpy.ones(32, numpy.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    types(HERE / "types.gguf")
    tokenizers(HERE / "tokens-llama.gguf")
    tokenizers(HERE / "tokens-gpt2.gguf")
    corpus = HERE.parent / "fuzz/corpus/gguf"
    corpus.mkdir(exist_ok=True)
    small(corpus / "small.gguf")
