"""Small language models as Hugging Face has them: a folder with config.json, weights, tokenizer and chat template."""

import json
import pathlib
import random
import shutil

import tensors

TOKENIZER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizers" / "llama3.json"
BEGIN, END = "<|begin|>", "<|end_of_text|>"
TEMPLATE = ("{% for m in messages %}{{ '<|begin|>' + m['role'] + '\\n' + m['content'] + '<|end_of_text|>\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|begin|>assistant\\n' }}{% endif %}")
WIDTH, HEADS, KV_HEADS, HEAD, MLP, LAYERS = 24, 4, 2, 6, 32, 2


def rows_of(tokenizer):
    """Returns the number of rows for a tokenizer.json: one more than its greatest id."""
    found = json.loads(tokenizer.read_text())
    return 1 + max([*found["model"]["vocab"].values(), *(token["id"] for token in found["added_tokens"])])


def weights(rows, seed=1):
    draw = random.Random(seed)

    def drawn(*shape):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        return "F32", list(shape), [draw.gauss(0, 0.2) for _ in range(count)]

    def ones(count):
        return "F32", [count], [1.0] * count

    result = {"model.embed_tokens.weight": drawn(rows, WIDTH), "model.norm.weight": ones(WIDTH)}
    for i in range(LAYERS):
        shapes = {"self_attn.q_proj": (HEADS * HEAD, WIDTH), "self_attn.k_proj": (KV_HEADS * HEAD, WIDTH),
                  "self_attn.v_proj": (KV_HEADS * HEAD, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * HEAD),
                  "mlp.gate_proj": (MLP, WIDTH), "mlp.up_proj": (MLP, WIDTH), "mlp.down_proj": (WIDTH, MLP)}
        result |= {f"model.layers.{i}.{name}.weight": drawn(*shape) for name, shape in shapes.items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            result[f"model.layers.{i}.{name}.weight"] = ones(WIDTH)
    return result


def write(folder, tokenizer=TOKENIZER, seed=1, **config):
    """Writes the folder; `config`: other values of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows_of(tokenizer)
    values = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": rows, "hidden_size": WIDTH,
              "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "max_position_embeddings": 256, "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, **config}
    (folder / "config.json").write_text(json.dumps(values, indent=2))
    tensors.write(folder / "model.safetensors", weights(rows, seed), {"format": "pt"})
    shutil.copy(tokenizer, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"eos_token": END, "bos_token": BEGIN, "chat_template": TEMPLATE}, indent=2))
