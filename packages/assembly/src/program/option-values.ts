import { InvalidArgumentError, Option } from "@commander-js/extra-typings";
import { inputSchema, requirement } from "@astra-rl/base";
import { z } from "zod";

/** Parses an option's value with a number or string schema. */
export const checked =
  <T>(schema: z.ZodType<T>) =>
  (text: string): T => {
    const value = schema instanceof z.ZodNumber ? (text.trim() === "" ? NaN : Number(text)) : text;
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    throw new InvalidArgumentError(`It ${requirement(result.error.issues[0]!, inputSchema(schema), value)}.`);
  };

/** Parses the value of an option that is an integer of at least `least`. */
export const wholeNumber = (least: number, most = Number.MAX_SAFE_INTEGER) =>
  checked(z.int().min(least).max(most));

export const quietOption = () => new Option("--quiet", "results and errors only").default(false);

/** Collects the values of an option that may be repeated. */
export const repeated =
  <T>(parse: (text: string) => T) =>
  (text: string, before: T[] | undefined): T[] => [...(before ?? []), parse(text)];
