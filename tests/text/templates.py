"""Chat templates rendered by brim and by Jinja2, for tests and scripts/bench/chat_templates.py."""
import contextlib
import datetime
import json
import subprocess

import jinja2
import jinja2.ext
import jinja2.sandbox

CLOCK = 1767225600  # the time of strftime_now, in seconds since 1970


class Generation(jinja2.ext.Extension):
    """The tag {% generation %}, which in transformers marks the text to learn from. This class notes the characters
    of each block in the output."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.extend(generation=self)
        self.blocks, self.spans = [], []

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("note"), [], [], body).set_lineno(line)

    def note(self, caller):
        text = caller()
        begin = len("".join(self.blocks))
        self.spans.append((begin, begin + len(text)))
        return text


class Judge:
    """Jinja2 with the settings of transformers."""

    def __init__(self):
        def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
            return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

        def raise_exception(message):
            raise jinja2.exceptions.TemplateError(message)

        def strftime_now(form):
            return datetime.datetime.fromtimestamp(CLOCK).strftime(form)

        self.environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
        self.environment.filters["tojson"] = tojson
        self.environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)

    def render(self, template, context):
        noted = self.environment.generation
        noted.blocks, noted.spans = [], []
        try:
            for block in self.environment.from_string(template).generate(**context):
                noted.blocks.append(block)
        except Exception as error:  # a faulty template can raise any of Python's errors
            return {"error": f"{type(error).__name__}: {error}"}
        text = "".join(noted.blocks)
        return {"text": text, "spans": [[len(text[:at].encode()) for at in span] for span in noted.spans]}


class Brim:
    """The program tests/text/render.c."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, context):
        line = json.dumps({"template": template, "context": context, "clock": CLOCK})
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"brim_render ended with {self.process.wait()} at {template!r}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


def same(want, got):
    return want == got or ("error" in want and "error" in got)


def difference(want, got):
    if "error" in want or "error" in got:
        return f"Jinja2: {str(want)[:300]}\n  brim: {str(got)[:300]}"
    a, b = want["text"], got["text"]
    if a == b:
        return f"spans {want['spans']} of Jinja2, {got['spans']} of brim"
    at = next((i for i in range(min(len(a), len(b))) if a[i] != b[i]), min(len(a), len(b)))
    return f"from character {at}\n  Jinja2: {a[max(0, at - 40):at + 60]!r}\n  brim:   {b[max(0, at - 40):at + 60]!r}"
