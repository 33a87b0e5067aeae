import { ruleOfIssue, UsageError, valueAt, worded } from "@astra-rl/base";
import type { z } from "zod";

/** The version of most records. */
export const RECORD_VERSION = 1;

/**
 * A function that parses and validates a record from a file or the user: JSON text, or a parsed value. `where` names the source
 * in messages, for example a path with a line number; the function throws a UsageError with it, the path in the record, and the
 * problem.
 *
 * @param what names the source by default
 * @param expected the version that this release writes and reads
 */
export const parserOf =
  <T>(schema: z.ZodType<T>, what: string, expected = RECORD_VERSION) =>
  (source: unknown, where = what): T => {
    let value = source;
    if (typeof source === "string") {
      try {
        value = JSON.parse(source);
      } catch (cause) {
        // Without its words: pages and logs show the message.
        throw new UsageError(
          "not-json",
          `${where}: must be JSON, got other text of ${source.length} characters`,
          {
            cause,
          },
        );
      }
    }
    const version = (value as { version?: unknown } | null)?.version;
    if (typeof version === "number" && version !== expected) {
      throw new UsageError(
        "unsupported-version",
        `${where}: the record has version ${version} but this release reads version ${expected}; use ` +
          (version > expected ? "a newer astra-rl" : "the astra-rl that wrote it"),
      );
    }
    const result = explained(where, () => schema.safeParse(value, { error: worded }));
    if (result.success) return result.data;
    const issue = result.error.issues[0]!;
    const broken = brokenRule(issue, value, `the ${what}`);
    throw new UsageError(ruleOfIssue(issue, value), `${where}: ${broken}`, { cause: result.error });
  };

/**
 * The rule that a record breaks, what there is instead, and what to do. Its texts are not quoted: pages and logs show the message.
 *
 * @param issue of a schema that words its issues by `worded`
 * @param whole names the record
 */
export function brokenRule(issue: z.core.$ZodIssue, record: unknown, whole: string): string {
  const name = issue.path.map(String).join(".") || whole;
  const found = valueAt(issue.path, record);
  const rule = issue.message.split("\n")[0]!;
  const remedy = "; it was edited or is damaged: restore it, or make it again with the command that wrote it";
  if (issue.code === "unrecognized_keys") {
    const count = issue.keys.length === 1 ? "a key" : `${issue.keys.length} keys`;
    return `${name}: has ${count} that this release does not know${remedy}`;
  }
  if (found === undefined) return `${name}: is missing, ${rule}${remedy}`;
  // Rules across several keys include the values and the remedy themselves.
  if (!rule.startsWith("must ")) return `${name}: ${rule}`;
  return `${name}: ${rule}, got ${kindOf(found)}${remedy}`;
}

function kindOf(value: unknown): string {
  if (typeof value === "string") return `a text of ${value.length} characters`;
  if (Array.isArray(value)) return `an array of ${value.length}`;
  return typeof value === "object" && value !== null ? "an object" : String(value);
}

/** Explains stack overflows: recursive parsing handles thousands of levels, and a record may have more. */
function explained<T>(where: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new UsageError("nested-too-deeply", `${where}: is nested too deeply to be read`, { cause });
  }
}

/**
 * A function that parses all lines of a file of records. It skips an unterminated last line, which a crash leaves, and throws a
 * UsageError for an invalid line, with its line number.
 *
 * @param file names the source by default
 * @param what what a line holds, for messages
 */
export const linesParserOf =
  <T>(parse: (line: unknown, where: string) => T, file: string, what: string) =>
  (text: string, where = file): T[] => {
    const lines = text.split("\n");
    lines.pop();
    return lines.map((line, index) => {
      if (line === "")
        throw new UsageError("empty-line", `${where}:${index + 1}: must be ${what}, got an empty line`);
      return parse(line, `${where}:${index + 1}`);
    });
  };

/** JSON has no NaN or infinity; they become null, which readers take as "unknown". */
export function finiteOrNull(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

/** A copy with its keys in code-unit order. */
export function sortKeys<T>(values: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(Object.entries(values).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
}
