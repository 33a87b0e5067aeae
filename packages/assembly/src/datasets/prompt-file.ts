import { extname } from "node:path";
import { Conversation, Message, type From } from "@astra-rl/lm";
import { describeValue, UsageError, jsonLines, readNamedFile, readTextFile } from "@astra-rl/base";
import type { PromptOf } from "@astra-rl/method";
import { readArrowRows, readParquetRows } from "./column-files.js";
import { columnName, goalReaderOf, type GoalReader } from "./goal-columns.js";
import { goalOfPrompt, goalsOf, promptWithGoal } from "./goal-prompts.js";

export interface PromptFileOptions {
  /** The column or key with the prompt. Default: "prompt", else "messages"; with goals, there need be none. */
  column?: string;
  /** Whether columns of goals are read. Default true. */
  goals?: boolean;
}

/** A text that starts an episode, or a conversation that it continues. */
export type Prompt = PromptOf<Conversation>;

/** The text of a prompt, a line for each message, for models without speakers. */
export const promptText = (prompt: Prompt): string =>
  typeof prompt === "string"
    ? prompt
    : prompt
        .messages()
        .filter(({ text }) => text !== "")
        .join("\n");

/** Supported file extensions. */
const EXTENSIONS = ".json, .jsonl, .csv, .txt, .parquet or .arrow";

/**
 * Reads prompts from a file: a JSON array (.json), JSON lines (.jsonl), a table with a header (.csv as in RFC 4180;
 * .parquet; .arrow in both formats), or one prompt per line (.txt; empty lines are skipped).
 *
 * A prompt is a string, or an object or row with the prompt in a column. A list of messages `{"role": …, "content":
 * …}` becomes a conversation: user messages are the tester's, assistant messages the target's, and a user's last
 * message the prompt. A single message of a user becomes its text. Further columns may hold a goal: `goal`, or those of
 * HarmBench, JailbreakBench, StrongREJECT and AdvBench.
 *
 * @throws UsageError that names the file and the position in it
 */
export async function readPromptFile(path: string, options: PromptFileOptions = {}): Promise<Prompt[]> {
  const extension = extname(path).toLowerCase();
  if (extension === ".parquet" || extension === ".arrow") {
    const bytes = await readNamedFile(path, "prompts");
    const read = extension === ".parquet" ? readParquetRows : readArrowRows;
    let table: Table | undefined;
    const rows = await read(bytes, (columns) => (table = tableOf(columns, options, path)).columns, path);
    return checkPrompts(
      rows.map((row, at) => promptOfRow(row, table!, `${path}: row ${at + 1}`)),
      path,
    );
  }
  return parsePrompts(await readTextFile(path, "prompts"), path, options);
}

/**
 * Parses the text of a prompt file.
 *
 * @param path its extension determines the format; it also prefixes every message
 */
export function parsePrompts(text: string, path: string, options: PromptFileOptions = {}): Prompt[] {
  const extension = extname(path).toLowerCase();
  if (extension === ".json") return checkPrompts(parseArray(text, path, options), path);
  if (extension === ".csv") return checkPrompts(parseTable(text, path, options), path);
  if (extension === ".jsonl") return checkPrompts(parseLines(text, path, options), path);
  if (extension === ".txt")
    return checkPrompts(
      text.split(/\r?\n/u).filter((line) => line.trim() !== ""),
      path,
    );
  throw new UsageError("unknown-extension", `${path}: prompt files end in ${EXTENSIONS}, got "${extension}"`);
}

/** Where the prompts and the goals of a table are. */
interface Table {
  /** null where there are only goals. */
  readonly prompt: string | null;
  readonly goal: GoalReader | null;
  /** All columns that are read. */
  readonly columns: readonly string[];
}

/** @throws UsageError that lists the existing columns */
function tableOf(
  columns: readonly string[],
  { column, goals = true }: PromptFileOptions,
  path: string,
): Table {
  const wanted = column === undefined ? ["prompt", "messages"] : [column];
  const prompt = wanted.flatMap((name) => columnNamed(columns, name) ?? [])[0] ?? null;
  const goal = goals ? goalReaderOf(columns, prompt) : null;
  if (prompt !== null || (goal !== null && column === undefined)) {
    return { prompt, goal, columns: [prompt ?? [], goal?.columns ?? []].flat() };
  }
  const got = columns.map(describeValue).join(", ");
  throw new UsageError(
    "missing-column",
    column === undefined
      ? `${path}: must have a column "prompt", "messages" or "goal", got ${got}; specify it with prompts.column`
      : `${path}: has no column ${describeValue(column)}; it has ${got}`,
  );
}

