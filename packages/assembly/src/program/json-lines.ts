import {
  UsageError,
  parseLine,
  decodeText,
  jsonLines,
  readNamedFile,
  readStandardInput,
} from "@astra-rl/base";
import type { z } from "zod";

/**
 * Reads a file of JSON objects, one per line; "-" is standard input. Empty lines are skipped.
 *
 * @param shape describes an object, for the message about an empty file
 * @param schema of one object
 * @returns each object with its line number
 * @throws UsageError prefixed with file:line
 */
export async function readJsonLines<T>(
  path: string,
  shape: string,
  schema: z.ZodType<T>,
): Promise<{ value: T; line: number }[]> {
  const name = path === "-" ? "standard input" : path;
  const bytes = path === "-" ? await readStandardInput() : await readNamedFile(path, "the input");
  const rows = jsonLines(decodeText(bytes, `${name}:`), name).map(({ value, line }) => ({
    value: parseLine(`${name}:${line}`, schema, value),
    line,
  }));
  if (rows.length === 0)
    throw new UsageError("empty-file", `${name}: is empty; give one JSON object ${shape} a line`);
  return rows;
}
