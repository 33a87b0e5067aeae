/** Arguments of calls, as Python binds them. */
import { numeric } from "./operators.js";
import { TemplateError, typeName, Undefined, type Arguments, type Value } from "./values.js";

export const NO_ARGUMENTS: Arguments = { positional: [], named: new Map() };

export const positional = (...values: readonly Value[]): Arguments => ({
  positional: values,
  named: new Map(),
});

/** The arguments in the order of the parameters; undefined where one is not given. */
export function bind(where: string, given: Arguments, parameters: readonly string[]): (Value | undefined)[] {
  if (given.positional.length > parameters.length) {
    throw new TemplateError(
      `${where} takes at most ${parameters.length} arguments (${given.positional.length} given)`,
    );
  }
  const bound: (Value | undefined)[] = parameters.map((_, index) => given.positional[index]);
  for (const [name, value] of given.named) {
    const index = parameters.indexOf(name);
    if (index < 0) throw new TemplateError(`${where} got an unexpected keyword argument '${name}'`);
    if (bound[index] !== undefined)
      throw new TemplateError(`${where} got multiple values for argument '${name}'`);
    bound[index] = value;
  }
  return bound;
}

export function required(where: string, value: Value | undefined): Value {
  if (value === undefined) throw new TemplateError(`${where} misses a required argument`);
  return value;
}

export function integer(where: string, value: Value | undefined, missing: number): number {
  if (value === undefined) return missing;
  const number = numeric(value);
  if (typeof number !== "bigint") throw mistyped(where, "an int", value);
  // Python's sizes also have 64 bits.
  return Math.min(Math.max(Number(number), -Number.MAX_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);
}

export function string(where: string, value: Value | undefined): string {
  if (typeof value !== "string") throw mistyped(where, "a str", value);
  return value;
}

/** A str, or null for None or nothing. */
export function optionalString(where: string, value: Value | undefined): string | null {
  return value === undefined || value === null ? null : string(where, value);
}

function mistyped(where: string, wanted: string, value: Value | undefined): TemplateError {
  if (value === undefined) return new TemplateError(`${where} misses a required argument`);
  if (value instanceof Undefined) value.fail();
  return new TemplateError(`${where} must be given ${wanted}, not ${typeName(value)}`);
}
