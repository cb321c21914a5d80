"""Draws programs in the language of chat templates."""

NAMES = ["a", "b", "s", "t", "xs", "d", "n", "f", "none_", "missing", "messages"]
STRINGS = ["'x'", "'Hello World'", "'  pad '", "''", "'a,b,,c'", "'ß Éé'",
           "'<b>&'", "\"it's\"", "'a\\nb'", "'日本'"]
CONTEXT = {"a": 1, "b": -7, "s": "Some text, here", "t": " été\n", "xs": [3, 1, 2, "z", None, [1, 2]], "n": 2.5,
           "f": False,
           "none_": None, "d": {"k": "v", "items": 5, "n": {"m": [1, {"q": "w"}]}, "B": 2},
           "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo", "n": 2},
                        {"role": "user", "content": "Bye\n"}]}
FILTERS = ["trim", "length", "upper", "lower", "capitalize", "string", "list", "first", "last", "join",
           "join(', ')", "default('q')", "default('q', true)", "default(boolean=true)", "tojson", "tojson(indent=2)",
           "items | list", "dictsort", "sort", "map('string') | list", "map('upper') | join",
           "map(attribute='role') | list", "select('string') | list", "select | list", "reject('none') | list",
           "selectattr('role', 'equalto', 'user') | list", "selectattr('n') | list",
           "rejectattr('n', 'defined') | list", "replace('e', 'E')", "count", "items", "select('in', [1, 2]) | list",
           "map('default', 'u') | list", "map('length') | list", "safe", "selectattr('role') | first",
           "sort(attribute='role')", "map('trim')",
           # refused
           "title", "int", "tojson(sort_keys=true)", "reverse | list"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float",
         "boolean", "true", "false", "eq(1)", "equalto('x')", "in([1, 'x', none])", "ne('x')", "not none",
         "not defined", "odd"]
METHODS = ["split(',')", "split('e', 1)", "strip()", "strip('H d')", "lstrip()", "rstrip('\\n')",
           "startswith('H')", "endswith('d')", "upper()", "lower()", "capitalize()", "replace('l', 'L')", "items()",
           "keys()", "values()", "get('k')", "get('zz', 3)", "split(',', maxsplit=1)", "splitlines()", "copy()"]
ATTRIBUTES = ["k", "items", "n", "role", "nope", "keys", "m", "upper", "append"]
INDICES = ["0", "-1", "5", "'k'", "'items'", "'role'", "1:", ":2", "::-1", "-2:", "1:-1", "::2", "3:0:-1", "'n'",
           "true", "9:", "n"]
