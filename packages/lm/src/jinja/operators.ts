/** Python's operators on values. */
import { slicedText, units } from "./python-text.js";
import { formatPercent } from "./format-text.js";
import { compareTexts, MAXIMUM_TEXT, tooLong } from "./representation.js";
import {
  Dict,
  DictView,
  Forbidden,
  Iteration,
  Limit,
  listed,
  Markup,
  Range,
  TemplateError,
  Tuple,
  tupleOf,
  typeName,
  Undefined,
  Unsupported,
  unsupportedMarkup,
  type Value,
} from "./values.js";

/** Maximum bits of an int. */
const MAXIMUM_INT = 2n ** 1024n;
/** Maximum elements of a list created by an operator. */
const MAXIMUM_LIST = 2 ** 22;

type Numeric = bigint | number;

/** A value as a number: bool is int in Python. */
export function numeric(value: Value): Numeric | null {
  if (typeof value === "boolean") return value ? 1n : 0n;
  return typeof value === "bigint" || typeof value === "number" ? value : null;
}

/** `%` of numbers. */
export function remainderOf(a: Numeric, b: Numeric): Numeric {
  return typeof a === "bigint" && typeof b === "bigint"
    ? integers("%", a, b)
    : floats("%", Number(a), Number(b));
}

export const isNumeric = (value: Value): boolean => numeric(value) !== null;

export function binary(operator: string, left: Value, right: Value): Value {
  for (const side of [left, right]) {
    if (side instanceof Undefined) side.fail();
    if (side instanceof Markup) throw unsupportedMarkup();
  }
  const [a, b] = [numeric(left), numeric(right)];
  if (a !== null && b !== null) {
    if (typeof a === "bigint" && typeof b === "bigint") return integers(operator, a, b);
    return floats(operator, Number(a), Number(b));
  }
  if (operator === "+") {
    if (typeof left === "string" && typeof right === "string") return left + right;
    if (Array.isArray(left) && Array.isArray(right) && left instanceof Tuple === right instanceof Tuple) {
      return left instanceof Tuple ? tupleOf(...left, ...right) : [...left, ...right];
    }
  }
  if (operator === "*") {
    if (typeof b === "bigint" && isSequence(left)) return repeated(left, b);
    if (typeof a === "bigint" && isSequence(right)) return repeated(right, a);
  }
  if (operator === "%" && typeof left === "string") return formatPercent(left, right);
  if (operator === "+" && typeof left === "string") {
    throw new TemplateError(`can only concatenate str (not "${typeName(right)}") to str`);
  }
  throw new TemplateError(
    `unsupported operand type(s) for ${operator}: '${typeName(left)}' and '${typeName(right)}'`,
  );
}

const isSequence = (value: Value): value is string | Value[] =>
  typeof value === "string" || Array.isArray(value);

function repeated(value: string | Value[], times: bigint): Value {
  const count = times < 0n ? 0 : Number(times);
  if (typeof value === "string") {
    if (value.length * count > MAXIMUM_TEXT) throw tooLong();
    return value.repeat(count);
  }
  if (value.length * count > MAXIMUM_LIST)
    throw new Limit(`a list may have at most ${MAXIMUM_LIST} elements`);
  const items = Array.from({ length: count }, () => [...value]).flat();
  return value instanceof Tuple ? tupleOf(...items) : items;
}

function integers(operator: string, a: bigint, b: bigint): Numeric {
  if ("/%//".includes(operator) && b === 0n) {
    throw new TemplateError(operator === "/" ? "division by zero" : "integer division or modulo by zero");
  }
  switch (operator) {
    case "+":
      return bounded(a + b);
    case "-":
      return bounded(a - b);
    case "*":
      return bounded(a * b);
    case "/":
      return Number(a) / Number(b);
    case "//":
      return (a - modulo(a, b)) / b;
    case "%":
      return modulo(a, b);
    default:
      return power(a, b);
  }
}

/** Of floats: exact, with the sign of the divisor. */
function remainder(a: number, b: number): number {
  const rest = a % b;
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
}

