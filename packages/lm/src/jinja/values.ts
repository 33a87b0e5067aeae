/**
 * The values of a template: Python's, represented by JavaScript's if these behave alike. None is null, an int a bigint,
 * a float a number, a str a string (lengths and positions count code points: python-text.ts), a list an array.
 */

export type Value =
  | null
  | boolean
  | bigint
  | number
  | string
  | Value[]
  | Dict
  | Undefined
  | Callable
  | Namespace
  | Range
  | DictView
  | Iteration
  | Markup
  | Attributes;

/** An error that Python also raises when it renders the template. */
export class TemplateError extends Error {}
/** `raise_exception`: the template's author refuses a conversation. */
export class Refusal extends Error {}
/** A feature of Python's Jinja that is not supported here. */
export class Unsupported extends Error {}
/** A limit on work or memory was exceeded; neither the template's semantics nor the conversation is at fault. */
export class Limit extends Error {}

/** The value of an unset variable: prints nothing, is false, and fails on any other use. */
export class Undefined {
  constructor(readonly about: string) {}

  fail(): never {
    throw new TemplateError(this.about);
  }
}

/** Reads of attributes that the sandbox forbids: they fail on any use. */
export class Forbidden extends Undefined {}

/** A Python tuple. */
export class Tuple extends Array<Value> {
  static override get [Symbol.species]() {
    return Array;
  }
}

export function tupleOf(...items: readonly Value[]): Tuple {
  const tuple = new Tuple();
  for (const item of items) tuple.push(item);
  return tuple;
}

/** A Python dict: keys are equal as Python's are (1, 1.0 and True are one key), in order of insertion. */
export class Dict {
  readonly #entries = new Map<unknown, [Value, Value]>();

  constructor(entries: Iterable<readonly [Value, Value]> = []) {
    for (const [key, value] of entries) this.set(key, value);
  }

  get size(): number {
    return this.#entries.size;
  }

  has(key: Value): boolean {
    return this.#entries.has(hashed(key));
  }

  get(key: Value): Value | undefined {
    return this.#entries.get(hashed(key))?.[1];
  }

  set(key: Value, value: Value): void {
    const hash = hashed(key);
    // A key that is equal to an earlier one keeps the earlier representation.
    this.#entries.set(hash, [this.#entries.get(hash)?.[0] ?? key, value]);
  }

  *keys(): Generator<Value> {
    for (const [key] of this.#entries.values()) yield key;
  }

  entries(): IterableIterator<[Value, Value]> {
    return this.#entries.values();
  }
}

/** The result of `d.keys()`, `d.values()` and `d.items()`. */
export class DictView {
  constructor(
    readonly dict: Dict,
    readonly part: "keys" | "values" | "items",
  ) {}

  *[Symbol.iterator](): Generator<Value> {
    for (const [key, value] of this.dict.entries()) {
      yield this.part === "keys" ? key : this.part === "values" ? value : tupleOf(key, value);
    }
  }
}

export class Range {
  readonly length: number;

  constructor(
    readonly start: bigint,
    readonly stop: bigint,
    readonly step: bigint,
  ) {
    const span = step > 0n ? stop - start : start - stop;
    const size = step > 0n ? step : -step;
    this.length = span <= 0n ? 0 : Number((span + size - 1n) / size);
  }

  at(index: number): bigint {
    return this.start + BigInt(index) * this.step;
  }

