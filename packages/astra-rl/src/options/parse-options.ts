import { describeValue, UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { mistakesError, tellIssues } from "./issues.js";
import type { JsonSchema } from "./json-schema.js";

/** The JSON Schema of what is given to a schema, for messages and documents. */
export const inputSchema = (schema: z.ZodType): JsonSchema =>
  z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as JsonSchema;

/**
 * The options of a class or a function: checked against its schema, with the defaults filled in. `undefined` means the
 * default. The schema is the one that a configuration reads, extended by what only code can give, such as callbacks.
 *
 * @param where begins the message: the class, or what the options are of
 * @param advice what to write instead of an option that there is not, by the name that people look for
 * @throws UsageError for an option that there is not, with the nearest name, and for a value that breaks its rule
 */
export function parseOptions<S extends z.ZodObject>(
  where: string,
  schema: S,
  given: unknown,
  advice: Readonly<Record<string, string>> = {},
): z.output<S> {
  return parse(where, schema, given === undefined ? {} : given, "the options", advice) as z.output<S>;
}

/** One line of a file of JSON lines, as `parseOptions`. */
export const parseLine = <T>(where: string, schema: z.ZodType<T>, given: unknown): T =>
  parse(where, schema, given, "the line");

function parse<T>(
  where: string,
  schema: z.ZodType<T>,
  given: unknown,
  whole: string,
  advice: Readonly<Record<string, string>> = {},
): T {
  const result = schema.safeParse(given);
  if (result.success) return result.data;
  const telling = {
    where: () => where,
    whole,
    unknownKey: (key: string) => `there is no option ${key}`,
    advice,
  };
  const { issues } = result.error;
  throw mistakesError(tellIssues(issues, inputSchema(schema), given, telling), result.error);
}

/** An option that is a function. */
export const functionOption = <F>() =>
  z.custom<F>((value) => typeof value === "function", "must be a function");

/**
 * An option that is an object with these methods.
 *
 * @param rule what it must be, such as "must be a Scorer (an object with the method score)"
 */
export const objectOption = <T>(rule: string, ...methods: readonly (string & keyof T)[]) =>
  z.custom<T>((value) => hasMethods(value, methods), rule);

/** Whether a value is an object, or a function, with these methods. */
export function hasMethods(value: unknown, methods: readonly string[]): boolean {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  return methods.every((method) => typeof (value as Record<string, unknown>)[method] === "function");
}

/**
 * Refuses a text, or anything else that is no array, where a list is due: its characters would be taken for the items.
 *
 * @throws UsageError that shows how one item is given
 */
export function requireList(
  where: string,
  what: string,
  value: unknown,
): asserts value is readonly unknown[] {
  if (Array.isArray(value)) return;
  const advice = typeof value === "string" ? `; give one as [${describeValue(value)}]` : "";
  throw new UsageError(`${where}: ${what} must be an array, got ${describeValue(value)}${advice}`);
}