const modulo = (a: bigint, b: bigint) => ((a % b) + b) % b;

function power(a: bigint, b: bigint): Numeric {
  if (b < 0n) return floats("**", Number(a), Number(b));
  if (a !== 0n && a !== 1n && a !== -1n && (b > 1024n || BigInt(a.toString(2).length - 1) * b > 1024n))
    throw tooLarge();
  return bounded(a ** b);
}

const tooLarge = () => new Limit("an int may have at most 1024 bits");

function bounded(value: bigint): bigint {
  if (value > MAXIMUM_INT || value < -MAXIMUM_INT) throw tooLarge();
  return value;
}

function floats(operator: string, a: number, b: number): number {
  if ("/%//".includes(operator) && b === 0) throw new TemplateError("float division by zero");
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return a / b;
    case "//":
      return Math.floor((a - remainder(a, b)) / b + 0.5);
    case "%":
      return remainder(a, b);
    default: {
      if (a === 0 && b < 0) throw new TemplateError("0.0 cannot be raised to a negative power");
      const result = a ** b;
      if (Number.isNaN(result) && a < 0) throw new Unsupported("complex numbers");
      if (!Number.isFinite(result) && Number.isFinite(a) && Number.isFinite(b)) {
        throw new TemplateError("numerical result out of range");
      }
      return result;
    }
  }
}

export function negative(value: Value): Value {
  const number = numeric(value);
  if (number === null) throw badOperand("-", value);
  return -number;
}

export function positive(value: Value): Value {
  const number = numeric(value);
  if (number === null) throw badOperand("+", value);
  return number;
}

function badOperand(operator: string, value: Value): TemplateError {
  if (value instanceof Undefined) value.fail();
  return new TemplateError(`bad operand type for unary ${operator}: '${typeName(value)}'`);
}

/** `==`. */
export function equals(a: Value, b: Value): boolean {
  if (a instanceof Forbidden) a.fail();
  if (b instanceof Forbidden) b.fail();
  if (a instanceof Undefined) return b instanceof Undefined;
  const [left, right] = [numeric(a), numeric(b)];
  // An int and a float are compared by value, as JavaScript's == does.
  // oxlint-disable-next-line eqeqeq
  if (left !== null && right !== null) return left == right;
  if (Array.isArray(a) && Array.isArray(b)) {
    return (
      a instanceof Tuple === b instanceof Tuple &&
      a.length === b.length &&
      Array.prototype.every.call(a, (item: Value, index) => item === b[index] || equals(item, b[index]!))
    );
  }
  if (a instanceof Dict && b instanceof Dict) {
    if (a.size !== b.size) return false;
    for (const [key, value] of a.entries()) {
      const other = b.get(key);
      if (other === undefined || !equals(value, other)) return false;
    }
    return true;
  }
  if (a instanceof Range && b instanceof Range) {
    return (
      a.length === b.length &&
      (a.length === 0 || (a.start === b.start && (a.length === 1 || a.step === b.step)))
    );
  }
  if (a instanceof Markup) return equals(a.text, b);
  if (b instanceof Markup) return equals(a, b.text);
  return a === b;
}

/** Order of two values: below, at or above 0; NaN if one is not a number. */
export function order(operator: string, a: Value, b: Value): number {
  const [left, right] = [numeric(a), numeric(b)];
  if (left !== null && right !== null) return left < right ? -1 : left > right ? 1 : left == right ? 0 : NaN; // oxlint-disable-line eqeqeq
  if (typeof a === "string" && typeof b === "string") return compareTexts(a, b);
  if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) {
    for (let index = 0; index < Math.min(a.length, b.length); index++) {
      if (!equals(a[index]!, b[index]!)) return order(operator, a[index]!, b[index]!);
    }
    return a.length - b.length;
  }
  for (const side of [a, b]) if (side instanceof Undefined) side.fail();
  throw new TemplateError(
    `'${operator}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`,
  );
}