  *[Symbol.iterator](): Generator<Value> {
    for (let index = 0; index < this.length; index++) yield this.at(index);
  }
}

/** A Python iterator (of a generator or of `reversed`): it can be read once, and has no length. */
export class Iteration {
  constructor(
    readonly iterator: Iterator<Value>,
    readonly name = "generator object",
  ) {}
}

/** Text marked as HTML by `escape` or `safe`. It can be written, compared and tested; other uses are not supported. */
export class Markup {
  constructor(readonly text: string) {}
}

/** A value unless it is undefined, else another. (`??` would also replace None.) */
export const orElse = (value: Value | undefined, other: () => Value): Value =>
  value === undefined ? other() : value;

/** Named and positional arguments of a call. */
export interface Arguments {
  readonly positional: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;
}

export class Callable {
  constructor(
    readonly name: string,
    readonly call: (given: Arguments) => Value,
  ) {}
}

/** `namespace()`, whose attributes a template may set. */
export class Namespace {
  readonly attributes = new Map<string, Value>();
}

/** An object with attributes that are computed on access: `loop`, `cycler()`, `joiner()`. */
export abstract class Attributes {
  abstract readonly name: string;
  abstract attribute(name: string): Value | undefined;
}

function hashed(key: Value): unknown {
  if (typeof key === "boolean") return key ? 1n : 0n;
  if (typeof key === "number") return Number.isInteger(key) ? BigInt(key) : key;
  if (key instanceof Tuple)
    return `\0(${key.map((item) => `${typeof item} ${String(hashed(item))}`).join()})`;
  if (Array.isArray(key) || key instanceof Dict) {
    throw new TemplateError(`unhashable type: '${typeName(key)}'`);
  }
  // Undefined values are equal to each other.
  if (key instanceof Undefined) return Undefined;
  return key instanceof Markup ? key.text : key;
}

/** The name of a value's Python type. */
export function typeName(value: Value): string {
  if (value === null) return "NoneType";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "bigint") return "int";
  if (typeof value === "number") return "float";
  if (typeof value === "string") return "str";
  if (value instanceof Tuple) return "tuple";
  if (Array.isArray(value)) return "list";
  if (value instanceof Dict) return "dict";
  if (value instanceof DictView) return `dict_${value.part}`;
  if (value instanceof Range) return "range";
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Iteration) return value.name.split(" ")[0]!;
  if (value instanceof Attributes) return value.name;
  return value.constructor.name;
}

export function isTrue(value: Value): boolean {
  if (value === null || value instanceof Undefined) {
    if (value instanceof Forbidden) value.fail();
    return false;
  }
  if (typeof value === "object") return lengthOf(value) !== 0;
  // An int is 0n, a float 0, a text "": as in JavaScript, except NaN, which is true in Python.
  return Boolean(value) || Number.isNaN(value);
}

/** `len(value)`; null if Python's value has no length. */
export function lengthOf(value: Value): number | null {
  if (typeof value === "string") return codePoints(value);
  if (Array.isArray(value) || value instanceof Range) return value.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Markup) return codePoints(value.text);
  if (value instanceof Undefined) return value instanceof Forbidden ? value.fail() : 0;
  return null;
}

const SURROGATE = /[\ud800-\udfff]/;

/** Whether positions in UTF-16 differ from those in code points. */
export const isWide = (text: string): boolean => SURROGATE.test(text);

export function codePoints(text: string): number {
  if (!isWide(text)) return text.length;
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** The elements of an iterable value. */
export function iterate(value: Value): Iterator<Value> {
  if (typeof value === "string") return value[Symbol.iterator]();
  if (Array.isArray(value) || value instanceof Range || value instanceof DictView) {
    return value[Symbol.iterator]();
  }
  if (value instanceof Dict) return value.keys();
  if (value instanceof Iteration) return value.iterator;
  if (value instanceof Undefined) return value instanceof Forbidden ? value.fail() : [][Symbol.iterator]();
  if (value instanceof Markup) throw unsupportedMarkup();
  throw new TemplateError(`'${typeName(value)}' object is not iterable`);
}

/** The elements of an iterable value, in a new array. */
export function listed(value: Value): Value[] {
  const iterator = iterate(value);
  const list: Value[] = [];
  for (let next = iterator.next(); next.done !== true; next = iterator.next()) list.push(next.value);
  return list;
}

export const unsupportedMarkup = () =>
  new Unsupported("texts marked by the filters escape and safe can only be written and compared");

/** JavaScript variables as values. Plain objects become dicts; whole numbers become ints. */
export function valueOf(given: unknown): Value {
  if (given === undefined) return new Undefined("a variable is undefined");
  if (typeof given === "number") return Number.isInteger(given) ? BigInt(given) : given;
  if (given === null || typeof given !== "object") {
    if (typeof given === "function" || typeof given === "symbol") {
      throw new TemplateError(`a variable must be a value of JSON, got a ${typeof given}`);
    }
    return given as Value;
  }
  if (given instanceof Callable) return given;
  if (Array.isArray(given)) return given.map(valueOf);
  return new Dict(
    Object.entries(given)
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => [key, valueOf(value)]),
  );
}
