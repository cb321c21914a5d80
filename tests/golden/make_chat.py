"""Makes tests/golden/chat/cases.json: tokens of conversations and which of them are an answer's, by transformers.

    python3 tests/golden/make_chat.py            # needs transformers and jinja2
"""

import json
import pathlib
import random

from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
# The tokens of tests/golden/tokenizers that begin and end a turn.
TOKENIZERS = {"llama3": ("<|begin|>", "<|end_of_text|>"), "qwen": ("<think>", "[mask]"), "llama2": ("<s>", "</s>"),
              "unigram": ("<s>", "</s>")}
TEMPLATES = {
    "lines": "{% for m in messages %}{{ bos_token + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
             "{% generation %}{{ m['content'] + eos_token }}{% endgeneration %}{% else %}"
             "{{ m['content'] + eos_token }}{% endif %}{{ '\n' }}{% endfor %}",
    "joined": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}{{ ' ' }}{% generation %}"
              "{{ m['content'] }}{{ eos_token }}{% endgeneration %}{% else %}"
              "{{ '[INST] ' + m['content'] + ' [/INST]' }}{% endif %}{% endfor %}",
    "parts": "{% for m in messages %}{% if m['role'] == 'assistant' %}A:{% generation %}{{ m['content'] + eos_token }}"
             "{% endgeneration %}{{ '\n' }}{% else %}{{ m['role'] }}: {{ m['content'] | trim }}\n\n"
             "{% endif %}{% endfor %}",
}
WORDS = ["the", "memory", "of", "a", "step", "is", "12", "don't", "x=1;", "Ünï", "no.", "\n", " ", "naïve", "(yes)"]


def text(draw):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 8))).strip() or "a"


def main():
    draw = random.Random(29)
    cases = []
    for name, (begin, end) in TOKENIZERS.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(HERE / "tokenizers" / f"{name}.json"), bos_token=begin,
                                            eos_token=end)
        for template, source in TEMPLATES.items():
            for turns in (1, 2):
                messages = []
                for _ in range(turns):
                    messages += [{"role": "user", "content": text(draw)}, {"role": "assistant", "content": text(draw)}]
                out = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=True, return_dict=True,
                                                    return_assistant_tokens_mask=True)
                cases.append({"tokenizer": name, "template": template, "messages": messages,
                              "ids": out["input_ids"], "mask": out["assistant_masks"]})
    (HERE / "chat" / "cases.json").write_text(json.dumps(
        {"tokenizers": TOKENIZERS, "templates": TEMPLATES, "cases": cases}, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