export function compare(operator: string, a: Value, b: Value): boolean {
  switch (operator) {
    case "==":
      return equals(a, b);
    case "!=":
      return !equals(a, b);
    case "in":
      return contains(b, a);
    case "not in":
      return !contains(b, a);
    case "<":
      return order(operator, a, b) < 0;
    case "<=":
      return order(operator, a, b) <= 0;
    case ">":
      return order(operator, a, b) > 0;
    default:
      return order(operator, a, b) >= 0;
  }
}

/** `item in container`. */
export function contains(container: Value, item: Value): boolean {
  if (typeof container === "string") {
    if (item instanceof Undefined) item.fail();
    if (item instanceof Markup) throw unsupportedMarkup();
    if (typeof item !== "string") {
      throw new TemplateError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    }
    return container.includes(item);
  }
  if (container instanceof Dict) return container.has(item);
  if (container instanceof DictView && container.part === "keys") return container.dict.has(item);
  if (
    Array.isArray(container) ||
    container instanceof Range ||
    container instanceof DictView ||
    container instanceof Iteration ||
    container instanceof Undefined
  ) {
    return listed(container).some((member) => member === item || equals(member, item));
  }
  if (container instanceof Markup) throw unsupportedMarkup();
  throw new TemplateError(`argument of type '${typeName(container)}' is not iterable`);
}

/** A position as in Python: negative from the end. @returns null if it is out of range */
function index(at: bigint, length: number): number | null {
  const place = at < 0n ? Number(at) + length : Number(at);
  return place >= 0 && place < length ? place : null;
}

/** `value[key]` of Python; undefined if Python raises a LookupError or TypeError. */
export function element(value: Value, key: Value): Value | undefined {
  if (value instanceof Dict) {
    return Array.isArray(key) && !(key instanceof Tuple) ? undefined : value.get(key);
  }
  const number = numeric(key);
  if (typeof number !== "bigint") return undefined;
  if (typeof value === "string") {
    const all = units(value);
    const at = index(number, all.length);
    return at === null ? undefined : all[at];
  }
  if (Array.isArray(value)) {
    const at = index(number, value.length);
    return at === null ? undefined : value[at];
  }
  if (value instanceof Range) {
    const at = index(number, value.length);
    return at === null ? undefined : value.at(at);
  }
  return undefined;
}

/** `value[start:stop:step]`; undefined if a value cannot be sliced. */
export function sliced(value: Value, start: Value, stop: Value, step: Value): Value | undefined {
  if (typeof value !== "string" && !Array.isArray(value) && !(value instanceof Range)) return undefined;
  const bound = (given: Value) => {
    if (given === null) return null;
    const number = numeric(given);
    return typeof number === "bigint" ? Number(number) : undefined;
  };
  const [from, to, by] = [bound(start), bound(stop), bound(step)];
  if (from === undefined || to === undefined || by === undefined) return undefined;
  if (by === 0) throw new TemplateError("slice step cannot be zero");
  const all = typeof value === "string" ? units(value) : value;
  const { length } = all;
  const stride = by ?? 1;
  const clamp = (given: number | null, missing: number) => {
    if (given === null) return missing;
    const place = given < 0 ? given + length : given;
    return stride > 0 ? Math.min(Math.max(place, 0), length) : Math.min(Math.max(place, -1), length - 1);
  };
  const first = clamp(from, stride > 0 ? 0 : length - 1);
  const last = clamp(to, stride > 0 ? length : -1);
  if (stride === 1 && typeof value === "string") return slicedText(value, first, Math.max(first, last));
  const places: number[] = [];
  for (let at = first; stride > 0 ? at < last : at > last; at += stride) places.push(at);
  if (typeof value === "string") return places.map((at) => (all as string)[at]!).join("");
  if (value instanceof Range) {
    const at = (place: number) => value.start + BigInt(place) * value.step;
    return new Range(at(first), at(last), value.step * BigInt(stride));
  }
  const items = places.map((at) => value[at]!);
  return value instanceof Tuple ? tupleOf(...items) : items;
}
