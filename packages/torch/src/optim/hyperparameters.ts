import { describeValue, UsageError } from "@astra-rl/base";

/** Type of a hyper-parameter: must survive JSON unchanged. */
export type Hyperparameter = number | boolean | readonly [number, number];

/** One hyper-parameter: its default, and a check that converts an unknown value (from YAML, JSON). */
export interface Field<T extends Hyperparameter> {
  readonly fallback: T;
  read(where: string, value: unknown): T;
}

/** The hyper-parameters of an optimizer, by name. */
export type Fields = Readonly<Record<string, Field<Hyperparameter>>>;

/** The values of a set of fields. */
export type Values<F extends Fields> = { -readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };

/** A finite number ≥ 0. */
export function nonNegative(fallback: number): Field<number> {
  return { fallback, read: (where, value) => readNumber(where, value, "a finite number ≥ 0", (x) => x >= 0) };
}

/** A number in [0, 1): a decay rate of a running average. */
export function decayRate(fallback: number): Field<number> {
  return { fallback, read: readDecayRate };
}

/** Two numbers in [0, 1): the decay rates of the first and the second moment. */
export function decayRatePair(fallback: readonly [number, number]): Field<readonly [number, number]> {
  return {
    fallback,
    read(where, value) {
      if (!Array.isArray(value) || value.length !== 2) {
        throw new UsageError(
          "invalid-decay-rates",
          `${where}: must be two numbers in [0, 1), got ${describeValue(value)}`,
        );
      }
      return [readDecayRate(`${where}[0]`, value[0]), readDecayRate(`${where}[1]`, value[1])];
    },
  };
}

/** true or false. */
export function flag(fallback: boolean): Field<boolean> {
  return {
    fallback,
    read(where, value) {
      if (typeof value !== "boolean") {
        throw new UsageError("not-a-boolean", `${where}: must be true or false, got ${describeValue(value)}`);
      }
      return value;
    },
  };
}

/**
 * Checks the second argument of an optimizer, before anything of it is read.
 * @throws UsageError for anything but an object: the properties of a number, such as PyTorch's positional learning rate,
 * are all missing, so that it would be ignored.
 */
export function requireOptions(where: string, given: unknown): void {
  if (typeof given === "object" && given !== null && !Array.isArray(given)) return;
  const rate = typeof given === "number" ? given : "…";
  throw new UsageError(
    "options-not-an-object",
    `${where}: the second argument must be an object of options, got ${describeValue(given)}; ` +
      `write { learningRate: ${rate} }`,
  );
}

/**
 * Checks `given` against `fields` and fills in the defaults; `undefined` means "not given".
 * @throws UsageError for a name that is not in `fields` or a value out of range, naming `where` and the option.
 */
export function readHyperparameters<F extends Fields>(where: string, given: object, fields: F): Values<F> {
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(fields, name)) {
      throw new UsageError(
        "unknown-key",
        `${where}: unknown option ${JSON.stringify(name)}; available: ${Object.keys(fields).join(", ")}`,
      );
    }
  }
  const values: Record<string, Hyperparameter> = {};
  const source = given as Readonly<Record<string, unknown>>;
  for (const [name, field] of Object.entries(fields)) {
    const value = source[name];
    values[name] = value === undefined ? field.fallback : field.read(`${where} ${name}`, value);
  }
  return values as Values<F>;
}

function readDecayRate(where: string, value: unknown): number {
  return readNumber(where, value, "a number in [0, 1)", (x) => x >= 0 && x < 1);
}

function readNumber(where: string, value: unknown, rule: string, holds: (x: number) => boolean): number {
  if (typeof value !== "number" || !Number.isFinite(value) || !holds(value)) {
    throw new UsageError("out-of-range", `${where}: must be ${rule}, got ${describeValue(value)}`);
  }
  return value;
}
