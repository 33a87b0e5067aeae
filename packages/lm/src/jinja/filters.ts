/** Jinja's filters that give texts and numbers; those on collections are in collection-filters.ts. */
import { bind, integer, optionalString, required, string } from "./arguments.js";
import { collectionFilters } from "./collection-filters.js";
import { formatPercent } from "./format-text.js";
import { joinTexts, replaceText } from "./methods.js";
import { numeric } from "./operators.js";
import { capitalized, padded, slicedText, SPACE, split, splitLines, stripped } from "./python-text.js";
import { json, MAXIMUM_TEXT, text, tooLong } from "./representation.js";
import {
  codePoints,
  Dict,
  isTrue,
  lengthOf,
  Limit,
  Markup,
  TemplateError,
  tupleOf,
  typeName,
  Undefined,
  Unsupported,
  unsupportedMarkup,
  type Arguments,
  type Value,
} from "./values.js";

/** The filters and tests that a filter may call by name. */
export interface Runtime {
  filter(name: string, value: Value, given: Arguments): Value;
  test(name: string, value: Value, given: readonly Value[]): boolean;
}

export type Filter = (value: Value, given: Arguments, runtime: Runtime) => Value;

/** Maximum characters by which a filter may indent. */
const MAXIMUM_INDENT = 100;

/** A filter whose arguments have names, in this order. */
const named =
  (parameters: readonly string[], apply: (value: Value, ...given: (Value | undefined)[]) => Value): Filter =>
  (value, given) =>
    apply(value, ...bind("the filter", given, parameters));

const isGiven = (flag: Value | undefined): boolean => flag !== undefined && isTrue(flag);

