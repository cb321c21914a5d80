"""Tests brim generate --chat: conversations by a model's chat template."""

import json
import os
import pathlib
import shutil
import subprocess

from support import BINARY, DONE, HANG_SECONDS, LOAD, USAGE, Case, Result, main, plain

TOKENIZER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizers" / "llama3.json"
BEGIN, END = "<|begin|>", "<|end_of_text|>"
# An answer ends at its line's end token; the tokenizer has no other special tokens.
TEMPLATE = ("{% for m in messages %}{{ m.role + ': ' + m.content + '<|end_of_text|>' }}{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}")
MODEL = ["model=decoder", "model.layers=2", "model.heads=2", "model.width=32", "model.mlp_width=64",
         "model.context=96",
         "dataset=text", "dataset.path=a.txt", "dataset.tokens=hf", "dataset.tokenizer=tok", "dataset.context=48",
         "training.batch_size=8", "training.steps=120", "optimizer.lr=1e-2", "schedule=constant", "backend.threads=1",
         "memory.timing=false"]


class Chat(Case):
    """The tests use a run that has learnt one conversation by heart."""

    def setUp(self):
        super().setUp()
        (self.folder / "tok").mkdir()
        shutil.copy(TOKENIZER, self.folder / "tok" / "tokenizer.json")
        self.config(TEMPLATE)
        turn = f"user: hello{END}assistant: good day{END}user: bye{END}assistant: farewell{END}"
        (self.folder / "a.txt").write_text(turn * 60)

    def config(self, template, **more):
        config = {"eos_token": END, "bos_token": BEGIN, **({"chat_template": template} if template else {}), **more}
        (self.folder / "tok" / "tokenizer_config.json").write_text(json.dumps(config))

    def train_run(self):
        self.train("run", *MODEL)

    def chat(self, *words, text="", status=DONE):
        argv = [BINARY, "generate", "run", "--chat", "--temperature", "0", *words]
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "BRIM_CLAIMS_DIR": str(self.folder / "claims"),
                       "XDG_CACHE_HOME": str(self.folder / "cache")}
        done = subprocess.run(argv, cwd=self.folder, env=environment, input=text, text=True, capture_output=True,
                              timeout=HANG_SECONDS)
        result = Result(argv[1:], done.returncode, done.stdout, done.stderr)
        self.assertEqual(result.status, status, result)
        return result


class Turns(Chat):
    def setUp(self):
        super().setUp()
        self.train_run()

    def test_lines_are_answered_with_the_history(self):
        self.assertEqual(self.chat(text="hello\n\nbye\n").out, "good day\nfarewell\n")
        self.assertEqual(self.chat(text="hello\nbye").out, "good day\nfarewell\n")
        self.assertEqual(self.chat(text="").out, "")
        self.assertEqual(self.chat("--prompt", "hello").out, "good day\n")

    @plain
    def test_json_has_the_conversation(self):
        out = self.chat("--json", "--system", "be brief", text="hello\nbye\n").json
        self.assertEqual([m["role"] for m in out["messages"]], ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual(out["messages"][0]["content"], "be brief")
        self.assertEqual(self.chat("--json", "--prompt", "hello").json["messages"],
                         [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}])

    def test_old_turns_are_left_out(self):
        result = self.chat("--tokens", "8", text="hello\nbye\n" * 8)
        self.assertEqual(len(result.out.splitlines()), 16)
        self.assertRegex(result.err, r"left out 1 of the oldest turns: the model sees \d+ tokens, of which 8")
        long = self.chat(text="word " * 200 + "\n", status=USAGE)
        self.assert_error(long, "the conversation has ", " tokens, but the model sees 48", "--context sets how many")

    def test_the_template_is_chosen(self):
        for name, text in (("chat_template.jinja", TEMPLATE),
                           ("chat_template.json", json.dumps({"chat_template": TEMPLATE}))):
            self.config("{{ raise_exception('not this one') }}")
            (self.folder / "tok" / name).write_text(text)
            self.assertEqual(self.chat("--prompt", "hello").out, "good day\n")
            (self.folder / "tok" / name).unlink()
        self.config([{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}])
        self.assertEqual(self.chat("--prompt", "hello").out, "good day\n")
        (self.folder / "mine.jinja").write_text(TEMPLATE)
        self.config("{{ raise_exception('not this one') }}")
        self.assertEqual(self.chat("dataset.template=mine.jinja", "--prompt", "hello").out, "good day\n")
        for name in ("chatml", "llama3", "alpaca"):
            self.chat(f"dataset.template={name}", "--prompt", "hi", "--tokens", "2", "--context", "96")


class Refused(Chat):
    def test_mistakes(self):
        self.train_run()
        self.config(None)
        self.assert_error(self.chat(status=USAGE), "has no chat template", "chatml, llama3, alpaca")
        self.assert_error(self.chat("dataset.template=nowhere", status=LOAD),
                          "dataset.template 'nowhere': no such file", "chatml")
        self.config("line one\n{{ messages | nonsense }}")
        self.assert_error(self.chat(status=LOAD), "line 2, column 15: the filter 'nonsense' is not supported")
        self.config("{{ raise_exception('no ' ~ messages[0].role) }}")
        self.assert_error(self.chat(status=LOAD), "line 1, column 4: the template refuses this: no user")
        self.assert_error(self.brim("generate", "run", "--system", "x", status=USAGE), "--system is for --chat")
        self.assert_error(self.chat("--num-samples", "2", status=USAGE), "--chat and --num-samples")

    @plain
    def test_bytes_are_no_conversation(self):
        words = [w for w in MODEL if not w.startswith(("dataset.tokens", "dataset.tokenizer", "training.steps"))]
        self.train("run", *words, "training.steps=1")
        self.assert_error(self.chat(status=USAGE), "conversations need the tokenizer of a model: dataset.tokens=hf")


if __name__ == "__main__":
    main()
