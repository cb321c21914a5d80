#!/usr/bin/env python3
"""Makes the folders of decoder/: small language models as Hugging Face's transformers writes them, and its answers.

    python3 tests/golden/make_decoder.py        # needs transformers 5 and torch; writes into this folder

Each folder has config.json and model.safetensors, as save_pretrained() writes them, and answers.safetensors: `tokens`
[samples, context + 1], and in double precision `loss`, the mean over all labels, and its gradient for each parameter.
All settings are drawn. transformers computes norms, softmax and the angles of the rotary embedding in single precision
whatever the type of the model; here it computes them in double precision.
"""
import json
import pathlib
import random
import shutil

import torch
import transformers
from safetensors.torch import save_file
from transformers import modeling_rope_utils

FAMILIES = {
    "llama": transformers.LlamaConfig,
    "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
    "smollm3": transformers.SmolLM3Config,
}
ROPES = ["default", "linear", "llama3", "yarn"]
VOCABULARY, CONTEXT, SAMPLES = 23, 12, 3


class DoubleTorch:
    """The module torch for modeling_rope_utils, with double precision for single."""
    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def norm(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def rotary(config):
    rope = config.rope_parameters
    if rope["rope_type"] == "default":
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        frequency, amplitude = rope["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size), 1.0
    else:
        frequency, amplitude = modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")

    def forward(x, position_ids, layer_type=None):
        angle = (position_ids[..., None].double() * frequency).repeat(1, 1, 2)
        return angle.cos() * amplitude, angle.sin() * amplitude

    return forward


def in_double(model):
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            type(module).forward = norm
        elif type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = rotary(model.config)
    return model.double()


def draw_rope(draw, kind):
    rope = {"rope_type": kind, "rope_theta": float(draw.choice([50, 10000, 500000]))}
    if kind != "default":
        rope["factor"] = draw.choice([2.0, 4.0, 8.0])
    if kind in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = draw.choice([4, 8, 16])
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=draw.choice([2.0, 4.0]))
    if kind == "yarn" and draw.random() < 0.5:
        rope.update(beta_fast=draw.choice([4.0, 16.0]), beta_slow=0.5)
    return rope


def draw_config(draw, family, rope):
    heads = draw.choice([2, 4])
    settings = dict(num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=draw.choice([1, 2, heads]),
                    hidden_size=heads * draw.choice([4, 6]), intermediate_size=draw.randint(10, 20),
                    vocab_size=VOCABULARY + draw.randint(0, 4), max_position_embeddings=32,
                    tie_word_embeddings=draw.random() < 0.5, rope_parameters=draw_rope(draw, rope),
                    rms_norm_eps=draw.choice([1e-5, 1e-6]), bos_token_id=None, eos_token_id=None, pad_token_id=None)
    if family in ("llama", "mistral", "qwen3"):
        settings["head_dim"] = draw.choice([6, 8])
    if family in ("llama", "qwen3", "smollm3"):
        settings["attention_bias"] = draw.random() < 0.5
    if family in ("llama", "smollm3"):
        settings["mlp_bias"] = draw.random() < 0.5
    if family == "mistral":
        settings["sliding_window"] = draw.choice([None, 16])
    if family == "smollm3":
        settings["no_rope_layers"] = draw.sample([0, 1], 2)
    return FAMILIES[family](**settings)


def make(folder, config, seed):
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter) + (1 if parameter.dim() == 1 else 0))
    model.save_pretrained(folder)
    tokens = torch.randint(VOCABULARY, (SAMPLES, CONTEXT + 1))
    in_double(model)
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    answers = {"tokens": tokens, "loss": loss.detach().reshape(1)}
    answers |= {name: parameter.grad for name, parameter in model.named_parameters()}
    save_file(answers, folder / "answers.safetensors")
    (folder / "generation_config.json").unlink(missing_ok=True)


def main():
    modeling_rope_utils.torch = DoubleTorch()
    root = pathlib.Path(__file__).resolve().parent / "decoder"
    shutil.rmtree(root, ignore_errors=True)
    draw = random.Random(29)
    cases = [(family, draw.choice(ROPES)) for family in FAMILIES] + [("llama", rope) for rope in ROPES]
    for family, rope in dict.fromkeys(cases):
        folder = root / f"{family}_{rope}"
        make(folder, draw_config(draw, family, rope), draw.randrange(1 << 30))
        print(folder.name, json.loads((folder / "config.json").read_text())["rope_parameters"])


if __name__ == "__main__":
    main()
