import { invalidValue } from "./api-error.js";
import type { ResponseFormat } from "./requests.js";

/** Keys under which red-team tools expect the attacker's message. */
const MESSAGE_KEYS = ["next_message", "prompt", "message", "question"] as const;
const WHERE = "response_format.json_schema.schema";

/** Levels of a schema, and of the values in it; those that programs generate have less than half of it. */
const DEEPEST = 64;
/** Maximum number of characters and values of the answer in addition to the message. */
const MOST_FILLED = 100_000;

/**
 * The JSON that a tool requests: the tester's message under `key`, and empty values for everything else that is
 * required.
 */
export interface JsonFrame {
  key: string;
  rest: Readonly<Record<string, unknown>>;
}

type Keywords = { readonly [key: string]: unknown };
type Schema = boolean | Keywords;

/**
 * The place of the message in the requested JSON. A tester writes messages, not JSON, so its text is never parsed.
 *
 * @param field the message's key. Default: the first known one that the schema has, else its first text
 * @returns null for plain text
 * @throws ApiError 400 for an invalid JSON schema, and one that cannot be filled
 */
export function jsonFrame(format: ResponseFormat | undefined, field?: string): JsonFrame | null {
  if (format === undefined || format.type === "text") return null;
  if (format.type === "json_object") return { key: field ?? MESSAGE_KEYS[0], rest: {} };
  const { schema } = format.json_schema;
  checkDepth(schema);
  checkSchema(schema, WHERE);
  return new Filler(schema).frame(field);
}

export const jsonAnswer = ({ key, rest }: JsonFrame, text: string): string =>
  JSON.stringify({ [key]: text, ...rest });

/** Without recursion: refused schemas may be deeper than the stack. */
function checkDepth(schema: unknown): void {
  let level: unknown[] = [schema];
  // A level of a schema is two of its JSON, such as "properties" and a name.
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > 2 * DEEPEST) throw invalidValue(WHERE, `must have at most ${DEEPEST} levels`);
    level = level.flatMap((value) =>
      typeof value === "object" && value !== null ? (Object.values(value) as unknown[]) : [],
    );
  }
}

const TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"];
const isObject = (value: unknown): value is Keywords =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isWhole = (value: unknown) => Number.isInteger(value) && (value as number) >= 0;
const isNumber = (value: unknown) => typeof value === "number";

/** What a keyword of a schema must be, for those that are read. */
const RULES: Readonly<Record<string, readonly [rule: string, holds: (value: unknown) => boolean]>> = {
  type: [`must be one of ${TYPES.join(", ")}, or a list of them`, (value) => areTypes([value].flat())],
  required: [
    "must be a list of keys",
    (value) => Array.isArray(value) && value.every((key) => typeof key === "string"),
  ],
  properties: ["must be an object of schemas", isObject],
  $defs: ["must be an object of schemas", isObject],
  definitions: ["must be an object of schemas", isObject],
  enum: ["must be a list that is not empty", (value) => Array.isArray(value) && value.length > 0],
  anyOf: ["must be a list of schemas that is not empty", (value) => isFilledList(value)],
  oneOf: ["must be a list of schemas that is not empty", (value) => isFilledList(value)],
  allOf: ["must be a list of schemas that is not empty", (value) => isFilledList(value)],
  $ref: ["must be a string", (value) => typeof value === "string"],
  minLength: ["must be a whole number of at least 0", isWhole],
  minItems: ["must be a whole number of at least 0", isWhole],
  minimum: ["must be a number", isNumber],
  maximum: ["must be a number", isNumber],
  exclusiveMinimum: ["must be a number", isNumber],
  exclusiveMaximum: ["must be a number", isNumber],
};

const areTypes = (values: readonly unknown[]) =>
  values.length > 0 && values.every((value) => TYPES.includes(value as string));
const isFilledList = (value: unknown) => Array.isArray(value) && value.length > 0;

/** @throws ApiError 400 with the path of the first invalid keyword */
function checkSchema(schema: unknown, where: string): asserts schema is Schema {
  if (typeof schema === "boolean") return;
  if (!isObject(schema)) throw invalidValue(where, "must be a schema: an object, true or false");
  for (const [key, [rule, holds]] of Object.entries(RULES)) {
    if (Object.hasOwn(schema, key) && !holds(schema[key])) throw invalidValue(`${where}.${key}`, rule);
  }
  for (const key of ["properties", "$defs", "definitions"]) {
    for (const [name, each] of Object.entries(schema[key] ?? {}))
      checkSchema(each, `${where}.${key}.${name}`);
  }
  for (const key of ["anyOf", "oneOf", "allOf"]) {
    const list = (schema[key] ?? []) as unknown[];
    list.forEach((each, at) => checkSchema(each, `${where}.${key}[${at}]`));
  }
  if (schema["items"] !== undefined) checkSchema(schema["items"], `${where}.items`);
}

/** Creates the smallest values that a checked schema allows. */
class Filler {
  #room = MOST_FILLED;

  constructor(readonly root: Schema) {}

