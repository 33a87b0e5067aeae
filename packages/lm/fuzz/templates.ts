/**
 * Generates random chat templates from the language's grammar and from pieces of published kinds of templates, with
 * extreme sizes, and renders a conversation with them.
 *
 *     node --import tsx packages/lm/fuzz/templates.ts --cases 10000 --seed 1
 */
import { BoundedTemplate } from "../src/bounded-template.js";
import { fuzz } from "./harness.js";
import { mutateJson } from "./mutate-json.js";
import type { Random } from "./random.js";

const WHERE = "chat_template.jinja";
const names = [
  "messages",
  "message",
  "ns",
  "ns.a",
  "ns.b",
  "x",
  "y",
  "loop",
  "loop.index",
  "f",
  "tools",
  "bos_token",
  "nobody",
];
const numbers = ["0", "1", "2", "-1", "3", "30", "1000", "10**9", "10**300", "2**53", "0.5", "1e3"];
const filters = [
  "trim",
  "length",
  "upper",
  "tojson",
  "list",
  "first",
  "last",
  "reverse",
  "sort",
  "unique",
  "string",
  "int",
  "items",
  "safe",
  "dictsort",
  "title",
];
const methods = [
  "strip",
  "split",
  "upper",
  "items",
  "keys",
  "get",
  "lstrip",
  "title",
  "capitalize",
  "rstrip",
];
const literals = ["'a'", "'aaaaaaaa'", "'\\n'", "' '", "''", "'role'", "'😀'", "true", "none", "[]", "{}"];

class Writer {
  constructor(private readonly random: Random) {}

  expression(depth: number): string {
    const { random } = this;
    if (depth <= 0) return random.pick([random.pick(names), random.pick(literals), random.pick(numbers)]);
    const inner = () => this.expression(depth - 1 - random.below(2));
    switch (random.below(16)) {
      case 0:
        return `(${inner()} ${random.pick(["+", "~", "*", "-", "/", "//", "%", "**", "==", "<", "in", "not in", "and", "or"])} ${inner()})`;
      case 1:
        return `(${inner()} | ${random.pick(filters)})`;
      case 2:
        return `(${inner()} | replace(${inner()}, ${inner()}))`;
      case 3:
        return `(${inner()} | join(${inner()}))`;
      case 4:
        return `(${inner()} | indent(${inner()}, true))`;
      case 5:
        return `(${inner()} | tojson(indent=${inner()}))`;
      case 6:
        return `range(${random.pick([inner, () => random.pick(numbers)])()}${random.once(3) ? `, ${inner()}` : ""})`;
      case 7:
        return `(${inner()}).${random.pick(methods)}(${random.once(2) ? inner() : ""})`;
      case 8:
        return `(${inner()}).replace(${inner()}, ${inner()})`;
      case 9:
        return `(${inner()})[${inner()}]`;
      case 10:
        return `(${inner()})[${random.once(2) ? inner() : ""}:${random.once(2) ? inner() : ""}${random.once(3) ? `:${inner()}` : ""}]`;
      case 11:
        return `[${inner()}, ${inner()}]`;
      case 12:
        return `{'a': ${inner()}, 'b': ${inner()}}`;
      case 13:
        return `(${inner()} if ${inner()} else ${inner()})`;
      case 14:
        return random.pick([
          `f(${inner()})`,
          `f(${inner()}, y=${inner()})`,
          `namespace(a=${inner()})`,
          `strftime_now(${inner()})`,
        ]);
      default:
        return `(${inner()} is ${random.pick(["defined", "string", "mapping", "none", "odd", "iterable"])})`;
    }
  }

  statement(depth: number): string {
    const { random } = this;
    const body = () => (depth <= 0 ? "x" : this.body(depth - 1));
    switch (random.below(10)) {
      case 0:
        return `{% for ${random.pick(["x", "y", "message", "x, y"])} in ${this.expression(2)} %}${body()}{% endfor %}`;
      case 1:
        return `{% for x in range(${random.once(20) ? "99999" : random.pick(["3", "60"])}) %}${body()}{% endfor %}`;
      case 2:
        return `{% if ${this.expression(2)} %}${body()}{% else %}${body()}{% endif %}`;
      case 3:
      case 4:
        return `{% set ${random.pick(["x", "ns.a", "ns.b", "y"])} = ${this.expression(3)} %}`;
      case 5:
        return `{% set ns.a = ${random.pick(["ns.a ~ ns.a", "[ns.a, ns.a]", "ns.a + ns.b", "ns", "ns.a | string", "{'a': ns.a}"])} %}`;
      case 6:
        return `{% macro f(x, y=1) %}${body()}{% endmacro %}`;
      case 7:
        return random.pick([
          "{% break %}",
          "{% continue %}",
          `{% call f(x) %}${body()}{% endcall %}`,
          `{% filter ${random.pick(filters)} %}${body()}{% endfilter %}`,
        ]);
      default:
        return `{{${random.pick(["", "-"])} ${this.expression(3)} }}`;
    }
  }

  body(depth: number): string {
    return Array.from({ length: 1 + this.random.below(3) }, () => this.statement(depth)).join(
      this.random.pick(["", "\n", "  ", "text"]),
    );
  }
}

const published = [
  "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] | trim }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
  "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles') }}{% endif %}[INST] {{ message['content'].strip() }} [/INST]{% endfor %}",
  "{%- macro text(c) %}{%- if c is string %}{{- c }}{%- else %}{%- for i in c %}{{- i['text'] }}{%- endfor %}{%- endif %}{%- endmacro %}{% for m in messages %}{{ text(m.content) }}{{ m | tojson(indent=2) }}{% endfor %}",
];

/** Pieces of a published template, moved, duplicated or removed. */
function spliced(random: Random): string {
  const pieces = random.pick(published).split(/(?=\{[{%])|(?<=[%}]\})|(?<= )/);
  for (let times = 1 + random.below(4); times > 0; times--) {
    const at = random.below(pieces.length);
    const piece = random.pick([
      random.pick(pieces),
      random.pick(numbers),
      "{%",
      "}}",
      " ".repeat(random.below(9000)),
      "(",
    ]);
    pieces.splice(at, random.below(2), piece);
  }
  return pieces.join("");
}

const messages = [
  { role: "system", content: "You are terse." },
  { role: "user", content: "  Hello there! 😀 \n\n" },
  { role: "assistant", content: "Hi." },
];

await fuzz(import.meta.url, {
  name: "templates",
  begin: async () => () => {},
  runCase: async (random) => {
    const writer = new Writer(random);
    const source = random.once(4)
      ? spliced(random)
      : `{% set ns = namespace(a='a', b=[1]) %}${writer.body(3)}`;
    const given = random.once(5) ? mutateJson(messages, random) : messages;
    new BoundedTemplate(source, WHERE).render({
      messages: given,
      bos_token: "<s>",
      add_generation_prompt: true,
    });
  },
  namesPlace: (message) => message.startsWith(`${WHERE}: `),
});
