#!/usr/bin/env python3
"""Makes the folders of decoder/: small language models as Hugging Face's transformers writes them, and its answers.

    python3 tests/golden/make_decoder.py        # needs transformers 5 and torch; writes into this folder

Folders that exist stay as they are.

Each folder has config.json and model.safetensors, as save_pretrained() writes them, and answers.safetensors: `tokens`
[samples, context + 1], and in double precision `loss`, the mean over all labels, and its gradient for each parameter.
All settings are drawn. transformers computes norms, softmax and the angles of the rotary embedding in single precision
whatever the type of the model; here it computes them in double precision.
"""
import json
import pathlib
import random

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
    "gemma": transformers.GemmaConfig,
    "gemma2": transformers.Gemma2Config,
    "gemma3_text": transformers.Gemma3TextConfig,
    "phi3": transformers.Phi3Config,
    "olmo2": transformers.Olmo2Config,
    "granite": transformers.GraniteConfig,
}
ROPES = ["default", "linear", "llama3", "yarn", "longrope", "dynamic"]
ROPES_OF = {"gemma3_text": ["default", "linear"], "phi3": ["default", "longrope"]}  # other families have all types
CASES = [("llama", rope) for rope in ROPES] + [("mistral", "llama3"), ("qwen2", "llama3"), ("qwen3", "default"),
         ("smollm3", "llama3"), ("mistral", "linear"), ("gemma", "default"), ("gemma2", "default"),
         ("gemma3_text", "default"), ("gemma3_text", "linear"), ("phi3", "default"), ("phi3", "longrope"),
         ("olmo2", "default"), ("granite", "yarn")]
SPECIAL = {"window": "default", "mscale": "yarn", "gelu": "default"}  # cases and the type of their frequencies
CASES += [("qwen2", "window"), ("qwen3", "window"), ("llama", "mscale"), ("llama", "gelu")]
VOCABULARY, CONTEXT, SAMPLES = 23, 12, 3


class DoubleTorch:
    """The module torch for modeling_rope_utils, with double precision in place of single."""
    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def norm(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def norm_of_gemma(self, x):
    return (1 + self.weight) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def frequencies(config, length, layer_type):
    """Returns the frequency of each pair at position 1, and the amplitude. length: tokens of a sample."""
    rope = config.rope_parameters[layer_type] if layer_type in config.rope_parameters else config.rope_parameters
    if rope["rope_type"] == "default":
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        size = int(size * rope.get("partial_rotary_factor", 1))
        return rope["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size), 1.0
    of_layer = {} if rope is config.rope_parameters else {"layer_type": layer_type}
    single, torch.Tensor.float = torch.Tensor.float, torch.Tensor.double
    try:
        return modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=length, **of_layer)
    finally:
        torch.Tensor.float = single


def rotary(config):
    def forward(x, position_ids, layer_type=None):
        frequency, amplitude = frequencies(config, x.shape[1], layer_type)
        angle = (position_ids[..., None].double() * frequency).repeat(1, 1, 2)
        return angle.cos() * amplitude, angle.sin() * amplitude

    return forward


def in_double(model):
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            type(module).forward = norm_of_gemma if type(module).__name__.startswith("Gemma") else norm
        elif type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = rotary(model.config)
    return model.double()


def draw_rope(draw, kind, pairs):
    rope = {"rope_type": kind, "rope_theta": float(draw.choice([50, 10000, 500000]))}
    if kind == "longrope":
        rope.update({name: [round(draw.uniform(1, 4), 2) for _ in range(pairs)]
                     for name in ("short_factor", "long_factor")})
    if kind not in ("default", "longrope") or kind == "longrope" and draw.random() < 0.5:
        rope["factor"] = draw.choice([2.0, 4.0, 8.0])
    if kind in ("llama3", "yarn", "longrope"):
        rope["original_max_position_embeddings"] = draw.choice([4, 8, 16])
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=draw.choice([2.0, 4.0]))
    if kind == "yarn" and draw.random() < 0.5:
        rope.update(beta_fast=draw.choice([4.0, 16.0]), beta_slow=0.5)
    return rope


