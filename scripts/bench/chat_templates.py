#!/usr/bin/env python3
"""Renders the chat templates of the Python package trl with brim and with Jinja2, and compares the bytes and the spans
of {% generation %} blocks.

    python3 -m venv ENV; ENV/bin/pip install jinja2 trl==1.16.0 --no-deps markupsafe
    ENV/bin/python scripts/bench/chat_templates.py [--prefix build/release] [--conversations 20] [--seed 1] [FILE ...]

The build needs BRIM_TESTS=ON and the target brim_render. FILE: templates, or folders of them, instead of trl's. For
each template it draws conversations: with and without a system message, several turns, tools, calls of tools and their
answers, thoughts, characters beyond ASCII, contents as text and as lists of parts, and images, which templates without
them refuse. A template counts as the same if both refuse a conversation, or both give the same bytes."""
import argparse
import importlib.util
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "text"))
import templates  # noqa: E402

TEXTS = ["Hello", "Wie heißt du?", "naïve café", "  spaces around \n", "日本語のテスト",
         "a < b && c > \"d\"", "😀 ok", "",
         "{{ not code }}",
         "line one\nline two\n", "it's", "x" * 300, "<|im_end|>", "\u00a0nbsp\u2028", "100 % of 5",
         "\\n is not a newline"]
THOUGHTS = ["", "I think.\nThen more.", "考え", "\n\nblank lines\n\n"]


def text(draw):
    return draw.choice(TEXTS) + (draw.choice(TEXTS) if draw.random() < 0.3 else "")


def schema(draw, depth=0):
    kinds = ["string", "integer", "number", "boolean", "array", "object"]
    kind = draw.choice(kinds if depth < 2 else kinds[:2])
    out = {"type": kind}
    if draw.random() < 0.7:
        out["description"] = text(draw)
    if kind == "string" and draw.random() < 0.4:
        out["enum"] = ["a", "b", "c d"]
    if draw.random() < 0.2:
        out["nullable"] = True
    if draw.random() < 0.2:
        out["default"] = draw.choice(["a", 3, 2.5, None, True])
    if kind == "array":
        out["items"] = schema(draw, depth + 1)
    if kind == "object":
        out["properties"] = {name: schema(draw, depth + 1) for name in draw.sample(["x", "Y", "zed", "été"], 2)}
        out["required"] = ["x"]
    return out


def tool(draw, number):
    function = {"name": f"do_{number}" if draw.random() < 0.7 else f"space.do_{number}", "description": text(draw),
                "parameters": {"type": "object", "properties": {n: schema(draw) for n in draw.sample("abcdef", 3)},
                               "required": ["a"] if draw.random() < 0.5 else []}}
    if draw.random() < 0.2:
        function["response"] = {"type": "object", "description": "an answer"}
    return {"type": "function", "function": function}


def value(draw, depth=0):
    kinds = [lambda: text(draw), lambda: draw.randint(-5, 10**6), lambda: draw.choice([0.5, 1e20, -2.0, 3.25e-7]),
             lambda: draw.choice([True, False, None])]
    if depth < 2:
        kinds += [lambda: [value(draw, depth + 1) for _ in range(draw.randint(0, 3))],
                  lambda: {k: value(draw, depth + 1) for k in draw.sample(["k", "Key", "ü", "z"], 2)}]
    return draw.choice(kinds)()


def call(draw, tools):
    arguments = {k: value(draw) for k in draw.sample("abcdef", draw.randint(0, 3))}
    function = {"name": draw.choice(tools)["function"]["name"], "arguments": arguments}
    out = {"type": "function", "function": function} if draw.random() < 0.8 else function
    if draw.random() < 0.5:
        out["id"] = f"call_{draw.randint(0, 99)}"
    return out


def content(draw, parts, images):
    if images and draw.random() < 0.5:
        return [{"type": "image", "image": "a.png"}, {"type": "text", "text": text(draw)}]
    return [{"type": "text", "text": text(draw)}] if parts else text(draw)


def conversation(draw):
    """Returns the variables of a drawn conversation."""
    parts, images = draw.random() < 0.25, draw.random() < 0.1
    tools = [tool(draw, i) for i in range(draw.randint(1, 3))] if draw.random() < 0.4 else None
    messages = []
    if draw.random() < 0.5:
        messages.append({"role": draw.choice(["system", "system", "developer"]),
                         "content": content(draw, parts, False)})
    for _ in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": content(draw, parts, images)})
        if tools and draw.random() < 0.6:
            message = {"role": "assistant", "content": draw.choice(["", text(draw), None]),
                       "tool_calls": [call(draw, tools) for _ in range(draw.randint(1, 2))]}
            messages.append(message)
            for made in message["tool_calls"]:
                answer = {"role": "tool", "content": draw.choice([text(draw), "{\"a\": 1}"])}
                if draw.random() < 0.5:
                    answer["name"] = made.get("function", made)["name"]
                if "id" in made:
                    answer["tool_call_id"] = made["id"]
                messages.append(answer)
        answer = {"role": "assistant", "content": content(draw, parts, False)}
        thought = draw.random()
        if thought < 0.2 and not parts:
            answer["content"] = "<think>" + draw.choice(THOUGHTS) + "</think>" + answer["content"]
        elif thought < 0.4:
            answer[draw.choice(["reasoning_content", "thinking", "reasoning"])] = draw.choice(THOUGHTS)
        messages.append(answer)
    if draw.random() < 0.4:
        messages.pop()
    out = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": draw.random() < 0.5,
           "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    if draw.random() < 0.3:
        out["enable_thinking"] = draw.random() < 0.5
    if draw.random() < 0.2:
        out["reasoning_effort"] = draw.choice(["low", "high"])
    if draw.random() < 0.1:
        out["builtin_tools"] = draw.choice([["browser"], ["python", "code_interpreter", "browser"]])
    return out


def trl_templates():
    found = importlib.util.find_spec("trl")
    if not found:
        sys.exit("chat_templates: the package trl is not installed; name files, or install it: "
                 "pip install trl==1.16.0 --no-deps")
    return [pathlib.Path(found.origin).parent / "chat_templates"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", default="build/release")
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    files = []
    for path in options.files or trl_templates():
        files += sorted(path.glob("*.jinja")) if path.is_dir() else [path]
    brim = templates.Brim(pathlib.Path(options.prefix) / "tests" / "brim_render")
    judge = templates.Judge()
    failed = total = refused = spans = 0
    for file in files:
        source = file.read_text(encoding="utf-8")
        rendered = 0
        for number in range(options.conversations):
            context = conversation(random.Random(f"{options.seed} {file.name} {number}"))
            want, got = judge.render(source, context), brim.render(source, context)
            total += 1
            refused += "error" in want
            spans += len(want.get("spans", []))
            rendered += "error" not in want
            if not templates.same(want, got):
                failed += 1
                print(f"{file.name}, conversation {number}: {templates.difference(want, got)}")
        if rendered == 0:
            print(f"{file.name}: refuses all conversations")
    print(f"{len(files)} templates, {total} conversations: {total - refused} rendered, {refused} refused by Jinja2, "
          f"{spans} spans; {failed} differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
