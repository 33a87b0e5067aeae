import { InvalidArgumentError, Option } from "@commander-js/extra-typings";
import { worded } from "@astra-rl/base";
import { z } from "zod";

/** Parses an option's value with a number or string schema. */
export const checked =
  <T>(schema: z.ZodType<T>) =>
  (text: string): T => {
    const value = schema instanceof z.ZodNumber ? (text.trim() === "" ? NaN : Number(text)) : text;
    const result = schema.safeParse(value, { error: worded });
    if (result.success) return result.data;
    throw new InvalidArgumentError(`It ${result.error.issues[0]!.message}.`);
  };

/** Parses the value of an option that is an integer of at least `least`. */
export function wholeNumber(least: number, most = Number.MAX_SAFE_INTEGER) {
  const limits = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  const rule = `must be a whole number ${limits}`;
  return checked(z.int(rule).min(least, rule).max(most, rule));
}

export const quietOption = () => new Option("--quiet", "results, warnings and errors only").default(false);

/** Collects the values of an option that may be repeated. */
export const repeated =
  <T>(parse: (text: string) => T) =>
  (text: string, before: T[] | undefined): T[] => [...(before ?? []), parse(text)];