  frame(field: string | undefined): JsonFrame {
    const { properties, required } = this.#object(this.#resolved(this.root));
    const isText = (key: string) => this.#takesText(properties[key]);
    const key =
      [field, ...MESSAGE_KEYS].find((each) => each !== undefined && isText(each)) ??
      [...required, ...Object.keys(properties)].find(isText) ??
      field ??
      MESSAGE_KEYS[0];
    const others = required.filter((each) => each !== key);
    const rest = Object.fromEntries(others.map((each) => [each, this.#least(properties[each], 1)]));
    return { key, rest };
  }

  #takesText(schema: Schema | undefined): boolean {
    if (schema === undefined) return false;
    const found = this.#resolved(schema);
    if (found["const"] !== undefined || found["enum"] !== undefined) return false;
    return [found["type"]].flat().includes("string");
  }

  #least(schema: Schema | undefined, depth: number): unknown {
    this.#spend(1);
    if (depth > DEEPEST) throw invalidValue(WHERE, `requires more than ${DEEPEST} levels`);
    if (schema === undefined || typeof schema === "boolean") return "";
    const found = this.#resolved(schema);
    for (const key of ["const", "default"]) if (found[key] !== undefined) return this.#given(found[key]);
    if (found["enum"] !== undefined) return this.#given((found["enum"] as unknown[])[0]);
    switch (([found["type"]].flat() as string[])[0] ?? (found["properties"] === undefined ? "" : "object")) {
      case "object": {
        const { properties, required } = this.#object(found);
        return Object.fromEntries(required.map((key) => [key, this.#least(properties[key], depth + 1)]));
      }
      case "array": {
        const items = (found["items"] ?? true) as Schema;
        const count = (found["minItems"] ?? 0) as number;
        this.#spend(count);
        return Array.from({ length: count }, () => this.#least(items, depth + 1));
      }
      case "number":
        return leastNumber(found, false);
      case "integer":
        return leastNumber(found, true);
      case "boolean":
        return false;
      case "null":
        return null;
      default: {
        const length = (found["minLength"] ?? 0) as number;
        this.#spend(length);
        return "-".repeat(length);
      }
    }
  }

  #object(schema: Keywords) {
    const { properties = {}, required = [] } = schema;
    return {
      properties: properties as Readonly<Record<string, Schema>>,
      required: [...new Set(required as string[])],
    };
  }

  /** Follows references and choices: the first of several, and all of `allOf`. */
  #resolved(schema: Schema, steps = 0): Keywords {
    if (steps > DEEPEST) throw invalidValue(WHERE, `has more than ${DEEPEST} chained references`);
    this.#spend(1);
    if (typeof schema === "boolean") return {};
    const { $ref: reference, anyOf, oneOf, allOf, ...own } = schema;
    const parts =
      reference !== undefined
        ? [this.#at(reference as string)]
        : ((allOf ?? ((anyOf ?? oneOf) as Schema[] | undefined)?.slice(0, 1)) as Schema[] | undefined);
    if (parts === undefined) return schema;
    return parts.map((part) => this.#resolved(part, steps + 1)).reduce<Keywords>(joined, own);
  }

  #at(reference: string): Schema {
    const keys = reference
      .replace(/^#\/?/u, "")
      .split("/")
      .filter((key) => key !== "");
    let found: unknown = reference.startsWith("#") ? this.root : undefined;
    for (const key of keys) {
      const name = key.replaceAll("~1", "/").replaceAll("~0", "~");
      found = isObject(found) && Object.hasOwn(found, name) ? found[name] : undefined;
    }
    if (isObject(found) || typeof found === "boolean") return found;
    throw invalidValue(WHERE, `refers to a missing schema: ${JSON.stringify(reference.slice(0, 80))}`);
  }

  #given(value: unknown): unknown {
    this.#spend(JSON.stringify(value).length);
    return value;
  }

  #spend(count: number): void {
    this.#room -= count;
    if (this.#room < 0) throw invalidValue(WHERE, `requires more than ${MOST_FILLED} characters and values`);
  }
}

/** A schema merged with another one. */
function joined(own: Keywords, other: Keywords): Keywords {
  const both = <T extends object>(key: string) => [own[key], other[key]].filter(Boolean) as T[];
  return {
    ...other,
    ...own,
    properties: Object.assign({}, ...both("properties").toReversed()) as object,
    required: both<string[]>("required").flat(),
  };
}

/** The number next to 0 within the limits. */
function leastNumber(schema: Keywords, isInteger: boolean): number {
  const limit = (key: string, none: number) => (schema[key] ?? none) as number;
  const [above, below] = [limit("exclusiveMinimum", -Infinity), limit("exclusiveMaximum", Infinity)];
  const least = Math.max(limit("minimum", -Infinity), isInteger ? Math.floor(above) + 1 : above);
  const most = Math.min(limit("maximum", Infinity), isInteger ? Math.ceil(below) - 1 : below);
  const value = Math.min(Math.max(0, least), most);
  if (isInteger) return value > 0 ? Math.ceil(value) : Math.floor(value);
  if (value !== above && value !== below) return value;
  // Between two limits, or beyond the only one.
  const [low, high] = [Math.max(least, value - 1), Math.min(most, value + 1)];
  return value === above ? (value + high) / 2 : (low + value) / 2;
}
