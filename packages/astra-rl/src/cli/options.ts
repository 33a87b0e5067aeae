import { InvalidArgumentError, Option } from "@commander-js/extra-typings";
import { parseOverride, type Override } from "../configuration/index.js";

/** Parses an option's whole number. */
export function wholeNumber(least: number, most = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() === "" || !Number.isSafeInteger(value) || value < least || value > most) {
      const upper = most === Number.MAX_SAFE_INTEGER ? "" : ` and at most ${most}`;
      throw new InvalidArgumentError(`It must be a whole number of at least ${least}${upper}.`);
    }
    return value;
  };
}

/** Parses an option's number inside (least, most]; `least` itself is allowed where `inclusive`. */
export function numberWithin(
  least: number,
  most: number,
  { inclusive = false } = {},
): (text: string) => number {
  return (text) => {
    const value = Number(text);
    const fits = Number.isFinite(value) && value <= most && (inclusive ? value >= least : value > least);
    if (text.trim() === "" || !fits) {
      const upper = most === Infinity ? "" : ` and at most ${most}`;
      throw new InvalidArgumentError(
        `It must be a number ${inclusive ? "of at least" : "above"} ${least}${upper}.`,
      );
    }
    return value;
  };
}

/** Collects every --set of a command line. */
export function collectOverride(text: string, before: Override[] | undefined): Override[] {
  return [...(before ?? []), parseOverride(text)];
}

/** Where a model lives. */
export const deviceOption = () =>
  new Option("--device <name>", "cpu, cuda or cuda:N").default("cpu").argParser((text) => {
    if (!/^(cpu|cuda(:\d+)?)$/.test(text)) throw new InvalidArgumentError("It must be cpu, cuda or cuda:N.");
    return text;
  });

/** Number format of a model that only reads. */
export const dtypeOption = () =>
  new Option("--dtype <name>", "number format of the weights")
    .choices(["float32", "bfloat16"])
    .default("float32" as const);
