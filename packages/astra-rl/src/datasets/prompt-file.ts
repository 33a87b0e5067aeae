import { extname } from "node:path";
import { describeValue, UsageError } from "@astra-rl/torch";
import { readTextFile } from "../core/index.js";

/**
 * Reads prompts from a file: a JSON array of strings (.json), one prompt a line (.txt; empty lines are skipped), one
 * JSON object `{"prompt": …}` or string a line (.jsonl), or a table with a column `prompt` (.csv, as RFC 4180 says).
 * In JSON a prompt may be a conversation as well, `{"messages": [{"role": …, "content": …}, …]}`: its contents, a line
 * each, without the roles.
 *
 * @throws UsageError that names the file and the place in it
 */
export async function readPrompts(path: string): Promise<string[]> {
  const text = await readTextFile(path, "prompts");
  return parsePrompts(text, path);
}

/**
 * The prompts in the text of a prompt file.
 *
 * @param path its extension tells the format; it also begins every message
 */
export function parsePrompts(text: string, path: string): string[] {
  const extension = extname(path).toLowerCase();
  if (extension === ".json") return checkPrompts(parseArray(text, path), path);
  if (extension === ".csv") return checkPrompts(parseTable(text, path), path);
  if (extension === ".jsonl") return checkPrompts(parseLines(text, path), path);
  if (extension === ".txt")
    return checkPrompts(
      lines(text).flatMap(({ line }) => (line.trim() === "" ? [] : [line])),
      path,
    );
  throw new UsageError(`${path}: prompt files end in .json, .jsonl, .csv or .txt, got "${extension}"`);
}

/**
 * Checks prompts that came from anywhere: a non-empty list of strings.
 *
 * @param where begins every message
 */
export function checkPrompts(prompts: unknown, where: string): string[] {
  if (!Array.isArray(prompts)) {
    throw new UsageError(`${where}: prompts must be an array of strings, got ${kindOf(prompts)}`);
  }
  if (prompts.length === 0) throw new UsageError(`${where}: holds no prompts; give at least one`);
  for (const [index, prompt] of prompts.entries()) {
    if (typeof prompt !== "string") {
      throw new UsageError(`${where}: prompt ${index + 1} must be a string, got ${kindOf(prompt)}`);
    }
    if (prompt.trim() === "") {
      throw new UsageError(`${where}: prompt ${index + 1} is empty; give it a text, or leave it out`);
    }
  }
  return prompts as string[];
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value} (${describeValue(value)})`;
}

function parseArray(text: string, path: string): unknown {
  if (text.trim() === "") throw new UsageError(`${path}: is empty; give a JSON array of strings`);
  try {
    const parsed: unknown = JSON.parse(text);
    if (!Array.isArray(parsed)) return parsed;
    return parsed.map((item: unknown, index) => joinedMessages(item, `${path}: prompt ${index + 1}`) ?? item);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${path}${place(text, error as Error)}: is not JSON: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

function parseLines(text: string, path: string): unknown[] {
  const prompts: unknown[] = [];
  for (const { line, number } of lines(text)) {
    if (line.trim() === "") continue;
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch (error) {
      throw new UsageError(`${path}:${number}: is not JSON: ${(error as Error).message}`, { cause: error });
    }
    const joined = joinedMessages(value, `${path}:${number}`);
    if (joined !== null) {
      prompts.push(joined);
      continue;
    }
    const prompt = typeof value === "object" && value !== null && "prompt" in value ? value.prompt : value;
    if (typeof prompt !== "string") {
      throw new UsageError(
        `${path}:${number}: must be a string or an object with a string "prompt" or a list of "messages", got ` +
          (prompt === value ? kindOf(value) : `a prompt that is ${kindOf(prompt)}`),
      );
    }
    prompts.push(prompt);
  }
  return prompts;
}

/** Lines with their numbers from 1; a carriage return before the line feed is no part of the line. */
function lines(text: string): { line: string; number: number }[] {
  return text.split(/\r?\n/u).map((line, index) => ({ line, number: index + 1 }));
}

/** ":line:column" of a JSON error, as far as the engine's message tells it. */
function place(text: string, error: Error): string {
  const position = /position (\d+)/u.exec(error.message)?.[1];
  if (position === undefined) return "";
  const before = text.slice(0, Number(position)).split("\n");
  return `:${before.length}:${before.at(-1)!.length + 1}`;
}

/** The text of `{messages: […]}`; null for anything else. */
function joinedMessages(value: unknown, where: string): string | null {
  if (typeof value !== "object" || value === null || !("messages" in value)) return null;
  const { messages } = value;
  if (!Array.isArray(messages) || messages.length === 0) {
    throw new UsageError(`${where}: "messages" must be a list of at least one, got ${kindOf(messages)}`);
  }
  const contents = messages.map((message: unknown, index) => {
    const content: unknown =
      typeof message === "object" && message !== null && "content" in message ? message.content : undefined;
    if (typeof content === "string") return content;
    throw new UsageError(`${where}: message ${index + 1} must have a "content" that is a string`);
  });
  return contents.join("\n");
}

/** The column `prompt` of a table with a heading. */
function parseTable(text: string, path: string): string[] {
  const [heading, ...rows] = tableRows(text, path);
  const column = heading?.cells.findIndex((name) => name.trim().toLowerCase() === "prompt") ?? -1;
  if (heading === undefined || column < 0) {
    const got = heading === undefined ? "an empty file" : heading.cells.map(describeValue).join(", ");
    throw new UsageError(`${path}: must begin with a line of headings, one of them "prompt", got ${got}`);
  }
  return rows.map(({ cells, line }) => {
    if (cells.length === heading.cells.length) return cells[column]!;
    throw new UsageError(
      `${path}:${line}: must have ${heading.cells.length} columns like the headings, got ${cells.length}`,
    );
  });
}

/** Rows of a table with commas between its cells; a cell in quotes may hold commas, line ends and doubled quotes. */
function tableRows(text: string, path: string): { cells: string[]; line: number }[] {
  const rows: { cells: string[]; line: number }[] = [];
  const cell = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/gy;
  let cells: string[] = [];
  let [line, first] = [1, 1];
  while (cell.lastIndex < text.length) {
    const found = cell.exec(text);
    if (found === null) {
      throw new UsageError(
        `${path}:${line}: a quote must enclose a whole cell, and stand doubled inside of one`,
      );
    }
    const [whole, quoted, plain, end] = found;
    cells.push(quoted === undefined ? plain! : quoted.replaceAll('""', '"'));
    line += whole.split("\n").length - 1;
    if (end === ",") {
      // A comma at the very end still has an empty cell behind it.
      if (cell.lastIndex === text.length) cells.push("");
      else continue;
    }
    if (cells.length > 1 || cells[0] !== "") rows.push({ cells, line: first });
    cells = [];
    first = line;
  }
  return rows;
}
