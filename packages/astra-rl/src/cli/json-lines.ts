import { UsageError } from "@astra-rl/torch";
import { readNamedFile, readStandardInput } from "../text/index.js";

/** The fields of one object, and the line that it stood on. */
export type Row<Field extends string> = Record<Field, string> & { line: number };

/**
 * Reads a file of JSON objects, one a line, each with the given text fields; "-" is standard input. Empty lines are
 * skipped.
 *
 * @throws UsageError that begins file:line
 */
export async function readJsonLines<Field extends string>(
  path: string,
  fields: readonly Field[],
): Promise<Row<Field>[]> {
  const shape = fields.map((field) => `"${field}": …`).join(", ");
  return readLines(path, shape, (value, where, line) => ({ ...checked(value, fields, where), line }));
}

/**
 * Reads a file of JSON objects of any shape; otherwise as {@link readJsonLines}.
 *
 * @param shape what an object holds, for the message about an empty file
 * @param parse checks one object; `where` is file:line
 */
export async function readJsonObjects<T>(
  path: string,
  shape: string,
  parse: (value: Readonly<Record<string, unknown>>, where: string) => T,
): Promise<T[]> {
  return readLines(path, shape, (value, where) => {
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return parse(value as Record<string, unknown>, where);
    }
    throw new UsageError(`${where}: must be a JSON object {${shape}}, got ${kind(value)}`);
  });
}

async function readLines<T>(
  path: string,
  shape: string,
  parse: (value: unknown, where: string, line: number) => T,
): Promise<T[]> {
  const name = path === "-" ? "standard input" : path;
  const bytes = path === "-" ? await readStandardInput() : await readNamedFile(path, "the input");
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new UsageError(`${name}: must be UTF-8 text, got other bytes; convert the file`, { cause: error });
  }
  const rows: T[] = [];
  text.split(/\r?\n/).forEach((line, index) => {
    if (line.trim() === "") return;
    const where = `${name}:${index + 1}`;
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch (error) {
      throw new UsageError(`${where}: is not JSON: ${(error as Error).message}`, { cause: error });
    }
    rows.push(parse(value, where, index + 1));
  });
  if (rows.length === 0) {
    throw new UsageError(`${name}: is empty; give one JSON object {${shape}} a line`);
  }
  return rows;
}

function checked<Field extends string>(
  value: unknown,
  fields: readonly Field[],
  where: string,
): Record<Field, string> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new UsageError(`${where}: must be a JSON object with ${fields.join(" and ")}, got ${kind(value)}`);
  }
  for (const field of fields) {
    const given: unknown = (value as Record<string, unknown>)[field];
    if (typeof given !== "string")
      throw new UsageError(`${where}: "${field}" must be a text, got ${kind(given)}`);
  }
  return Object.fromEntries(
    fields.map((field) => [field, (value as Record<Field, string>)[field]]),
  ) as Record<Field, string>;
}

function kind(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : typeof value === "object" ? "an object" : `a ${typeof value}`;
}