BINARY = ["+", "-", "*", "//", "%", "/", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
WORDS = ["text", " ", "\n", "  \n", "\t", "x\n", "\n\n", "  é ", "{ }", "% }", "a{b", "#", "'", "\r\n"]


class Drawer:
    def __init__(self, random):
        self.random = random
        self.macros = 0
        self.names = list(NAMES)

    def chance(self, share):
        return self.random.random() < share

    def literal(self):
        return self.random.choice([str(self.random.randint(-3, 9)), self.random.choice(STRINGS), "true", "none",
                                   "1.5", "0", "[]", "{}",
                                   "()", "(1,)", "1e3", "False"])

    def expression(self, depth=0):
        kind = self.random.randint(0, 13) if depth < 4 else self.random.randint(0, 3)
        inner = lambda: self.expression(depth + 1)  # noqa: E731
        if kind <= 1:
            return self.random.choice(self.names)
        if kind <= 3:
            return self.literal()
        if kind <= 5:
            return f"({inner()} | {self.random.choice(FILTERS)})"
        if kind == 6:
            return f"{inner()} {self.random.choice(BINARY)} {inner()}"
        if kind == 7:
            return f"({inner()}).{self.random.choice(METHODS)}"
        if kind == 8:
            return f"{self.random.choice(self.names)}.{self.random.choice(ATTRIBUTES)}"
        if kind == 9:
            return f"({inner()})[{self.random.choice(INDICES)}]"
        if kind == 10:
            return f"({inner()} is {self.random.choice(TESTS)})"
        if kind == 11:
            return f"({inner()} if {inner()}{' else ' + inner() if self.chance(0.7) else ''})"
        if kind == 12:
            return self.random.choice([f"[{inner()}, {inner()}]", f"({inner()}, {inner()})",
                                       f"{{'k': {inner()}, 'j': {inner()}}}",
                                       f"not {inner()}", f"-{inner()}", f"range({self.random.randint(0, 4)})",
                                       f"namespace(v={inner()}).v"])
        return f"({inner()} {self.random.choice(BINARY)} {inner()})"

    def open(self, word="%"):
        sign = self.random.choice(["", "", "-"])
        return ("{%" if word == "%" else "{{") + sign + self.random.choice([" ", "", "\n"])

    def close(self, word="%"):
        sign = self.random.choice(["", "", "-"])
        return self.random.choice([" ", ""]) + sign + ("%}" if word == "%" else "}}")

    def tag(self, text):
        return self.open() + " " + text + " " + self.close()

    def name(self):
        name = self.random.choice(["a", "v", "w", "xs", "s"])
        if name not in self.names:
            self.names.append(name)
        return name

    def statement(self, depth, loop=False):
        kind = self.random.randint(0, 15) if depth < 3 else self.random.randint(0, 6)
        if kind <= 2:
            return "".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, 3)))
        if kind <= 5:
            return self.open("{") + " " + self.expression() + " " + self.close("{")
        if kind == 6:
            return self.tag(f"set {self.name()} = {self.expression()}")
        body = lambda inside=loop: self.body(depth + 1, inside)  # noqa: E731
        if kind <= 8:
            out = self.tag(f"if {self.expression()}") + body()
            if self.chance(0.3):
                out += self.tag(f"elif {self.expression()}") + body()
            return out + (self.tag("else") + body() if self.chance(0.5) else "") + self.tag("endif")
        if kind <= 11:
            return self.loop(depth)
        if kind == 12:
            return self.macro(depth)
        if kind == 13:
            return self.random.choice([self.tag(f"set {self.name()}") + body(False) + self.tag("endset"),
                                       "{# note #}", "{#- note -#}\n"])
        if kind == 14 and loop:
            jump = self.random.choice(["break", "continue"])
            return self.tag(f"if {self.expression()}") + self.tag(jump) + self.tag("endif")
        return self.tag("set ns = namespace(v=1)") + self.tag(f"set ns.v = {self.expression()}") + "{{ ns.v }}"

    def loop(self, depth):
        target = self.random.choice(["v", "v", "k, v"])
        what = self.random.choice(["xs", "messages", "d", "d.items()", "range(3)", "'abc'", "missing",
                                   "d | dictsort", "[]",
                                   "messages | selectattr('n')", self.expression(3)])
        test = f" if {self.expression(2)}" if self.chance(0.3) else ""
        before = list(self.names)
        self.names += ["v", "k", "loop.index", "loop.last", "loop.first", "loop.index0", "loop.length",
                       "loop.revindex", "loop.previtem",
                       "loop.nextitem"]
        out = self.tag(f"for {target} in {what}{test}") + self.body(depth + 1, True)
        self.names = before
        return out + (self.tag("else") + self.body(depth + 1, False) if self.chance(0.3) else "") + self.tag("endfor")

    def macro(self, depth):
        self.macros += 1
        name = f"m{self.macros}"
        before = list(self.names)
        self.names += ["p", "q"]
        out = self.tag(f"macro {name}(p, q={self.literal()})") + self.body(depth + 1, False) + self.tag("endmacro")
        self.names = before
        second = ", q=" + self.expression(3) if self.chance(0.4) else ""
        return out + "{{ " + f"{name}({self.expression(3)}{second})" + " }}"

    def body(self, depth, loop):
        before = list(self.names)
        out = "".join(self.statement(depth, loop) for _ in range(self.random.randint(1, 3)))
        self.names = before
        return out

    def program(self):
        out = "".join(self.statement(0) for _ in range(self.random.randint(1, 5)))
        if self.chance(0.2):
            out += self.tag("generation") + self.body(1, False) + self.tag("endgeneration")
        return out


def draw_template(random):
    return Drawer(random).program()