const columnNamed = (columns: readonly string[], wanted: string): string | undefined =>
  columns.find((name) => name === wanted) ?? columns.find((name) => columnName(name) === columnName(wanted));

/** The prompt of a row, with its goal; a row without a prompt starts an empty conversation. */
function promptOfRow(
  row: Readonly<Record<string, unknown>>,
  { prompt, goal }: Table,
  where: string,
): unknown {
  const value = prompt === null ? "" : row[prompt];
  const isList = prompt !== null && (columnName(prompt) === "messages" || Array.isArray(value));
  const text = isList ? promptOfMessages(value, where, prompt) : value;
  if (goal === null || !isPrompt(text)) return text;
  return promptWithGoal(text, goal.read(row, where));
}

/**
 * Checks that prompts from any source are a non-empty list of texts and conversations.
 *
 * @param where prefix of every message
 */
export function checkPrompts(prompts: unknown, where: string): Prompt[] {
  if (!Array.isArray(prompts)) {
    throw new UsageError(
      "not-a-list",
      `${where}: prompts must be an array of strings, got ${kindOf(prompts)}`,
    );
  }
  if (prompts.length === 0) throw new UsageError("empty", `${where}: contains no prompts; give at least one`);
  for (const [index, prompt] of prompts.entries()) {
    if (!isPrompt(prompt)) {
      throw new UsageError(
        "invalid-prompt",
        `${where}: prompt ${index + 1} must be a string, got ${kindOf(prompt)}`,
      );
    }
    if (promptText(prompt).trim() === "" && goalOfPrompt(prompt) === null) {
      throw new UsageError(
        "empty-prompt",
        `${where}: prompt ${index + 1} is empty; give it a text, or leave it out`,
      );
    }
  }
  checkGoals(prompts as Prompt[], where);
  return prompts as Prompt[];
}

/** Refuses sets of which only some prompts have a goal, and different goals of one name. */
function checkGoals(prompts: readonly Prompt[], where: string): void {
  const without = prompts.findIndex((prompt) => goalOfPrompt(prompt) === null);
  const goals = goalsOf(prompts);
  if (goals.length === 0) return;
  if (without >= 0) {
    throw new UsageError(
      "missing-goal",
      `${where}: prompt ${without + 1} has no goal, but others have one; give it a goal, or take it into another file`,
    );
  }
  const known = new Map<string, string>();
  for (const { id, text } of goals) {
    if ((known.get(id) ?? text) !== text) {
      throw new UsageError(
        "ambiguous-goal",
        `${where}: two goals are named ${describeValue(id)}; give each a name of its own`,
      );
    }
    known.set(id, text);
  }
}

