import { extname } from "node:path";
import { describeValue, UsageError } from "@astra-rl/torch";
import { readTextFile } from "../core/index.js";

/**
 * Reads prompts from a file: a JSON array of strings (.json), one prompt a line (.txt; empty lines are skipped), or
 * one JSON object `{"prompt": …}` or string a line (.jsonl).
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
  if (extension === ".jsonl") return checkPrompts(parseLines(text, path), path);
  if (extension === ".txt")
    return checkPrompts(
      lines(text).flatMap(({ line }) => (line.trim() === "" ? [] : [line])),
      path,
    );
  throw new UsageError(`${path}: prompt files end in .json, .jsonl or .txt, got "${extension}"`);
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
    return JSON.parse(text);
  } catch (error) {
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
    const prompt = typeof value === "object" && value !== null && "prompt" in value ? value.prompt : value;
    if (typeof prompt !== "string") {
      throw new UsageError(
        `${path}:${number}: must be a string or an object with a string "prompt", got ` +
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
