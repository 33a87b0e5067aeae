/** Attributes of values: Python's methods that the sandbox lets a template call. */
import { bind, integer, optionalString, required, string } from "./arguments.js";
import { formatBraces, type FieldReader } from "./format-text.js";
import { element, equals } from "./operators.js";
import {
  capitalized,
  found,
  occurrences,
  padded,
  questions,
  replaced,
  slicedText,
  split,
  splitLines,
  stripped,
  swapped,
  titled,
} from "./python-text.js";
import { MAXIMUM_TEXT, text as textOf, tooLong } from "./representation.js";
import {
  Attributes,
  Callable,
  codePoints,
  Dict,
  DictView,
  Forbidden,
  listed,
  Markup,
  Namespace,
  orElse,
  Range,
  TemplateError,
  Tuple,
  tupleOf,
  typeName,
  Undefined,
  Unsupported,
  unsupportedMarkup,
  type Arguments,
  type Value,
} from "./values.js";

/** Methods that change their object: the immutable sandbox forbids them. */
const MUTATORS: Readonly<Record<string, readonly string[]>> = {
  list: ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"],
  dict: ["clear", "pop", "popitem", "setdefault", "update"],
};

/** `value.name`: an attribute, else the element of that name. */
export function attribute(value: Value, name: string): Value {
  if (value instanceof Undefined) return value.fail();
  return orElse(ownAttribute(value, name), () => orElse(element(value, name), () => missing(value, name)));
}

/** `value[key]`: an element, else the attribute of that name. */
export function item(value: Value, key: Value): Value {
  if (value instanceof Undefined) return value.fail();
  const here = element(value, key);
  if (here !== undefined) return here;
  return orElse(typeof key === "string" ? ownAttribute(value, key) : undefined, () => missing(value, key));
}

const fieldReader: FieldReader = { attribute, item };

function missing(value: Value, key: Value): Undefined {
  if (typeof key === "string")
    return new Undefined(`'${typeName(value)} object' has no attribute '${shown(key)}'`);
  return new Undefined(`${typeName(value)} object has no element ${shown(textOf(key))}`);
}

const shown = (name: string) => (name.length > 100 ? `${name.slice(0, 100)}…` : name);

function ownAttribute(value: Value, name: string): Value | undefined {
  if (name.startsWith("_")) {
    // Every Python object has some; they differ by type.
    return name.startsWith("__")
      ? new Forbidden(`access to attribute '${shown(name)}' of '${typeName(value)}' object is unsafe`)
      : undefined;
  }
  if (value instanceof Namespace) return value.attributes.get(name);
  if (value instanceof Attributes) return value.attribute(name);
  if (value instanceof Markup) throw unsupportedMarkup();
  if (typeof value === "string") return stringMethod(value, name);
  if (value instanceof Dict) return dictMethod(value, name);
  if (Array.isArray(value) || value instanceof Range) return sequenceMethod(value, name);
  if (value instanceof Callable && name === "name") return value.name;
  return undefined;
}

function forbidden(value: Value, name: string): Forbidden | undefined {
  const type = typeName(value);
  if (!(MUTATORS[type]?.includes(name) ?? false)) return undefined;
  return new Forbidden(`access to attribute '${name}' of '${type}' object is unsafe`);
}

function dictMethod(dict: Dict, name: string): Value | undefined {
  switch (name) {
    case "get":
      return new Callable(name, (given) => {
        const [key, missingValue] = bind("dict.get", given, ["key", "default"]);
        return orElse(dict.get(required("dict.get", key)), () => orElse(missingValue, () => null));
      });
    case "keys":
    case "values":
    case "items":
      return new Callable(name, (given) => {
        bind(`dict.${name}`, given, []);
        return new DictView(dict, name);
      });
    case "copy":
      return new Callable(name, () => new Dict(dict.entries()));
    default:
      return forbidden(dict, name);
  }
}

function sequenceMethod(sequence: Value[] | Range, name: string): Value | undefined {
  switch (name) {
    case "index":
      return new Callable(name, (given) => {
        const [wanted, start, stop] = bind(name, given, ["value", "start", "stop"]);
        const all = listed(sequence);
        const [from, to] = bounds(all.length, integer(name, start, 0), integer(name, stop, all.length));
        for (let at = from; at < to; at++) if (equals(all[at]!, required(name, wanted))) return BigInt(at);
        throw new TemplateError(`${typeName(sequence)}.index(x): x not in ${typeName(sequence)}`);
      });
    case "count":
      return new Callable(name, (given) => {
        const [wanted] = bind(name, given, ["value"]);
        return BigInt(listed(sequence).filter((member) => equals(member, required(name, wanted))).length);
      });
    case "copy":
      if (sequence instanceof Range || sequence instanceof Tuple) return undefined;
      return new Callable(name, () => [...sequence]);
    case "start":
    case "stop":
    case "step":
      return sequence instanceof Range ? sequence[name] : undefined;
    default:
      return forbidden(sequence, name);
  }
}

