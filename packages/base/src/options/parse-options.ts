import { z } from "zod";
import { describeValue, UsageError } from "../errors.js";
import { validated } from "./issues.js";
import type { JsonSchema } from "./json-schema.js";

/** The JSON Schema of a schema's input, for messages and documentation. */
export const inputSchema = (schema: z.ZodType): JsonSchema =>
  z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as JsonSchema;

/**
 * Validates the options of a class or function and fills in the defaults. `undefined` means the default.
 * Configurations use the same schema, without the options that only code can pass, such as callbacks.
 *
 * @param where prefix of messages: the class, or what the options belong to
 * @param advice hints for unknown options, by the name that people look for
 * @throws UsageError for an unknown option, with the closest name, and for an invalid value
 */
export function parseOptions<S extends z.ZodObject>(
  where: string,
  schema: S,
  given: unknown,
  advice: Readonly<Record<string, string>> = {},
): z.output<S> {
  return parse(where, schema, given === undefined ? {} : given, "the options", advice) as z.output<S>;
}

/** Like `parseOptions`, for one line of a JSON-lines file. */
export const parseLine = <T>(where: string, schema: z.ZodType<T>, given: unknown): T =>
  parse(where, schema, given, "the line");

function parse<T>(
  where: string,
  schema: z.ZodType<T>,
  given: unknown,
  whole: string,
  advice: Readonly<Record<string, string>> = {},
): T {
  return validated(schema, given, {
    where: () => where,
    whole,
    unknownKey: (key) => `unknown option ${key}`,
    advice,
  });
}

/** An option that is a function. */
export const functionOption = <F>() =>
  z.custom<F>((value) => typeof value === "function", {
    error: "must be a function",
    params: { rule: "invalid-type" },
  });

/**
 * An option that is an object with these methods.
 *
 * @param requirement such as "must be a Scorer (an object with the method score)"
 */
export const objectOption = <T>(requirement: string, ...methods: readonly (string & keyof T)[]) =>
  z.custom<T>((value) => hasMethods(value, methods), {
    error: requirement,
    params: { rule: "invalid-type" },
  });

/** Whether a value is an object or function with these methods. */
export function hasMethods(value: unknown, methods: readonly string[]): boolean {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  return methods.every((method) => typeof (value as Record<string, unknown>)[method] === "function");
}

/**
 * Throws unless the value is an array; the characters of a string would be taken for items.
 *
 * @throws UsageError that shows how to pass a single item
 */
export function requireList(
  where: string,
  what: string,
  value: unknown,
): asserts value is readonly unknown[] {
  if (Array.isArray(value)) return;
  const advice = typeof value === "string" ? `; give one as [${describeValue(value)}]` : "";
  throw new UsageError(
    "not-a-list",
    `${where}: ${what} must be an array, got ${describeValue(value)}${advice}`,
  );
}
