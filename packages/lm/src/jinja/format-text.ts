/** Python's two ways to format: `"%s" % values` and `"{}".format(values)`. */
import { padded, slicedText } from "./python-text.js";
import { floatText, MAXIMUM_TEXT, representation, text, tooLong } from "./representation.js";
import {
  codePoints,
  Dict,
  Markup,
  TemplateError,
  Tuple,
  typeName,
  Undefined,
  Unsupported,
  unsupportedMarkup,
  type Arguments,
  type Value,
} from "./values.js";

const DIRECTIVE = /%(?:\(([^)]*)\))?([-#0 +]*)(\*|\d*)(?:\.(\*|\d*))?[hlL]?([^])/g;

function width(digits: string | undefined): number {
  if (digits === "*") throw new Unsupported("a width that is an argument (%*d)");
  const value = Number(digits ?? "");
  if (value > MAXIMUM_TEXT) throw tooLong();
  return value;
}

/** `format % values`. */
export function formatPercent(format: string, values: Value): string {
  if (values instanceof Markup) throw unsupportedMarkup();
  const given = values instanceof Tuple ? values : [values];
  let used = 0;
  let named = false;
  const result = format.replace(
    DIRECTIVE,
    (
      _,
      key: string | undefined,
      flags: string,
      digits: string,
      precision: string | undefined,
      type: string,
    ) => {
      if (type === "%") return "%";
      let value: Value;
      if (key === undefined) {
        if (used >= given.length) throw new TemplateError("not enough arguments for format string");
        value = given[used++]!;
      } else {
        named = true;
        const found = values instanceof Dict ? values.get(key) : undefined;
        if (found === undefined) throw new TemplateError(`format requires a mapping with the key ${key}`);
        value = found;
      }
      const places = precision === undefined ? null : width(precision);
      const body = directive(type, value, flags, places);
      const fill = flags.includes("0") && !flags.includes("-") && !"srac".includes(type) ? "0" : " ";
      if (fill === "0") return zeroFilled(body, width(digits));
      return padded(body, width(digits), " ", flags.includes("-") ? "right" : "left");
    },
  );
  if (/%[^]*$/.test(format.replace(DIRECTIVE, ""))) throw new TemplateError("incomplete format");
  if (
    !named &&
    used < given.length &&
    !(values instanceof Dict) &&
    !(Array.isArray(values) && !(values instanceof Tuple))
  ) {
    throw new TemplateError("not all arguments converted during string formatting");
  }
  return result;
}

const zeroFilled = (body: string, size: number) => {
  const sign = /^[-+ ]?/.exec(body)![0];
  return sign + body.slice(sign.length).padStart(size - sign.length, "0");
};

function directive(type: string, value: Value, flags: string, places: number | null): string {
  const cut = (body: string) => (places === null ? body : slicedText(body, 0, places));
  if (type === "s") return cut(text(value));
  if (type === "r" || type === "a") return cut(representation(value));
  if (type === "c") {
    if (typeof value === "bigint") return String.fromCodePoint(Number(value));
    return text(value);
  }
  const plus = flags.includes("+") ? "+" : flags.includes(" ") ? " " : "";
  const signed = (body: string) => (body.startsWith("-") ? body : plus + body);
  if (typeof value === "boolean") return directive(type, value ? 1n : 0n, flags, places);
  if (value instanceof Undefined) value.fail();
  if (typeof value !== "bigint" && typeof value !== "number") {
    throw new TemplateError(`%${type} format: a number is required, not ${typeName(value)}`);
  }
  if ("diu".includes(type)) {
    const whole = typeof value === "number" ? BigInt(Math.trunc(value)) : value;
    return signed(places === null ? String(whole) : zeroFilled(String(whole), places + (whole < 0n ? 1 : 0)));
  }
  if ("xXo".includes(type) && typeof value === "bigint")
    return signed(integerText(value, type, flags.includes("#")));
  if ("fFeEgG".includes(type)) return signed(fixed(Number(value), type, places ?? 6));
  throw new TemplateError(`unsupported format character '${type}'`);
}

function integerText(value: bigint, type: string, prefixed: boolean): string {
  const base = { x: 16, X: 16, o: 8, b: 2 }[type] ?? 10;
  const digits = (value < 0n ? -value : value).toString(base);
  const prefix = prefixed && base !== 10 ? `0${type}` : "";
  return (value < 0n ? "-" : "") + prefix + (type === "X" ? digits.toUpperCase() : digits);
}

function fixed(value: number, type: string, places: number): string {
  if (places > 100) throw new Unsupported("more than 100 digits");
  const kind = type.toLowerCase();
  let body: string;
  if (!Number.isFinite(value)) body = floatText(value);
  else if (kind === "f") body = Math.abs(value) >= 1e21 ? wholeFixed(value, places) : value.toFixed(places);
  else if (kind === "e") body = exponential(value, places);
  else {
    const precision = places === 0 ? 1 : places;
    const exponent = Number(value.toExponential(precision - 1).split("e")[1]);
    const plain =
      exponent < -4 || exponent >= precision
        ? exponential(value, precision - 1).replace(/\.?0+(?=e)/, "")
        : value.toFixed(precision - 1 - exponent);
    body = plain.includes(".") && !plain.includes("e") ? plain.replace(/\.?0+$/, "") : plain;
  }
  return type === kind ? body : body.toUpperCase();
}

const wholeFixed = (value: number, places: number) =>
  BigInt(value) + (places > 0 ? `.${"0".repeat(places)}` : "");

function exponential(value: number, places: number): string {
  const [digits, power] = value.toExponential(places).split("e") as [string, string];
  return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

/** How `format` reads attributes and elements of its arguments: `{0.name[key]}`. */
export interface FieldReader {
  attribute(value: Value, name: string): Value;
  item(value: Value, key: Value): Value;
}

/** `format.format(…)`, as in the sandbox. */
export function formatBraces(format: string, given: Arguments, reader: FieldReader): string {
  let next = 0;
  let numbered = false;
  const field = (name: string): Value => {
    const [, head, tail] = /^([^.[]*)([^]*)$/.exec(name)!;
    let value: Value | undefined;
    if (head === "" || /^\d+$/.test(head!)) {
      if (head === "" ? numbered : next > 0) {
        throw new TemplateError("cannot mix automatic and manual numbering of fields");
      }
      if (head !== "") numbered = true;
      value = given.positional[head === "" ? next++ : Number(head)];
      if (value === undefined)
        throw new TemplateError("Replacement index out of range for positional args tuple");
    } else {
      value = given.named.get(head!);
      if (value === undefined) throw new TemplateError(`there is no argument ${head} to format`);
    }
    for (const [, attribute, key] of tail!.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
      value =
        attribute === undefined
          ? reader.item(value, /^\d+$/.test(key!) ? BigInt(key!) : key!)
          : reader.attribute(value, attribute);
    }
    return value;
  };
  const expand = (pattern: string, depth: number): string => {
    if (depth > 2) throw new TemplateError("Max string recursion exceeded");
    let result = "";
    for (let at = 0; at < pattern.length;) {
      const unit = pattern[at]!;
      if (depth === 1 && (unit === "{" || unit === "}") && pattern[at + 1] === unit) {
        result += unit;
        at += 2;
      } else if (unit === "}") throw new TemplateError("Single '}' encountered in format string");
      else if (unit !== "{") {
        result += unit;
        at++;
      } else {
        let level = 1;
        let end = at + 1;
        for (; end < pattern.length && level > 0; end++) {
          if (pattern[end] === "{") level++;
          if (pattern[end] === "}") level--;
        }
        if (level > 0) throw new TemplateError("expected '}' before end of string");
        const [, name, conversion, specification] =
          /^((?:[^!:[]|\[[^\]]*\])*)(?:!([^:]*))?(?::([^]*))?$/.exec(pattern.slice(at + 1, end - 1))!;
        let value = field(name!);
        if (conversion === "s") value = text(value);
        else if (conversion === "r" || conversion === "a") value = representation(value);
        else if (conversion !== undefined)
          throw new TemplateError(`Unknown conversion specifier ${conversion}`);
        result += specified(value, expand(specification ?? "", depth + 1));
        at = end;
      }
      if (result.length > MAXIMUM_TEXT) throw tooLong();
    }
    return result;
  };
  return expand(format, 1);
}

const SPECIFICATION = /^(?:([^])?([<>=^]))?([-+ ])?(z)?(#)?(0)?(\d+)?([_,])?(?:\.(\d+))?([a-zA-Z%])?$/u;

/** `format(value, specification)`. */
function specified(value: Value, specification: string): string {
  if (value instanceof Markup) throw unsupportedMarkup();
  if (specification === "") return text(value);
  const match = SPECIFICATION.exec(specification);
  if (match === null) throw new TemplateError(`Invalid format specifier '${specification}'`);
  const [, fillGiven, alignGiven, sign, , alternate, zero, digits, grouping, precision, type] = match;
  const size = width(digits);
  const places = precision === undefined ? null : width(precision);
  const isNumber =
    typeof value === "bigint" ||
    typeof value === "number" ||
    (typeof value === "boolean" && type !== undefined && type !== "s");
  if (!isNumber) {
    if (typeof value !== "string" && typeof value !== "boolean") {
      if (value instanceof Undefined) value.fail();
      throw new TemplateError(`unsupported format string passed to ${typeName(value)}.__format__`);
    }
    if ((type !== undefined && type !== "s") || sign !== undefined || alignGiven === "=") {
      throw new TemplateError(`Unknown format code '${type ?? sign ?? "="}' for object of type 'str'`);
    }
    const content = text(value);
    return aligned(
      places === null ? content : slicedText(content, 0, places),
      size,
      fillGiven ?? (zero === undefined ? " " : "0"),
      alignGiven ?? "<",
    );
  }
  const number = typeof value === "boolean" ? (value ? 1n : 0n) : value;
  let body: string;
  if (typeof number === "bigint" && (type === undefined || "dxXobn".includes(type))) {
    if (places !== null) throw new TemplateError("Precision not allowed in integer format specifier");
    body = integerText(number, type ?? "d", alternate !== undefined);
  } else if (type === undefined) {
    if (places !== null) throw new Unsupported("a precision without a type of format");
    body = floatText(number as number);
  } else if (type === "%") body = `${fixed(Number(number) * 100, "f", places ?? 6)}%`;
  else if ("fFeEgG".includes(type)) body = fixed(Number(number), type, places ?? 6);
  else throw new TemplateError(`Unknown format code '${type}' for object of type '${typeName(value)}'`);
  if (grouping !== undefined) {
    body = body.replace(/^-?\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, grouping));
  }
  if (sign !== undefined && sign !== "-" && !body.startsWith("-")) body = sign + body;
  if (zero !== undefined && alignGiven === undefined) return zeroFilled(body, size);
  if (alignGiven === "=") {
    const lead = /^[-+ ]?/.exec(body)![0];
    return lead + padded(body.slice(lead.length), size - lead.length, fillGiven ?? " ", "left");
  }
  return aligned(body, size, fillGiven ?? " ", alignGiven ?? ">");
}

function aligned(body: string, size: number, fill: string, align: string): string {
  if (align === "^") {
    const missing = Math.max(0, size - codePoints(body));
    const left = Math.floor(missing / 2);
    return fill.repeat(left) + body + fill.repeat(missing - left);
  }
  return padded(body, size, fill, align === "<" ? "right" : "left");
}