/** Bounds of a slice in a sequence of that length. */
function bounds(length: number, start: number, stop: number): [number, number] {
  const clamp = (at: number) => Math.min(Math.max(at < 0 ? at + length : at, 0), length);
  // A start beyond the end finds nothing, not even an empty text.
  return [start > length ? start : clamp(start), clamp(stop)];
}

type Method = (self: string, given: Arguments) => Value;

const without =
  (name: string, apply: (self: string) => Value): Method =>
  (self, given) => {
    bind(`str.${name}`, given, []);
    return apply(self);
  };

const strip =
  (side: "both" | "left" | "right"): Method =>
  (self, given) => {
    const [characters] = bind("str.strip", given, ["chars"]);
    return stripped(self, side, optionalString("str.strip", characters));
  };

const splitting =
  (from: "left" | "right"): Method =>
  (self, given) => {
    const [separator, most] = bind("str.split", given, ["sep", "maxsplit"]);
    return split(self, optionalString("str.split", separator), integer("str.split", most, -1), from);
  };

const partition =
  (from: "left" | "right"): Method =>
  (self, given) => {
    const [separator] = bind("str.partition", given, ["sep"]);
    const part = string("str.partition", separator);
    if (part === "") throw new TemplateError("empty separator");
    const at = from === "left" ? self.indexOf(part) : self.lastIndexOf(part);
    if (at < 0) return from === "left" ? tupleOf(self, "", "") : tupleOf("", "", self);
    return tupleOf(self.slice(0, at), part, self.slice(at + part.length));
  };

const justified =
  (side: "left" | "right" | "both"): Method =>
  (self, given) => {
    const [width, fill] = bind("str.just", given, ["width", "fillchar"]);
    const size = bounded(integer("str.just", required("str.just", width), 0));
    const character = fill === undefined ? " " : string("str.just", fill);
    if (codePoints(character) !== 1)
      throw new TemplateError("The fill character must be exactly one character long");
    return padded(self, size, character, side);
  };

const finding =
  (from: "left" | "right", mustExist: boolean): Method =>
  (self, given) => {
    const [part, start, stop] = bind("str.find", given, ["sub", "start", "end"]);
    const at = found(self, string("str.find", part), from, ...range(self, start, stop));
    if (at < 0 && mustExist) throw new TemplateError("substring not found");
    return BigInt(at);
  };

const atEnd =
  (name: "startsWith" | "endsWith"): Method =>
  (self, given) => {
    const [parts, start, stop] = bind(name, given, ["prefix", "start", "end"]);
    const [from, to] = range(self, start, stop);
    const slice = from === 0 && to >= self.length ? self : slicedText(self, from, Math.max(from, to));
    const all = parts instanceof Tuple ? [...parts] : [parts];
    return from <= to && all.some((part) => slice[name](string(name, part)));
  };

function range(self: string, start: Value | undefined, stop: Value | undefined): [number, number] {
  const length = codePoints(self);
  const from = integer("start", start ?? undefined, 0);
  return bounds(length, from, integer("end", stop ?? undefined, length));
}

function bounded(size: number): number {
  if (size > MAXIMUM_TEXT) throw tooLong();
  return size;
}

