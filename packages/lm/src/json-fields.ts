import { readFile, stat } from "node:fs/promises";
import { checkRegular, describeValue, UsageError } from "@astra-rl/torch";

/** Far above every real file of this kind: larger files are refused before they are read. */
const MAXIMUM_BYTES = 2 ** 28;

/** Far above every real nesting; recursive code must not overflow the stack. */
const MAXIMUM_DEPTH = 100;

/** Reads typed fields of a JSON object; every error names the file, the field, the rule and the value found. */
export class JsonFields {
  constructor(
    readonly values: Readonly<Record<string, unknown>>,
    /** Path of the file (or another description of the source); starts every error message. */
    readonly where: string,
  ) {}

  /** True if the field is present and not null. */
  has(name: string): boolean {
    return this.values[name] !== undefined && this.values[name] !== null;
  }

  /** An integer of at least `minimum` (default 1). Without a fallback the field is required. */
  integer<F = never>(name: string, options: { minimum?: number; fallback?: F } = {}): number | F {
    const { minimum = 1 } = options;
    return this.#read(name, options, `an integer of at least ${minimum}`, (value): value is number => {
      return Number.isSafeInteger(value) && (value as number) >= minimum;
    });
  }

  /** A finite number greater than zero. */
  positive<F = never>(name: string, options: { fallback?: F } = {}): number | F {
    return this.#read(name, options, "a number greater than 0", (value): value is number => {
      return typeof value === "number" && Number.isFinite(value) && value > 0;
    });
  }

  boolean<F = never>(name: string, options: { fallback?: F } = {}): boolean | F {
    return this.#read(name, options, "true or false", (value) => typeof value === "boolean");
  }

  string<F = never>(name: string, options: { fallback?: F } = {}): string | F {
    return this.#read(name, options, "a string", (value) => typeof value === "string");
  }

  /** A token id, or a list of them; [] if the field is absent or null. */
  ids(name: string): number[] {
    const isId = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
    const value = this.#read(
      name,
      { fallback: [] },
      "a token id or a list of token ids",
      (found): found is number | number[] => isId(found) || (Array.isArray(found) && found.every(isId)),
    );
    return Array.isArray(value) ? value : [value];
  }

  /** An error about one field, for rules that callers check. */
  error(name: string, rule: string): UsageError {
    return new UsageError(
      `${this.where}: "${name}" must be ${rule}, but it is ${describeValue(this.values[name])}`,
    );
  }

  #read<T, F>(
    name: string,
    options: { fallback?: F },
    rule: string,
    accepts: (value: unknown) => value is T,
  ): T | F {
    const value = this.values[name];
    if (value === undefined || value === null) {
      if ("fallback" in options) return options.fallback as F;
      throw new UsageError(`${this.where}: "${name}" must be ${rule}, but it is missing`);
    }
    if (!accepts(value)) throw this.error(name, rule);
    return value;
  }
}

/** Parses bytes that must contain one JSON object. */
export function parseJsonObject(bytes: Uint8Array | string, where: string): Record<string, unknown> {
  let value: unknown;
  let text: string;
  try {
    text = typeof bytes === "string" ? bytes : new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    value = JSON.parse(text);
  } catch (cause) {
    throw new UsageError(`${where}: must be a JSON file, but it cannot be parsed: ${reason(cause)}`, {
      cause,
    });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new UsageError(`${where}: must hold a JSON object, but it holds ${describeValue(value)}`);
  }
  if (isNestedDeeper(text, MAXIMUM_DEPTH)) {
    throw new UsageError(`${where}: must be nested at most ${MAXIMUM_DEPTH} deep, but it is nested deeper`);
  }
  return value as Record<string, unknown>;
}

/** Whether valid JSON nests lists and objects deeper than `limit`. */
function isNestedDeeper(text: string, limit: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        for (at++; text.charCodeAt(at) !== 0x22; at++) if (text.charCodeAt(at) === 0x5c) at++;
        break;
      case 0x5b: // [
      case 0x7b: // {
        if (++depth > limit) return true;
        break;
      case 0x5d:
      case 0x7d:
        depth--;
    }
  }
  return false;
}

/** The bytes of a file; null if it does not exist. Any other failure is an error that names the path. */
export async function readFileIfThere(path: string): Promise<Uint8Array | null> {
  try {
    // Checked before opening: opening a named pipe would block, and a device may be endless.
    const found = await stat(path);
    if (!found.isFile()) throw new UsageError(`${path}: must be a file`);
    if (found.size > MAXIMUM_BYTES) {
      throw new UsageError(`${path}: must have at most ${MAXIMUM_BYTES} bytes, but it has ${found.size}`);
    }
    return await readFile(path);
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") {
      // A broken link is an error, not a missing file.
      checkRegular(path);
      return null;
    }
    throw new UsageError(`${path}: cannot be read: ${reason(cause)}`, { cause });
  }
}

export function reason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
