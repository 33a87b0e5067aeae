import { readFile, stat } from "node:fs/promises";
import { checkRegular, describeValue, UsageError } from "@astra-rl/base";

/** Far above every real file of this kind: larger files are refused before they are read. */
const MAXIMUM_BYTES = 2 ** 28;

/** Far above every real nesting; recursive code must not overflow the stack. */
const MAXIMUM_DEPTH = 100;

interface FieldOptions<F> {
  /** The value of an absent field, or one that is null. Without it the field is required. */
  fallback?: F;
}

/** Reads typed fields of a JSON object; every error names the file, the field, the rule and the value found. */
export class JsonFields {
  readonly values: Readonly<Record<string, unknown>>;
  /** Names of the fields that were read. */
  protected readonly asked = new Set<string>();

  constructor(
    value: unknown,
    /** Path of the file, and path within it; starts every error message: `config.json`, `config.json: "rope_scaling"`. */
    readonly where: string,
  ) {
    if (!isObject(value))
      throw new UsageError("invalid-type", `${where} must be an object, but it is ${describeValue(value)}`);
    this.values = value;
  }

  /** True if the field is present and not null. */
  has(name: string): boolean {
    this.asked.add(name);
    return this.own(name) !== undefined && this.own(name) !== null;
  }

  /** An integer of at least `minimum` (default 1). */
  integer<F = never>(
    name: string,
    options: FieldOptions<F> & { minimum?: number; maximum?: number } = {},
  ): number | F {
    const { minimum = 1, maximum } = options;
    const requirement =
      maximum === undefined
        ? `an integer of at least ${minimum}`
        : `an integer from ${minimum} to ${maximum}`;
    return this.field("out-of-range", name, options, requirement, (value): value is number => {
      return isCount(value) && value >= minimum && value <= (maximum ?? value);
    });
  }

  /** A finite number greater than zero. */
  positive<F = never>(name: string, options: FieldOptions<F> = {}): number | F {
    return this.field("out-of-range", name, options, "a number greater than 0", (value): value is number => {
      return typeof value === "number" && Number.isFinite(value) && value > 0;
    });
  }

  boolean<F = never>(name: string, options: FieldOptions<F> = {}): boolean | F {
    return this.field("invalid-type", name, options, "true or false", (value) => typeof value === "boolean");
  }

  string<F = never>(name: string, options: FieldOptions<F> = {}): string | F {
    return this.field("invalid-type", name, options, "a string of whole characters", isText);
  }

  list<F = never>(name: string, options: FieldOptions<F> = {}): readonly unknown[] | F {
    return this.field("invalid-type", name, options, "a list", (value): value is unknown[] =>
      Array.isArray(value),
    );
  }

  /** The object in a field, as it is. */
  object<F = never>(name: string, options: FieldOptions<F> = {}): Readonly<Record<string, unknown>> | F {
    return this.field("invalid-type", name, options, "an object", isObject);
  }

  /** The fields of the object in a field; null if it is absent or null. */
  nested(name: string): JsonFields | null {
    const value = this.object(name, { fallback: null });
    return value && new JsonFields(value, this.inside(name));
  }

  /** A token id, or a list of them; [] if the field is absent or null. */
  ids(name: string): number[] {
    const value = this.field(
      "invalid-token-id",
      name,
      { fallback: [] },
      "a token id or a list of token ids",
      (found): found is number | number[] => isCount(found) || (Array.isArray(found) && found.every(isCount)),
    );
    return Array.isArray(value) ? value : [value];
  }

  /** Place of a field, as the start of error messages about what it contains. */
  inside(name: string): string {
    return `${this.where}: ${JSON.stringify(name)}`;
  }

  /**
   * An error about one field, for rules that callers check.
   *
   * @param rule code of the rule; that of a missing field is "missing-key"
   * @param requirement what the field must be, for the message
   */
  error(rule: string, name: string, requirement: string): UsageError {
    const value = this.own(name);
    const found = value === undefined ? "missing" : describeValue(value);
    return new UsageError(
      value === undefined ? "missing-key" : rule,
      `${this.title}: "${name}" must be ${requirement}, but it is ${found}`,
    );
  }

  /** Reads a field by a rule of the caller; for `rule` and `requirement`, see `error`. */
  field<T, F>(
    rule: string,
    name: string,
    options: FieldOptions<F>,
    requirement: string,
    accepts: (value: unknown) => value is T,
  ): T | F {
    const value = this.own(name);
    if (!this.has(name) && "fallback" in options) return options.fallback as F;
    if (!accepts(value)) throw this.error(rule, name, requirement);
    return value;
  }

  /** The place of this object, with its "type" if it has one. */
  protected get title(): string {
    const type = this.own("type");
    return typeof type === "string" ? `${this.where} (${type})` : this.where;
  }

  protected own(name: string): unknown {
    return Object.hasOwn(this.values, name) ? this.values[name] : undefined;
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Lone surrogates are not valid text; Python refuses them. */
export function isText(value: unknown): value is string {
  return typeof value === "string" && !/\p{Cs}/u.test(value);
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** The fields of a file that must contain one JSON object; null if the file does not exist. */
export async function readJsonIfThere(path: string): Promise<JsonFields | null> {
  const bytes = await readFileIfThere(path);
  return bytes && new JsonFields(parseJsonObject(bytes, path), path);
}

/** Parses bytes that must contain one JSON object. */
export function parseJsonObject(bytes: Uint8Array | string, where: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(
      typeof bytes === "string" ? bytes : new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    );
  } catch (cause) {
    throw new UsageError(
      "not-json",
      `${where}: must be a JSON file, but it cannot be parsed: ${reason(cause)}`,
      {
        cause,
      },
    );
  }
  if (!isObject(value)) {
    throw new UsageError(
      "not-an-object",
      `${where}: must hold a JSON object, but it holds ${describeValue(value)}`,
    );
  }
  if (isNestedDeeper(value, MAXIMUM_DEPTH)) {
    throw new UsageError(
      "nested-too-deeply",
      `${where}: must be nested at most ${MAXIMUM_DEPTH} deep, but it is nested deeper`,
    );
  }
  return value;
}

/** Whether a value nests lists and objects deeper than `limit`. */
function isNestedDeeper(value: unknown, limit: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return limit === 0 || Object.values(value).some((inner) => isNestedDeeper(inner, limit - 1));
}

/** The bytes of a file; null if it does not exist. Any other failure is an error that names the path. */
export async function readFileIfThere(path: string): Promise<Uint8Array | null> {
  try {
    // Checked before opening: opening a named pipe would block, and a device may be endless.
    const found = await stat(path);
    if (!found.isFile()) throw new UsageError("not-a-file", `${path}: must be a file`);
    if (found.size > MAXIMUM_BYTES) {
      throw new UsageError(
        "too-large",
        `${path}: must have at most ${MAXIMUM_BYTES} bytes, but it has ${found.size}`,
      );
    }
    return await readFile(path);
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    if (["ENOENT", "ENOTDIR"].includes((cause as NodeJS.ErrnoException).code ?? "")) {
      // A broken link is an error, not a missing file.
      checkRegular(path);
      return null;
    }
    throw new UsageError("file-unreadable", `${path}: cannot be read: ${reason(cause)}`, { cause });
  }
}

export function reason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