const METHODS: Readonly<Record<string, Method>> = {
  capitalize: without("capitalize", capitalized),
  casefold: without("casefold", (self) => self.toUpperCase().toLowerCase().replaceAll("ς", "σ")),
  center: justified("both"),
  count(self, given) {
    const [part, start, stop] = bind("str.count", given, ["sub", "start", "end"]);
    const [from, to] = range(self, start, stop);
    if (from > to) return 0n;
    return BigInt(occurrences(slicedText(self, from, to), string("str.count", part)));
  },
  endswith: atEnd("endsWith"),
  expandtabs(self, given) {
    const [size] = bind("str.expandtabs", given, ["tabsize"]);
    const columns = bounded(integer("str.expandtabs", size, 8));
    let column = 0;
    const pieces = Array.from(self, (unit) => {
      if (unit !== "\t") {
        column = unit === "\n" || unit === "\r" ? 0 : column + 1;
        return unit;
      }
      const gap = columns > 0 ? columns - (column % columns) : 0;
      column += gap;
      return " ".repeat(gap);
    });
    return pieces.join("");
  },
  find: finding("left", false),
  format: (self, given) => formatBraces(self, given, fieldReader),
  format_map(self, given) {
    const [values] = bind("str.format_map", given, ["mapping"]);
    if (!(values instanceof Dict)) throw new TemplateError("format_map takes a dict");
    const named = new Map([...values.entries()].map(([key, value]) => [textOf(key), value]));
    return formatBraces(self, { positional: [], named }, fieldReader);
  },
  index: finding("left", true),
  join(self, given) {
    const [parts] = bind("str.join", given, ["iterable"]);
    const texts = listed(required("str.join", parts)).map((part, index) => {
      if (typeof part === "string") return part;
      if (part instanceof Markup) throw unsupportedMarkup();
      throw new TemplateError(`sequence item ${index}: expected str instance, ${typeName(part)} found`);
    });
    return joinTexts(texts, self);
  },
  ljust: justified("right"),
  lower: without("lower", (self) => self.toLowerCase()),
  lstrip: strip("left"),
  partition: partition("left"),
  removeprefix(self, given) {
    const [part] = bind("str.removeprefix", given, ["prefix"]);
    const prefix = string("str.removeprefix", part);
    return self.startsWith(prefix) ? self.slice(prefix.length) : self;
  },
  removesuffix(self, given) {
    const [part] = bind("str.removesuffix", given, ["suffix"]);
    const suffix = string("str.removesuffix", part);
    return self.endsWith(suffix) ? self.slice(0, self.length - suffix.length) : self;
  },
  replace(self, given) {
    const [old, by, most] = bind("str.replace", given, ["old", "new", "count"]);
    return replaceText(
      self,
      string("str.replace", old),
      string("str.replace", by),
      integer("str.replace", most, -1),
    );
  },
  rfind: finding("right", false),
  rindex: finding("right", true),
  rjust: justified("left"),
  rpartition: partition("right"),
  rsplit: splitting("right"),
  rstrip: strip("right"),
  split: splitting("left"),
  splitlines(self, given) {
    const [keepEnds] = bind("str.splitlines", given, ["keepends"]);
    return splitLines(self, keepEnds === true || (typeof keepEnds === "bigint" && keepEnds !== 0n));
  },
  startswith: atEnd("startsWith"),
  strip: strip("both"),
  swapcase: without("swapcase", (self) => {
    // Its lower case depends on its neighbours.
    if (self.includes("Σ")) throw new Unsupported("the method swapcase of a text with a capital sigma");
    return swapped(self);
  }),
  title: without("title", titled),
  upper: without("upper", (self) => self.toUpperCase()),
  zfill(self, given) {
    const [width] = bind("str.zfill", given, ["width"]);
    const size = bounded(integer("str.zfill", required("str.zfill", width), 0));
    const sign = /^[-+]?/.exec(self)![0];
    return sign + padded(self.slice(sign.length), size - sign.length, "0", "left");
  },
};

/** Methods of str whose results are of no use in templates. */
const UNSUPPORTED = new Set(["encode", "translate", "maketrans"]);

function stringMethod(self: string, name: string): Value | undefined {
  const question = Object.hasOwn(questions, name) ? questions[name] : undefined;
  const method = Object.hasOwn(METHODS, name) ? METHODS[name] : question && without(name, question);
  if (method !== undefined) return new Callable(name, (given) => method(self, given));
  if (UNSUPPORTED.has(name)) throw new Unsupported(`the method ${name} of a text`);
  return undefined;
}

export function joinTexts(texts: readonly string[], separator: string): string {
  const size = texts.reduce((sum, part) => sum + part.length, separator.length * texts.length);
  if (size > MAXIMUM_TEXT) throw tooLong();
  return texts.join(separator);
}

/** `str.replace` within the limit on texts. */
export function replaceText(self: string, old: string, by: string, most: number): string {
  const count = by.length > old.length ? occurrences(self, old) : 0;
  if (self.length + (by.length - old.length) * Math.min(count, most < 0 ? Infinity : most) > MAXIMUM_TEXT)
    throw tooLong();
  return replaced(self, old, by, most);
}
