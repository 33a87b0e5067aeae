/** Values as texts: Python's `str`, `repr` and `json.dumps`. */
import {
  Attributes,
  Callable,
  Dict,
  DictView,
  Forbidden,
  Iteration,
  Limit,
  Markup,
  Namespace,
  Range,
  TemplateError,
  Tuple,
  typeName,
  Undefined,
  Unsupported,
  unsupportedMarkup,
  type Value,
} from "./values.js";

/** Maximum depth of a written value: a namespace may contain itself. */
const MAXIMUM_DEPTH = 200;

/**
 * Maximum characters of one text. Lengths of pieces are summed before they are joined, so that no text above the limit
 * is created.
 */
export const MAXIMUM_TEXT = 2 ** 26;

/** `str(value)`. */
export function text(value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Undefined) return value instanceof Forbidden ? value.fail() : "";
  return representation(value);
}

/** `repr(value)`. */
export function representation(value: Value): string {
  const pieces: string[] = [];
  let size = 0;
  const put = (piece: string) => {
    size += piece.length;
    if (size > MAXIMUM_TEXT) throw tooLong();
    pieces.push(piece);
  };
  write(value, put, 0);
  return pieces.join("");
}

export const tooLong = () => new Limit(`a text may have at most ${MAXIMUM_TEXT} characters`);

function write(value: Value, put: (piece: string) => void, depth: number): void {
  if (depth > MAXIMUM_DEPTH) throw new Limit(`a value that is written may be at most ${MAXIMUM_DEPTH} deep`);
  const list = (open: string, items: Iterable<Value>, close: string) => {
    put(open);
    let separator = "";
    for (const item of items) {
      put(separator);
      write(item, put, depth + 1);
      separator = ", ";
    }
    put(close);
  };
  if (value === null) put("None");
  else if (typeof value === "boolean") put(value ? "True" : "False");
  else if (typeof value === "bigint") put(String(value));
  else if (typeof value === "number") put(floatText(value));
  else if (typeof value === "string") put(quoted(value));
  else if (value instanceof Tuple) list("(", value, value.length === 1 ? ",)" : ")");
  else if (Array.isArray(value)) list("[", value, "]");
  else if (value instanceof Dict) {
    put("{");
    let separator = "";
    for (const [key, item] of value.entries()) {
      put(separator);
      write(key, put, depth + 1);
      put(": ");
      write(item, put, depth + 1);
      separator = ", ";
    }
    put("}");
  } else if (value instanceof DictView) list(`dict_${value.part}([`, value, "])");
  else if (value instanceof Range) {
    put(`range(${value.start}, ${value.stop}${value.step === 1n ? "" : `, ${value.step}`})`);
  } else if (value instanceof Undefined) put(value instanceof Forbidden ? value.fail() : "Undefined");
  else if (value instanceof Markup) throw unsupportedMarkup();
  else if (value instanceof Namespace) {
    put("<Namespace ");
    write(new Dict(value.attributes), put, depth + 1);
    put(">");
  } else if (value instanceof Callable || value instanceof Attributes || value instanceof Iteration) {
    // Python writes its address in memory.
    throw new Unsupported(`a ${typeName(value)} cannot be written`);
  }
}

/** `repr` of a float: the shortest digits that round-trip, with Python's exponents. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [digits, power] = value.toExponential().split("e") as [string, string];
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const plain =
    exponent < 0
      ? value.toFixed(Math.max(0, digits.replace(/[-.]/g, "").length - 1 - exponent))
      : String(value);
  return plain.includes(".") ? plain : `${plain}.0`;
}

const NAMED_ESCAPES: Readonly<Record<string, string>> = {
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\\": "\\\\",
};

/** `repr` of a str. */
function quoted(value: string): string {
  const quote = value.includes("'") && !value.includes('"') ? '"' : "'";
  const escaped = value.replace(/[\\'"\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (character) => {
    if (character === "'" || character === '"') return character === quote ? `\\${character}` : character;
    const named = NAMED_ESCAPES[character];
    if (named !== undefined) return named;
    const code = character.codePointAt(0)!;
    const hex = code.toString(16);
    return code < 256
      ? `\\x${hex.padStart(2, "0")}`
      : code < 65536
        ? `\\u${hex.padStart(4, "0")}`
        : `\\U${hex.padStart(8, "0")}`;
  });
  return quote + escaped + quote;
}

