"""Random templates and Python's output for them: combinations of the constructs of chat templates.

    python3 make_jinja.py                     (transformers 5.18, Jinja2 3.1)

Writes jinja-expected.json.gz. A template that Python refuses has its error instead of a text. Templates whose output contains a memory address are omitted.
"""

import copy
import gzip
import json
import os
import random

import jinja2
import transformers
from transformers.utils import chat_template_utils

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT = 1500
MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "n": [1, 2.5, None]}]

TEXTS = [
    "''", "'a'", "'Ab c'", "'  x y '", "'ß\\u01c6Ĳ'", "'😀é'", "'a,b,,c'", "'\\n a\\nb \\r\\n'", "'12'", "'-3.5'",
    "'<&>'", "'aaa'", "'{0}-{}'", "'%s'", "'\\x1cA\\x85'", "'Hello World'", "'İstanbul ΟΔΟΣ'", "'0x1f'", "' 7_0 '",
    "'1e3'",
]
NUMBERS = [
    "0", "1", "2", "-1", "-7", "3", "10", "0.0", "1.5", "-2.5", "2.675", "1e20", "1e-7",
    "123456789012345678901234567890", "7/2", "true", "false",
]
LISTS = [
    "[]", "[1,2,3]", "['b','a','B']", "[3,1.0,2]", "(1,2)", "()", "(1,)", "[[1,2],[3]]", "messages", "range(4)",
    "[none,1]", "[{'r':'u','n':2},{'r':'a','n':1},{'r':'u'}]",
]
DICTS = [
    "{}", "{'a':1}", "{'b':1,'a':[1,'x']}", "{1:2, true:3}", "messages[0]", "messages[1]", "dict(q=1)",
]
NOTHING = [
    "none", "undefinedvar", "messages[5]", "messages[0].nothing",
]
FILTERS = [
    "abs", "capitalize", "count", "length", "first", "last", "list", "lower", "upper", "title", "trim", "string",
    "int", "float", "sum", "min", "max", "unique|list", "reverse|list", "reverse", "sort", "join", "wordcount",
    "tojson", "items|list", "dictsort", "e", "safe", "round", "default('d')", "default('d', true)",
    "default(none)", "indent", "striptags", "urlencode", "filesizeformat", "center(9)", "batch(2)|list",
    "slice(2)|list", "map('upper')|list", "map(attribute='r')|list", "selectattr('r')|list",
    "rejectattr('r','equalto','u')|list", "selectattr('n','defined')|list", "groupby('r')|list", "join(', ')",
    "replace('a','XY')", "replace('a','X',1)", "truncate(3,true,'')", "truncate(3)", "tojson(indent=2)",
    "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "sort(reverse=true)", "sort(attribute='n')",
    "select|list", "reject('none')|list", "select('string')|list", "round(1)", "round(2)", "round(0,'floor')",
    "int(5)", "int(base=16)", "format(1)", "attr('upper')", "indent(2,true)", "indent(2,blank=true)",
    "map('default','z')|list", "sum(attribute='n')", "max(attribute='n')", "filesizeformat(true)", "trim('ax ')",
    "first|upper", "list|last", "dictsort(by='value')", "unique(attribute='r')|list", "length|string",
]
METHODS = [
    "strip()", "lstrip()", "rstrip('ac')", "split()", "split(',')", "split(',',1)", "rsplit(',',1)",
    "split(none,1)", "rsplit(none,1)", "upper()", "title()", "capitalize()", "swapcase()", "find('a')",
    "rfind('a')", "count('a')", "replace('a','bb')", "replace('','-')", "startswith('a')", "endswith(('c',' '))",
    "startswith('b',1)", "partition(',')", "rpartition(',')", "splitlines()", "splitlines(true)", "zfill(6)",
    "center(8,'*')", "ljust(7)", "rjust(7,'.')", "isdigit()", "isalpha()", "isupper()", "islower()", "istitle()",
    "isspace()", "isalnum()", "isnumeric()", "isidentifier()", "isprintable()", "join(['x','y'])", "format(1,2)",
    "format('q')", "index('a')", "removeprefix('a')", "removesuffix('c')", "expandtabs(4)", "casefold()",
    "get('a')", "get('zz','d')", "keys()", "values()", "items()", "items()|list", "keys()|list", "count(1)",
    "index(1)", "copy()", "append(1)", "pop('a')", "nothing", "a", "upper", "b[1]", "isascii()", "isdecimal()",
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence",
    "iterable", "callable", "odd", "even", "upper", "lower", "true", "false", "eq 1", "equalto('a')", "in [1,'a']",
    "divisibleby 3", "ne none", "gt 1", "lt(2)", "sameas none", "not defined", "not none", "not string",
]
OPERATORS = [
    "+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or",
]
SUBSCRIPTS = [
    "[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[::2]", "[1:3]", "[5]", "['a']", "['upper']", "[-1:]", "[:0]",
    "[3:1:-1]", "[1.0]", "[none]", "['r']", "[true]",
]
GAPS = ["\n", "  \n", " a ", "\n  ", "\t", "", "x", "\r\n", "\n\n  "]

