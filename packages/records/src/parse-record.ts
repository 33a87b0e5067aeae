import { ruleOfIssue, UsageError } from "@astra-rl/base";
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
    const result = explained(where, () => schema.safeParse(value));
    if (result.success) return result.data;
    const issue = result.error.issues[0]!;
    const path = issue.path.map(String).join(".");
    throw new UsageError(
      ruleOfIssue(issue, value),
      `${where}: ${path === "" ? "" : `${path}: `}${issue.message}`,
      {
        cause: result.error,
      },
    );
  };

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