const isPrompt = (value: unknown): value is Prompt =>
  typeof value === "string" || value instanceof Conversation;

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value} (${describeValue(value)})`;
}

function parseArray(text: string, path: string, options: PromptFileOptions): unknown {
  if (text.trim() === "")
    throw new UsageError("empty-file", `${path}: is empty; give a JSON array of strings`);
  try {
    const parsed: unknown = JSON.parse(text);
    if (!Array.isArray(parsed)) return parsed;
    return parsed.map((item: unknown, index) => promptIn(item, options, `${path}: prompt ${index + 1}`));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(
      "not-json",
      `${path}${place(text, error as Error)}: is not JSON: ${(error as Error).message}`,
      {
        cause: error,
      },
    );
  }
}

function parseLines(text: string, path: string, options: PromptFileOptions): unknown[] {
  return jsonLines(text, path).map(({ value, line }) => {
    const prompt = promptIn(value, options, `${path}:${line}`);
    if (isPrompt(prompt)) return prompt;
    const { column = "prompt" } = options;
    throw new UsageError(
      "invalid-prompt",
      `${path}:${line}: must be a string or an object with a string ${describeValue(column)} or a list of "messages", got ` +
        (prompt === value ? kindOf(value) : `a prompt that is ${kindOf(prompt)}`),
    );
  });
}

/** ":line:column" of a JSON error, if the error message contains a position. */
function place(text: string, error: Error): string {
  const position = /position (\d+)/u.exec(error.message)?.[1];
  if (position === undefined) return "";
  const before = text.slice(0, Number(position)).split("\n");
  return `:${before.length}:${before.at(-1)!.length + 1}`;
}

/** The prompt in an object; other values are returned unchanged. */
function promptIn(value: unknown, { column, goals = true }: PromptFileOptions, where: string): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const names = column === undefined ? ["prompt", "messages"] : [column];
  const prompt = names.find((key) => key in value) ?? null;
  const goal = goals ? goalReaderOf(Object.keys(value), prompt) : null;
  if (prompt === null && (goal === null || column !== undefined)) return value;
  return promptOfRow(value as Record<string, unknown>, { prompt, goal, columns: [] }, where);
}

const SPEAKERS: Readonly<Record<string, From>> = { system: "system", user: "tester", assistant: "target" };

/** A list of messages as a conversation, or as its text if it is a single one of a user. */
function promptOfMessages(messages: unknown, where: string, column: string): Prompt {
  if (!Array.isArray(messages) || messages.length === 0) throw noMessages(messages, column, where);
  const [first, ...others] = messages.map((message: unknown, index) => {
    const { role, content: given } = (message ?? {}) as { role?: unknown; content?: unknown };
    const at = `${where}: message ${index + 1}`;
    const content = textOf(given, at);
    const from = Object.hasOwn(SPEAKERS, String(role)) ? SPEAKERS[String(role)]! : undefined;
    if (from === undefined) {
      throw new UsageError(
        "unknown-role",
        `${at} must have the "role" system, user or assistant, got ${describeValue(role)}; leave other messages out`,
      );
    }
    const isPrompt = from === "tester" && index === messages.length - 1;
    return new Message(isPrompt ? "prompt" : from, content);
  });
  return others.length === 0 && first!.from === "prompt" ? first!.text : Conversation.of(first!, ...others);
}

/** The text of a message's content: a string, or a list of parts that are all text. */
function textOf(content: unknown, at: string): string {
  if (typeof content === "string") return content;
  const parts: readonly unknown[] = Array.isArray(content) ? content : [];
  const texts = parts.map((part) => {
    const { type, text } = (part ?? {}) as { type?: unknown; text?: unknown };
    return type === "text" && typeof text === "string" ? text : null;
  });
  const other = texts.indexOf(null);
  if (texts.length > 0 && other < 0) return texts.join("");
  throw new UsageError(
    "invalid-content",
    `${at} must have a "content" that is a string, or a list of parts {"type": "text", "text": …}` +
      (other < 0 ? "" : `, but part ${other + 1} is another`),
  );
}

const noMessages = (value: unknown, column: string, where: string) =>
  new UsageError(
    "empty",
    `${where}: ${describeValue(column)} must be a list of at least one, got ${kindOf(value)}`,
  );

/** The prompts of a table with a header; column names are case-insensitive. */
function parseTable(text: string, path: string, options: PromptFileOptions): unknown[] {
  const [heading, ...rows] = tableRows(text, path);
  if (heading === undefined) {
    throw new UsageError(
      "missing-column",
      `${path}: must begin with a line of headings, one of them ${describeValue(options.column ?? "prompt")}, got an empty file`,
    );
  }
  const table = tableOf(heading.cells, options, path);
  return rows.map(({ cells, line }) => {
    if (cells.length !== heading.cells.length) {
      throw new UsageError(
        "column-count-mismatch",
        `${path}:${line}: must have ${heading.cells.length} columns like the headings, got ${cells.length}`,
      );
    }
    const row = Object.fromEntries(heading.cells.map((name, at) => [name, cells[at]]));
    return promptOfRow(row, table, `${path}:${line}`);
  });
}

/** Parses CSV rows; a quoted cell may contain commas, line breaks and doubled quotes. */
function tableRows(text: string, path: string): { cells: string[]; line: number }[] {
  const rows: { cells: string[]; line: number }[] = [];
  const cell = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/gy;
  let cells: string[] = [];
  let [line, first] = [1, 1];
  while (cell.lastIndex < text.length) {
    const found = cell.exec(text);
    if (found === null) {
      throw new UsageError(
        "unbalanced-quotes",
        `${path}:${line}: quotes must enclose a whole cell, and be doubled inside it`,
      );
    }
    const [whole, quoted, plain, end] = found;
    cells.push(quoted === undefined ? plain! : quoted.replaceAll('""', '"'));
    line += whole.split("\n").length - 1;
    if (end === ",") {
      // A trailing comma is followed by an empty cell.
      if (cell.lastIndex === text.length) cells.push("");
      else continue;
    }
    if (cells.length > 1 || cells[0] !== "") rows.push({ cells, line: first });
    cells = [];
    first = line;
  }
  return rows;
}
