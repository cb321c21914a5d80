"""Compares chat templates rendered by brim with Jinja2 (Debian's python3-jinja2) with the settings of transformers.
brim either gives the same bytes and spans, or refuses a template: it never gives other bytes. BRIM_RENDER is the
program of render.c."""

import os
import pathlib
import random
import sys
import unittest
import warnings

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[2] / "scripts" / "bench")]
try:
    import drawn_templates
    import templates
    from chat_templates import conversation
except ImportError as missing:
    print(f"skipped: {missing}; Debian has it in python3-jinja2")
    sys.exit(77)

FOLDER = pathlib.Path(__file__).parent / "templates"
FULL = os.environ.get("BRIM_TEST_TIER", "full") == "full"
DRAWN, CONVERSATIONS = (3000, 60) if FULL else (200, 20)


class Templates(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")  # ignores Python's warnings about the code that Jinja makes
        self.brim = templates.Brim(os.environ["BRIM_RENDER"])
        self.judge = templates.Judge()
        self.addCleanup(self.brim.close)

    def compare(self, template, context):
        """Asserts that both give the same, or both refuse. Returns whether they rendered."""
        want, got = self.judge.render(template, context), self.brim.render(template, context)
        self.assertTrue(templates.same(want, got), f"{template!r}: {templates.difference(want, got)}")
        return "error" not in got

    def refused(self, template, part, context=None):
        got = self.brim.render(template, context or {})
        self.assertIn(part, got.get("error", f"rendered {got}"))

    def test_conversations_have_jinjas_bytes(self):
        for file in sorted(FOLDER.glob("*.jinja")):
            rendered = sum(self.compare(file.read_text(encoding="utf-8"),
                                        conversation(random.Random(f"{file.name} {number}")))
                           for number in range(CONVERSATIONS))
            self.assertGreater(rendered, CONVERSATIONS // 6, file.name)

    def test_drawn_programs_have_jinjas_bytes(self):
        rendered = 0
        for seed in range(DRAWN):
            template = drawn_templates.draw_template(random.Random(f"templates {seed}"))
            want = self.judge.render(template, drawn_templates.CONTEXT)
            got = self.brim.render(template, drawn_templates.CONTEXT)
            if "error" not in got:
                self.assertEqual(want, got, template)
                rendered += 1
        self.assertGreater(rendered, DRAWN // 10)

    def test_single_expressions(self):
        for expression in EXPRESSIONS:
            self.assertTrue(self.compare("{{ " + expression + " }}", drawn_templates.CONTEXT), expression)

    def test_whitespace(self):
        for template in WHITESPACE:
            self.assertTrue(self.compare(template, {"x": 1}), repr(template))

    def test_scopes(self):
        for template in SCOPES:
            self.assertTrue(self.compare(template, {"xs": [1, 2, 3], "x": 5}), template)

    def test_what_both_refuse(self):
        for template in BOTH_REFUSE:
            self.assertFalse(self.compare(template, {"xs": [1, 2], "s": "a", "none_": None}), template)

    def test_what_is_not_known_is_refused_by_name(self):
        for template, part in UNKNOWN:
            self.refused(template, part)

    def test_limits(self):
        self.refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels of nested")
        self.refused("{{ " + "(" * 300 + "1" + ")" * 300 + " }}", "nested")
        self.refused("{% set r = range(9999) %}{% for a in r %}{% for b in r %}{{ b }}{% endfor %}{% endfor %}",
                     "steps")
        self.refused("{% set ns = namespace(s='ab') %}{% for a in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                     "MiB")
        self.refused("{{ 999999999999999999 * 99 }}", "64 bits")
        self.refused("x" * (1 << 20) + "x", "bytes")


EXPRESSIONS = """1 + 2 * 3 - 4 // 3 % 5
-7 // 2
-7 % 3
-999999999999999999 % 5 ~ ' ' ~ -999999999999999999 // 2 ~ ' ' ~ 7 % -3 ~ ' ' ~ 7 // -1 ~ 7 % -1
1 / 3
10 / 5
1e16
1e-5
123456789012345680.0
0.1 + 0.2
'a' ~ 1 ~ none ~ 1.0 ~ true
'a' 'b' "c"
'\\u00e9\\n\\r\\t\\\\\\'\\"'
not 1 == 2
'a' in 'abc' and 3 not in [1, 2]
(1, 2) + (3,)
[1, [2, 'x'], {'a': none, 1: true}]
{'it\\'s': "q\\"uote", 'b': '\\t\\u0000é\\u200b'}
xs[::-1]
s[2:-3]
s[::-2]
t[1]
xs[10] is defined
d.items() | list
d['items']
d.k
d.n.m[1].q
d.keys() | list | tojson
d | tojson
d | tojson(indent=4)
d | tojson(indent=0)
[] | tojson(indent=2)
d | items | list
d | dictsort
['b', 'A', 'c'] | sort
messages | sort(attribute='content') | map(attribute='content') | list
messages | map(attribute='role') | join(', ')
messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list
messages | rejectattr('n', 'defined') | list | length
'STRASSE' | lower ~ 'été' | upper ~ 'éa' | capitalize ~ 'ǆ' | capitalize ~ 'Я' | lower
' x ' | trim ~ '.' ~ ' x '.strip() ~ '.' ~ 'xxaxx'.strip('x')
'a,b,,c'.split(',')
'a,b,c'.split(',', 1)
missing
missing is defined or missing | default('none')
'' | default('empty', true)
missing | length
missing is undefined and none is  none and d is mapping and xs is sequence and s is string
d.values() is iterable and 1.0 is float and true is boolean and 1 is integer
xs | first ~ xs | last
namespace(a=1, b='x').b
range(5) | list ~ (range(5, 0, -2) | list)
strftime_now('%Y-%m-%d %H:%M')
('a' if false)
'a' if missing else 'b' if 0 else 'c'
'<' | safe ~ '<' ~ ('a' | safe | upper)
1 == 1.0 and true == 1 and 'a' != none
messages | selectattr('role', 'in', ['user']) | first | tojson
messages | map(attribute='role') | map('upper') | list
[1, 'a'] | reject('string') | list
d.get('k') ~ d.get('z') ~ d.get('z', 3) ~ d.values() | list
'abc'.startswith('ab') ~ 'abc'.endswith('bc') ~ 'abc'.endswith('abcd')
(1.5 + 2) ~ ' ' ~ 3 * 0.5 ~ ' ' ~ (1 / 4 - 1)
-n ~ -a ~ -b
1 < 1.5 and 2 >= 2.0 and 'a' <= 'b'""".split("\n")

WHITESPACE = ["a\n  {% if x %}\n  b\n  {% endif %}\nc\n", "a {%- if x -%} \n b {%- endif %} c",
              "{# a #}\n b {#- c -#} \n d\n {# e #}\nf", "{{ x }}\n{{ x -}} \n {{- x }}\n\n", "x {{- ' y ' -}} z",
              "\t {% if x %}\t\n\t y\n\t{%- endif %}",
              "a\r\n{% if x %}\r\nb\r\n{% endif %}\r\n", "a\n\n",
              "a\u00a0{%- if x %} b{% endif %}\u2003{%- if x %}c{% endif %}",
              "{% if x %}{% endif %}  \n  {% if x %}y{% endif %}", "{{ '}}' }}{{ {'a': {'b': 1}} }}{{ \"%}\" }}",
              "{% set y = {'a': 1} %}{{ y }}",
              "{{- x }}", "\n{{ x }}", "{%if x%}t{%endif%}{%-if x-%}u{%-endif-%}", "a {#- -#} b",
              "   {# c #}   \n   {% if x %}\nb{% endif %}"]

SCOPES = ["{% set y = 1 %}{% for v in xs %}{% set y = y + v %}{{ y }}{% endfor %}{{ y }}",
          "{% for v in xs %}{% if loop.first %}{% set y = 1 %}{% endif %}{{ y is defined }}{% endfor %}",
          "{% macro m(a, b=a) %}{{ a }}{{ b }}{{ x }}{% set x = 9 %}{{ x }}"
          "{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}{{ m() }}{{ x }}",
          "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
          "{% for v in xs %}{% macro m() %}{{ v }}{% endmacro %}{{ m() }}{% endfor %}",
          "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% for a, b in [(3, 4)] %}{{ a }}{{ b }}{% endfor %}{{ a }}",
          "{% for v in xs if v != 2 %}{{ loop.index }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}"
          "{% else %}n{% endfor %}",
          "{% for v in [] %}{% else %}{% set x = 1 %}{{ x }}{% endfor %}{{ x }}",
          "{% for v in xs %}{% if v == 2 %}{% continue %}{% endif %}{{ v }}{% if v == 3 %}{% break %}"
          "{% endif %}{% endfor %}",
          "{% for v in xs %}{% continue %}{% else %}else{% endfor %}",
          "{% set q %}a{{ x }}{% set x = 1 %}{% endset %}{{ q }}{{ x }}",
          "{% macro m(a, b=c, c=1) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1, c=3) }}",
          "{% set ns = namespace(n=0, l=[]) %}{% for v in xs %}{% set ns.n = ns.n + v %}"
          "{% set ns.l = ns.l + [v] %}{% endfor %}{{ ns.n }}{{ ns.l }}",
          "{% for v in xs %}{% for w in xs %}{{ loop.index }}{{ loop.revindex0 }}"
          "{% endfor %}{{ loop.last }}{{ loop.nextitem }}{% endfor %}",
          "a{% generation %}b{{ x }}{% endgeneration %}é{% for v in xs %}{% generation %}{{ v }}ü"
          "{% endgeneration %}{% endfor %}"]

BOTH_REFUSE = ["{{ missing.x }}", "{{ none_ + 1 }}", "{{ 'a' + 1 }}", "{{ xs.append(3) }}", "{{ 1 // 0 }}",
               "{{ s() }}", "{% for a, b in xs %}{% endfor %}",
               "{{ missing + 'a' }}", "{{ raise_exception('no') }}", "{{ xs | nope }}", "{{ xs is nope }}",
               "{% if %}{% endif %}", "{{ 1 +", "{% for x in xs %}",
               "{{ 'a }}", "{% endif %}", "{{ (1 }}", "{{ 1 in 5 }}", "{{ none < 1 }}", "{{ tojson(missing) }}",
               "{{ missing | tojson }}", "{% break %}",
               "{% set xs.a = 1 %}", "{% set true = 1 %}", "{% for v in none_ %}{% endfor %}", "{{ 1 ? 2 }}",
               "{# open", "{% nope %}", "{{ s.format(**xs) }}"]

UNKNOWN = [("a\n {{ x | nope }}", "line 2, column 9: the filter 'nope' is not supported"),
           ("{{ x is\n  nope }}", "line 2, column 3: the test 'nope' is not supported"),
           ("é{% include 'x' %}", "line 1, column 5: the statement 'include' is not supported"),
           ("{{ 'a'.zfill(3) }}", "line 1, column 7: the attribute 'zfill' of 'str' is not supported"),
           ("{{ cycler(1) }}", "the function 'cycler' is not supported"),
           ("{{ f(*x) }}", "line 1, column 6: an expression is needed, but '*' is here"),
           ("{{ ''.__class__ }}", "the attribute '__class__' of 'str' is not supported"),
           ("{% macro m() %}{% generation %}{% endgeneration %}{% endmacro %}", "{% generation %} in a macro"),
           ("{{ 'ﬁ' | upper }}", "upper case of U+FB01"),
           ("{{ namespace(a=1) }}", "a Namespace has no text"),
           ("{{ [1] | map('upper') }}", "a generator has no text: add the filter list"),
           ("{% if x %}", "the template ends where one of these is needed: elif else endif"),
           ("a{%+ if x %}", "line 1, column 2: a tag that begins with + is not supported"),
           ("{% raw %}{% endraw %}", "the statement 'raw' is not supported"),
           ("{% call m() %}{% endcall %}", "the statement 'call' is not supported"),
           ("{{ 1 < 2 < 3 }}", "line 1, column 10: a chain of comparisons is not supported: use 'and'"),
           ("{{ 7.5 // 2 }}", "'//' with 'float' and 'int' is not supported"),
           ("{{ '\\x41' }}", "line 1, column 5: the escape '\\x' is not supported"),
           ("{{ 'a b'.rsplit() }}", "line 1, column 9: the attribute 'rsplit' of 'str' is not supported"),
           ("{{ 'Σ' | lower }}", "lower case of U+03A3"),
           ("{{ [1] | tojson(separators=1) }}", "there is no argument 'separators'"),
           ("{{ [1] | tojson(true) }}", "tojson's ensure_ascii=true is not supported"),
           ("{% for x in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}", "the attribute 'cycle' of 'LoopContext'"),
           ("{% set n = namespace(a=1) %}{% for x in [1] if n.a %}{% endfor %}", "a namespace in the filter of a loop"),
           ("{% set g = [1] | map('string') %}{{ g | list }}{{ g | list }}", "a generator is used a second time"),
           ("{{ 'a' | safe + 'b' }}", "'+' with a text of the filter safe is not supported")]

if __name__ == "__main__":
    unittest.main(verbosity=2)
