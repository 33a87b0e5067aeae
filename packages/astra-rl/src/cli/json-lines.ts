import { UsageError } from "@astra-rl/torch";
import type { z } from "zod";
import { parseLine } from "../options/index.js";
import { readNamedFile, readStandardInput } from "../text/index.js";

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
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError(`${name}: must be UTF-8 text, got other bytes; convert the file`, { cause });
  }
  const rows = text.split(/\r?\n/).flatMap((content, index) => {
    if (content.trim() === "") return [];
    const where = `${name}:${index + 1}`;
    let value: unknown;
    try {
      value = JSON.parse(content);
    } catch (cause) {
      throw new UsageError(`${where}: is not JSON: ${(cause as Error).message}`, { cause });
    }
    return [{ value: parseLine(where, schema, value), line: index + 1 }];
  });
  if (rows.length === 0) throw new UsageError(`${name}: is empty; give one JSON object ${shape} a line`);
  return rows;
}
