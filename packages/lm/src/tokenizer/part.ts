import { describeValue, UsageError } from "@astra-rl/torch";

/** Maximum number of components in a sequence, and of nesting levels; no real tokenizer reaches it. */
const MOST_PARTS = 64;
const DEEPEST = 8;

/**
 * One object in a tokenizer's files: every field read is validated, and fields that were never read are refused, so
 * that no option is ignored. Every error names the file, component and option, the reason, and a remedy.
 */
export class Part {
  readonly values: Readonly<Record<string, unknown>>;
  readonly #asked = new Set<string>(["type"]);

  constructor(
    value: unknown,
    /** File and path within it, the start of every error message: `tokenizer.json: "decoder"`. */
    readonly place: string,
    readonly depth = 0,
  ) {
    if (depth > DEEPEST) throw new UsageError(`${place.slice(0, 200)}…: parts are nested too deep`);
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new UsageError(`${place} must be an object, got ${describeValue(value)}`);
    }
    this.values = value as Record<string, unknown>;
  }

  get type(): string {
    return this.string("type");
  }

  has(name: string): boolean {
    this.#asked.add(name);
    return Object.hasOwn(this.values, name) && this.values[name] !== null;
  }

  string<F = never>(name: string, options: { fallback?: F } = {}): string | F {
    return this.#read(name, options, "a string of whole characters", isText);
  }

  /** A string of exactly one code point. */
  character<F = never>(name: string, options: { fallback?: F } = {}): string | F {
    return this.#read(
      name,
      options,
      "one character",
      (value): value is string => isText(value) && Array.from(value).length === 1,
    );
  }

  boolean<F = never>(name: string, options: { fallback?: F } = {}): boolean | F {
    return this.#read(
      name,
      options,
      "true or false",
      (value): value is boolean => typeof value === "boolean",
    );
  }

  integer<F = never>(
    name: string,
    options: { fallback?: F; minimum?: number; maximum?: number } = {},
  ): number | F {
    const { minimum = 0, maximum = 2 ** 31 } = options;
    const rule = `an integer from ${minimum} to ${maximum}`;
    return this.#read(name, options, rule, (value): value is number => {
      return Number.isSafeInteger(value) && (value as number) >= minimum && (value as number) <= maximum;
    });
  }

  list<F = never>(name: string, options: { fallback?: F } = {}): readonly unknown[] | F {
    return this.#read(name, options, "a list", (value): value is unknown[] => Array.isArray(value));
  }

  /** The object in a field; null if absent or null. */
  part(name: string): Part | null {
    return this.has(name) ? new Part(this.values[name], this.inside(name), this.depth + 1) : null;
  }

  /** The objects in a list. */
  parts(name: string): Part[] {
    const list = this.list(name);
    if (list.length > MOST_PARTS) throw this.refuse(name, `it has more than ${MOST_PARTS} parts`);
    return list.map((value, index) => new Part(value, `${this.inside(name)}[${index}]`, this.depth + 1));
  }

  inside(name: string): string {
    return `${this.place}.${JSON.stringify(name)}`;
  }

  /** An error about one option. `remedy`, the end of the message, says what to do instead. */
  refuse(name: string, why: string, remedy = RESAVE): UsageError {
    const type = typeof this.values["type"] === "string" ? ` (${this.values["type"]})` : "";
    return new UsageError(
      `${this.place}${type}: "${name}" is ${describeValue(this.values[name])}: ${why}; ${remedy}`,
    );
  }

  /** Call after all fields were read: throws for any other field. */
  done(): void {
    for (const name of Object.keys(this.values)) {
      if (this.#asked.has(name)) continue;
      throw this.refuse(name, "this option is not known here, so the ids might differ from Python's");
    }
  }

  #read<T, F>(
    name: string,
    options: { fallback?: F },
    rule: string,
    accepts: (value: unknown) => value is T,
  ): T | F {
    this.#asked.add(name);
    const value = Object.hasOwn(this.values, name) ? this.values[name] : undefined;
    if ((value === undefined || value === null) && "fallback" in options) return options.fallback as F;
    if (accepts(value)) return value;
    const type =
      typeof this.values["type"] === "string" && name !== "type" ? ` (${this.values["type"]})` : "";
    throw new UsageError(
      `${this.place}${type}: "${name}" must be ${rule}, got ${value === undefined ? "nothing" : describeValue(value)}`,
    );
  }
}

/** Lone surrogates are not valid text; Python refuses them. */
export function isText(value: unknown): value is string {
  return typeof value === "string" && !/\p{Cs}/u.test(value);
}

/** Maximum growth factor of a text: no real component exceeds it, unless it was made to exhaust memory. */
const MOST_GROWTH = 64;

export function checkGrowth(place: string, before: number, after: number): void {
  if (after <= Math.max(MOST_GROWTH * before, 2 ** 16)) return;
  throw new UsageError(
    `${place}: makes a text of ${before} characters longer than ${MOST_GROWTH} times that`,
  );
}

export const RESAVE = "use a checkpoint whose tokenizer does without it, or tokenize in Python";