const escaped = (value: Value): Markup =>
  value instanceof Markup
    ? value
    : new Markup(
        text(value).replace(
          /[&<>'"]/g,
          (unit) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;" })[unit]!,
        ),
      );

const defaultFilter = named(["default_value", "boolean"], (value, other = "", boolean) =>
  value instanceof Undefined || (isGiven(boolean) && !isTrue(value)) ? other : value,
);

const length = named([], (value) => {
  const size = lengthOf(value);
  if (size === null) throw new TemplateError(`object of type '${typeName(value)}' has no len()`);
  return BigInt(size);
});

const texts: Readonly<Record<string, Filter>> = {
  abs: named([], (value) => {
    const number = numeric(value);
    if (number === null) throw notANumber("abs", value);
    return number < 0 ? -number : number;
  }),
  capitalize: named([], (value) => capitalized(text(value))),
  center: named(["width"], (value, width) =>
    padded(text(value), bounded(integer("center", width, 80)), " ", "both"),
  ),
  count: length,
  d: defaultFilter,
  default: defaultFilter,
  e: named([], escaped),
  escape: named([], escaped),
  filesizeformat: named(["binary"], (value, binary) => fileSize(value, isGiven(binary))),
  float: named(["default"], (value, other = 0) => toFloat(value) ?? other),
  forceescape: named([], (value) => escaped(value instanceof Markup ? value.text : value)),
  format(value, given) {
    if (given.positional.length > 0 && given.named.size > 0) {
      throw new TemplateError("format takes positional or named arguments, not both");
    }
    const values = given.named.size > 0 ? new Dict(given.named) : tupleOf(...given.positional);
    return formatPercent(text(value), values);
  },
  indent: named(["width", "first", "blank"], (value, width = 4n, first, blank) => {
    if (value instanceof Markup) throw unsupportedMarkup();
    const by = typeof width === "string" ? width : " ".repeat(indentation(width));
    return indented(string("indent", value), by, isGiven(first), isGiven(blank));
  }),
  int: named(
    ["default", "base"],
    (value, other = 0n, base) => toInt(value, integer("int", base, 10)) ?? other,
  ),
  length,
  lower: named([], (value) => text(value).toLowerCase()),
  replace: named(["old", "new", "count"], (value, old, by, count) => {
    const most = count === undefined || count === null ? -1 : integer("replace", count, -1);
    return replaceText(text(value), text(required("replace", old)), text(required("replace", by)), most);
  }),
  round: named(["precision", "method"], (value, precision, method = "common") =>
    rounded(value, integer("round", precision, 0), method),
  ),
  safe: named([], (value) => new Markup(text(value))),
  string: named([], (value) => (value instanceof Markup ? value : text(value))),
  striptags: named([], (value) => {
    const plain = text(value)
      .replace(/<!--[^]*?-->/g, "")
      .replace(/<[^>]*>/g, "");
    if (plain.includes("&")) throw new Unsupported("the filter striptags on a text with entities");
    return split(plain, null, -1, "left").join(" ");
  }),
  title: named([], (value) =>
    text(value)
      .split(new RegExp(`((?:[-({[<]|${SPACE})+)`))
      .filter((part) => part !== "")
      .map((part) => part.charAt(0).toUpperCase() + part.slice(1).toLowerCase())
      .join(""),
  ),
  tojson: named(
    ["ensure_ascii", "indent", "separators", "sort_keys"],
    (value, ensureAscii, indent, separators, sortKeys) => {
      const by =
        indent === undefined || indent === null
          ? null
          : typeof indent === "string"
            ? indent
            : " ".repeat(indentation(indent));
      if (by !== null && by.length > MAXIMUM_INDENT) throw tooDeep(by.length);
      const given = Array.isArray(separators) ? [...separators].map((part) => string("tojson", part)) : null;
      return json(value, {
        ensureAscii: isGiven(ensureAscii),
        indent: by,
        separators: given === null ? [by === null ? ", " : ",", ": "] : [given[0]!, given[1]!],
        sortKeys: isGiven(sortKeys),
      });
    },
  ),
  trim: named(["chars"], (value, characters) =>
    stripped(text(value), "both", optionalString("trim", characters)),
  ),
  truncate: named(["length", "killwords", "end", "leeway"], (value, length, kill, end, leeway) => {
    const ending = end === undefined ? "..." : string("truncate", end);
    const most = integer("truncate", length, 255);
    const spare = leeway === undefined || leeway === null ? 5 : integer("truncate", leeway, 5);
    const room = most - codePoints(ending);
    if (room < 0 || spare < 0) throw new TemplateError("truncate: the length or the leeway is too small");
    const size = lengthOf(value);
    if (size !== null && size <= most + spare) return value;
    if (typeof value !== "string") throw new Unsupported("the filter truncate on values that are not texts");
    const cut = slicedText(value, 0, room);
    return (isGiven(kill) ? cut : split(cut, " ", 1, "right")[0]!) + ending;
  }),
  upper: named([], (value) => text(value).toUpperCase()),
  urlencode: named([], (value) => {
    if (typeof value === "object" && lengthOf(value) !== null)
      throw new Unsupported("the filter urlencode on collections");
    return encodeURIComponent(text(value)).replace(/[!'()*]|%2F/g, (unit) =>
      unit === "%2F" ? "/" : `%${unit.charCodeAt(0).toString(16).toUpperCase()}`,
    );
  }),
  wordcount: named([], (value) => BigInt(text(value).match(/[\p{L}\p{N}_]+/gu)?.length ?? 0)),
};

const FILTERS: Readonly<Record<string, Filter>> = { ...texts, ...collectionFilters };

/** Filters of Jinja that are not used in chat templates. */
const UNSUPPORTED = new Set(["pprint", "random", "urlize", "wordwrap", "xmlattr"]);

export const isFilter = (name: string): boolean => Object.hasOwn(FILTERS, name) || UNSUPPORTED.has(name);

export function filterOf(name: string): Filter {
  if (Object.hasOwn(FILTERS, name)) return FILTERS[name]!;
  if (UNSUPPORTED.has(name)) throw new Unsupported(`the filter ${name}`);
  throw new TemplateError(`No filter named '${name}' found.`);
}

function notANumber(where: string, value: Value): TemplateError {
  if (value instanceof Undefined) value.fail();
  return new TemplateError(`bad operand type for ${where}(): '${typeName(value)}'`);
}

function bounded(size: number): number {
  if (size > MAXIMUM_TEXT) throw tooLong();
  return size;
}

const tooDeep = (size: number) =>
  new Limit(`a text may be indented by at most ${MAXIMUM_INDENT} characters, not by ${size}`);

function indentation(width: Value): number {
  const size = integer("indent", width, 4);
  if (size > MAXIMUM_INDENT) throw tooDeep(size);
  return Math.max(0, size);
}

function indented(value: string, by: string, first: boolean, blank: boolean): string {
  const lines = splitLines(`${value}\n`);
  if ((by.length + 1) * lines.length + value.length > MAXIMUM_TEXT) throw tooLong();
  const body = lines.map((line, index) => (index > 0 && (blank || line !== "") ? by + line : line));
  return (first ? by : "") + joinTexts(body, "\n");
}

const NUMBER = /^[-+]?(?:(?:\d+(?:_\d+)*)?\.?(?:\d+(?:_\d+)*)?(?:[eE][-+]?\d+(?:_\d+)*)?)$/;

/** `float(value)`; null where Python's fails. */
function toFloat(value: Value): number | null {
  const number = numeric(value);
  if (number !== null) return Number(number);
  if (typeof value !== "string") {
    if (value instanceof Undefined) value.fail();
    return null;
  }
  const trimmed = stripped(value, "both", null);
  const special = /^([-+]?)(?:(inf(?:inity)?)|nan)$/i.exec(trimmed);
  if (special !== null) return special[2] === undefined ? NaN : special[1] === "-" ? -Infinity : Infinity;
  return NUMBER.test(trimmed) && /\d/.test(trimmed.split(/e/i)[0]!)
    ? Number(trimmed.replaceAll("_", ""))
    : null;
}

/** `int(value)`, or of the float in the text; null if both fail. */
function toInt(value: Value, base: number): bigint | null {
  if (typeof value === "string") {
    const [, sign, prefix, digits] =
      /^([-+]?)(0[xX]|0[oO]|0[bB])?(\w*)$/.exec(stripped(value, "both", null)) ?? [];
    const bases: Readonly<Record<string, number>> = { "0x": 16, "0o": 8, "0b": 2 };
    const own = prefix === undefined ? undefined : bases[prefix.toLowerCase()];
    const plain = digits?.replaceAll("_", "") ?? "";
    const valid = (at: number) =>
      plain !== "" && Array.from(plain).every((digit) => Number.parseInt(digit, at) >= 0);
    if (base === 10 ? own === undefined && valid(10) : own === base || (own === undefined && valid(base))) {
      if (plain.length > 300) throw new Limit("an int may have at most 1024 bits");
      const magnitude =
        base === 10
          ? BigInt(plain)
          : Array.from(plain).reduce(
              (sum, digit) => sum * BigInt(base) + BigInt(Number.parseInt(digit, base)),
              0n,
            );
      return sign === "-" ? -magnitude : magnitude;
    }
  }
  if (typeof value === "bigint") return value;
  const number = value instanceof Undefined ? value.fail() : toFloat(value);
  return number === null || !Number.isFinite(number) ? null : BigInt(Math.trunc(number));
}

function rounded(value: Value, precision: number, method: Value): Value {
  const number = numeric(value);
  if (number === null) throw notANumber("round", value);
  if (method !== "common" && method !== "ceil" && method !== "floor") {
    throw new TemplateError("method must be common, ceil or floor");
  }
  if (Math.abs(precision) > 100) throw new Unsupported("rounding to more than 100 digits");
  if (method !== "common") {
    const scale = 10 ** precision;
    const scaled = Number(number) * scale;
    return (method === "ceil" ? Math.ceil(scaled) : Math.floor(scaled)) / scale;
  }
  if (typeof number === "bigint") {
    if (precision >= 0) return number;
    throw new Unsupported("rounding an int to tens");
  }
  if (precision < 0) throw new Unsupported("rounding to tens");
  // Python rounds the exact binary value, halves to even; toFixed differs only for halves, which it rounds away from
  // zero.
  const fixed = Number(number.toFixed(precision));
  const exact = number * 2 ** 40;
  const isHalf =
    precision === 0
      ? Math.abs(number % 1) === 0.5
      : Number.isInteger(exact) && Math.abs((number * 10 ** precision) % 1) === 0.5;
  if (!isHalf) return fixed;
  const scale = 10 ** precision;
  const below = Math.floor(number * scale);
  return (below % 2 === 0 ? below : below + 1) / scale;
}

function fileSize(value: Value, binary: boolean): string {
  const bytes = toFloat(value);
  if (bytes === null) throw notANumber("filesizeformat", value);
  const base = binary ? 1024 : 1000;
  if (bytes === 1) return "1 Byte";
  if (bytes < base) return `${Math.trunc(bytes)} Bytes`;
  const prefixes = binary
    ? ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]
    : ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];
  let index = 0;
  while (index < prefixes.length - 1 && bytes >= base ** (index + 2)) index++;
  return `${((base * bytes) / base ** (index + 2)).toFixed(1)} ${prefixes[index]}`;
}