generator = random.Random(0)
choice = generator.choice


def atom():
    return choice(choice([TEXTS, TEXTS, NUMBERS, LISTS, DICTS, NOTHING]))


def expression(depth):
    if depth == 0:
        return atom()
    part = lambda: expression(depth - 1)
    kind = generator.randrange(9)
    if kind == 0:
        return f"({part()} {choice(OPERATORS)} {part()})"
    if kind == 1:
        return f"({part()})|{choice(FILTERS)}"
    if kind == 2:
        return f"({part()}).{choice(METHODS)}"
    if kind == 3:
        return f"({part()}) is {choice(TESTS)}"
    if kind == 4:
        return f"({part()}){choice(SUBSCRIPTS)}"
    if kind == 5:
        return f"({part()} if {part()} else {part()})"
    if kind == 6:
        return f"[{part()}, {part()}]"
    if kind == 7:
        return f"(not {part()})"
    return f"{part()}|{choice(FILTERS)}"


def tag(content):
    sign = lambda: choice(["", "", "-", "+", "-"])
    return f"{choice(GAPS)}{{%{sign()} {content} {sign()}%}}{choice(GAPS)}"


def loop(inner):
    head = tag(f"for x in {choice([*LISTS, *DICTS, 'undefinedvar'])}" + choice(["", " if x"]))
    body = "{{ loop.index }}{{ x is none }}" + choice([
        "", "{{ loop.last }}{{ loop.length }}", "{{ loop.previtem }}", "{% if loop.first %}{% continue %}{% endif %}",
        "{% if loop.index == 2 %}{% break %}{% endif %}",
    ])
    return head + inner() + body + tag("else") + inner() + tag("endfor")


def block(depth):
    inner = lambda: "".join(block(depth - 1) for _ in range(generator.randrange(1, 3))) if depth > 0 else choice(GAPS)
    sign = lambda: choice(["", "-"])
    kind = generator.randrange(9)
    if kind == 0:
        return tag(f"if {expression(1)}") + inner() + tag("else") + inner() + tag("endif")
    if kind == 1:
        return loop(inner)
    if kind == 2:
        return tag(f"set v = {expression(1)}") + "{{ v is defined }}"
    if kind == 3:
        return tag("set v") + inner() + tag("endset") + "[{{ v }}]"
    if kind == 4:
        return choice(GAPS) + "{#" + choice(["", "-", "+"]) + " c " + choice(["", "-", "+"]) + "#}" + choice(GAPS)
    if kind == 5:
        return tag("raw") + "{{ x }}" + tag("endraw")
    if kind == 6:
        return choice(GAPS) + "{{" + sign() + " " + expression(1) + " " + sign() + "}}" + choice(GAPS)
    if kind == 7:
        return tag("macro m(a, b=2)") + "<{{ a }}{{ b }}{{ caller is defined }}>" + tag("endmacro") + "{{ m(1) }}{{ m(b=3) }}"
    return tag("generation") + inner() + tag("endgeneration")


def main():
    cases = []
    while len(cases) < COUNT:
        if generator.random() < 0.6:
            template = "{{ " + expression(generator.randrange(1, 4)) + " }}"
        else:
            template = "".join(block(2) for _ in range(generator.randrange(1, 4)))
        try:
            messages = copy.deepcopy(MESSAGES)
            text = chat_template_utils.render_jinja_template([messages], chat_template=template)[0][0]
        except Exception as error:
            cases.append({"template": template, "error": type(error).__name__})
            continue
        if " at 0x" not in text:
            cases.append({"template": template, "text": text})
    versions = {"transformers": transformers.__version__, "jinja2": jinja2.__version__}
    text = json.dumps({"versions": versions, "messages": MESSAGES, "cases": cases}, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(HERE, "jinja-expected.json.gz"), "wb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))


main()