export interface JsonOptions {
  readonly ensureAscii: boolean;
  /** Indentation of one level; null: everything on one line. */
  readonly indent: string | null;
  readonly separators: readonly [string, string];
  readonly sortKeys: boolean;
}

/** `json.dumps`. */
export function json(value: Value, options: JsonOptions): string {
  const pieces: string[] = [];
  let size = 0;
  const put = (piece: string) => {
    size += piece.length;
    if (size > MAXIMUM_TEXT) throw tooLong();
    pieces.push(piece);
  };
  const { indent, separators, sortKeys } = options;
  const line = (depth: number) => (indent === null ? "" : `\n${indent.repeat(depth)}`);
  const string = (content: string) => jsonString(content, options.ensureAscii);
  const visit = (item: Value, depth: number): void => {
    if (depth > MAXIMUM_DEPTH) throw new Limit(`JSON may be at most ${MAXIMUM_DEPTH} deep`);
    const members = (open: string, all: (() => void)[], close: string) => {
      put(open);
      all.forEach((member, index) => {
        if (index > 0) put(separators[0]);
        put(line(depth + 1));
        member();
      });
      if (all.length > 0) put(line(depth));
      put(close);
    };
    if (item === null) put("null");
    else if (typeof item === "boolean" || typeof item === "bigint") put(String(item));
    else if (typeof item === "number") put(jsonFloat(item));
    else if (typeof item === "string") put(string(item));
    else if (Array.isArray(item)) {
      members(
        "[",
        item.map((member) => () => visit(member, depth + 1)),
        "]",
      );
    } else if (item instanceof Dict) {
      let entries = [...item.entries()].map(([key, member]) => [jsonKey(key), member, key] as const);
      if (sortKeys) {
        if (entries.some(([, , key]) => typeof key !== "string")) {
          throw new Unsupported("sort_keys with keys that are not texts");
        }
        entries = entries.toSorted(([a], [b]) => compareTexts(a, b));
      }
      members(
        "{",
        entries.map(([key, member]) => () => {
          put(string(key) + separators[1]);
          visit(member, depth + 1);
        }),
        "}",
      );
    } else if (item instanceof Markup) throw unsupportedMarkup();
    else {
      if (item instanceof Forbidden) item.fail();
      throw new TemplateError(`Object of type ${typeName(item)} is not JSON serializable`);
    }
  };
  visit(value, 0);
  return pieces.join("");
}

function jsonFloat(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  return floatText(value);
}

function jsonKey(key: Value): string {
  if (typeof key === "string") return key;
  if (key === null) return "null";
  if (typeof key === "boolean" || typeof key === "bigint") return String(key);
  if (typeof key === "number") return jsonFloat(key);
  throw new TemplateError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

function jsonString(value: string, ensureAscii: boolean): string {
  // JSON.stringify escapes the same characters as Python with ensure_ascii=False.
  const quoted = JSON.stringify(value);
  if (!ensureAscii) return quoted;
  return quoted.replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Order of texts by code points, which differs from UTF-16's beyond U+FFFF. */
export function compareTexts(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    let [left, right] = [a.charCodeAt(index), b.charCodeAt(index)];
    if (left === right) continue;
    // Surrogates represent code points above all others.
    if (left >= 0xd800 && right >= 0xd800) {
      left = left >= 0xe000 ? left - 0x800 : left + 0x2000;
      right = right >= 0xe000 ? right - 0x800 : right + 0x2000;
    }
    return left - right;
  }
  return a.length - b.length;
}