def draw_rope_of(draw, family, rope, size):
    if family == "gemma3_text":
        return {"full_attention": draw_rope(draw, rope, 0), "sliding_attention": draw_rope(draw, "default", 0)}
    share = draw.choice([0.5, 1.0]) if family == "phi3" else 1.0
    parameters = draw_rope(draw, rope, int(size * share) // 2)
    return {**parameters, "partial_rotary_factor": share} if family == "phi3" else parameters


def draw_config(draw, family, case):
    rope = SPECIAL.get(case, case)
    heads, size = draw.choice([2, 4]), 4
    settings = dict(num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=draw.choice([1, 2]),
                    hidden_size=heads * size, intermediate_size=draw.randint(7, 12),
                    vocab_size=VOCABULARY + draw.randint(0, 4),
                    max_position_embeddings=8 if rope == "dynamic" else 32, tie_word_embeddings=draw.random() < 0.5,
                    rms_norm_eps=draw.choice([1e-5, 1e-6]), bos_token_id=None, eos_token_id=None, pad_token_id=None)
    if family in ("llama", "mistral", "qwen3") or family.startswith("gemma"):
        size = settings["head_dim"] = draw.choice([6, 8])
    settings["rope_parameters"] = draw_rope_of(draw, family, rope, size)
    if family in ("llama", "qwen3", "smollm3", "olmo2", "granite") or family.startswith("gemma"):
        settings["attention_bias"] = draw.random() < 0.5
    if family in ("llama", "smollm3", "granite"):
        settings["mlp_bias"] = draw.random() < 0.5
    if family == "mistral":
        settings["sliding_window"] = draw.choice([None, 5])
    if family == "smollm3":
        settings["no_rope_layers"] = draw.sample([0, 1], 2)
    if family in ("gemma2", "gemma3_text"):
        settings.update(sliding_window=draw.choice([3, 5]), query_pre_attn_scalar=draw.choice([4, 6, 8]),
                        layer_types=draw.sample(["sliding_attention", "full_attention"], 2))
    if family == "gemma2":
        settings.update(attn_logit_softcapping=draw.choice([2.0, 4.0]), final_logit_softcapping=draw.choice([1.5, 5.0]))
    if family == "phi3":
        original = settings["rope_parameters"].pop("original_max_position_embeddings", 8) // 2
        settings.update(sliding_window=draw.choice([None, 5]), original_max_position_embeddings=original)
    if family == "granite":
        settings.update(embedding_multiplier=12.0, logits_scaling=draw.choice([2.0, 8.0]), residual_multiplier=0.22,
                        attention_multiplier=draw.choice([0.25, 0.5]))
    if case == "window":  # the last blocks have a window
        settings.update(use_sliding_window=True, sliding_window=draw.choice([3, 5]),
                        max_window_layers=draw.choice([0, 1]))
    if case == "mscale":
        settings["rope_parameters"].update(mscale=draw.choice([0.5, 1.5]), mscale_all_dim=draw.choice([0.7, 1.0]))
    if case == "gelu":
        settings["hidden_act"] = "gelu_pytorch_tanh"
    return FAMILIES[family](**settings)


def make(folder, config, seed):
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager" if config.model_type == "gemma2" else "sdpa")
    with torch.no_grad():
        for parameter in model.parameters():
            is_norm = parameter.dim() == 1 and not config.model_type.startswith("gemma")
            parameter.copy_(0.3 * torch.randn_like(parameter) + (1 if is_norm else 0))
    model.save_pretrained(folder)
    tokens = torch.randint(VOCABULARY, (SAMPLES, CONTEXT + 1))
    in_double(model)
    softmax = torch.nn.functional.softmax
    torch.nn.functional.softmax = lambda x, dim, dtype=None: softmax(x, dim)  # for Gemma 2's attention
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    torch.nn.functional.softmax = softmax
    answers = {"tokens": tokens, "loss": loss.detach().reshape(1)}
    answers |= {name: parameter.grad for name, parameter in model.named_parameters()}
    save_file(answers, folder / "answers.safetensors")
    (folder / "generation_config.json").unlink(missing_ok=True)


def main():
    modeling_rope_utils.torch = DoubleTorch()
    root = pathlib.Path(__file__).resolve().parent / "decoder"
    for family, case in CASES:
        folder = root / f"{family}_{case}"
        if not folder.exists():
            draw = random.Random(folder.name)
            config = draw_config(draw, family, case)
            make(folder, config, draw.randrange(1 << 30))
            print(folder.name, json.loads((folder / "config.json").read_text())["rope_parameters"])


if __name__ == "__main__":
    main()
