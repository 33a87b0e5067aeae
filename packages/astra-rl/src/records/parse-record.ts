import { describeValue, UsageError } from "@astra-rl/torch";
import type { z } from "zod";

/** The version that this release writes. A reader takes this one and refuses later ones by name. */
export const RECORD_VERSION = 1;

/**
 * Checks a record that came from outside.
 *
 * @param where names the source in messages, for example a path with a line number
 * @param source JSON text, or a value that was parsed already
 * @throws UsageError with the place, the path inside the record and what was wrong there
 */
export function parseRecord<T>(schema: z.ZodType<T>, where: string, source: unknown): T {
  let value = source;
  if (typeof source === "string") {
    try {
      value = JSON.parse(source);
    } catch (cause) {
      throw new UsageError(`${where}: must be JSON, got ${describeValue(source)}`, { cause });
    }
  }
  const version = (value as { version?: unknown } | null)?.version;
  if (typeof version === "number" && version > RECORD_VERSION) {
    throw new UsageError(
      `${where}: the record has version ${version} and this release reads up to ${RECORD_VERSION}; use a newer astra-rl`,
    );
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  const path = issue.path.map(String).join(".");
  throw new UsageError(`${where}: ${path === "" ? "" : `${path}: `}${issue.message}`, {
    cause: result.error,
  });
}

/** JSON has no NaN and no infinity; a number that is none becomes null, which readers take for "not known". */
export function finiteOrNull(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

/** A copy with its keys in code-unit order. */
export function sortKeys<T>(values: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(Object.entries(values).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
}
