import { statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { UsageError } from "@astra-rl/torch";
import { isMap, isNode, isPair, LineCounter, parseDocument, type Document } from "yaml";
import type { z } from "zod";
import { closest } from "./closest.js";
import { keysAt } from "./json-schema.js";
import { applyOverrides, type Override } from "./override.js";
import { configurationSchema, EMBEDDED, EMBEDDED_MODELS, type Configuration } from "./schema.js";

export interface ReadOptions {
  /** In order; later ones win. Paths in them are relative to the working directory, those of the file to the file. */
  overrides?: readonly Override[];
}

/**
 * Reads a configuration file and fills in the defaults; paths come back absolute.
 *
 * @throws UsageError with one line for each mistake, each beginning file:line:column
 */
export async function readConfiguration(path: string, options: ReadOptions = {}): Promise<Configuration> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reasons: Record<string, string> = { ENOENT: "there is no such file", EISDIR: "it is a folder" };
    const reason = reasons[code ?? ""] ?? (error as Error).message;
    throw new UsageError(`${path}: cannot read the configuration: ${reason}`, { cause: error });
  }
  return parseConfiguration(text, path, options);
}

/** As `readConfiguration`, for text that is already here; `path` begins the messages and is what paths relate to. */
export function parseConfiguration(
  text: string,
  path: string,
  { overrides = [] }: ReadOptions = {},
): Configuration {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, logLevel: "silent" });
  const at = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    return `${path}:${Math.max(line, 1)}:${Math.max(col, 1)}`;
  };
  if (document.errors.length > 0) {
    const reports = document.errors.map((error) => `${at(error.pos[0])}: ${firstLine(error.message)}`);
    throw new UsageError(reports.join("\n"));
  }
  const content = contentOf(document, at);
  applyOverrides(content, overrides);
  const result = configurationSchema.safeParse(content);
  if (!result.success) {
    const reports = result.error.issues.flatMap((issue) => describe(issue, document, at, overrides));
    throw new UsageError(reports.join("\n"));
  }
  return resolvePaths(result.data, path, overrides);
}

const firstLine = (message: string) => message.split("\n")[0]!;

function contentOf(document: Document, at: (offset: number) => string): Record<string, unknown> {
  if (document.contents === null) return {};
  let content: unknown;
  try {
    content = document.toJS({ maxAliasCount: 100 });
  } catch (error) {
    throw new UsageError(`${at(0)}: ${firstLine((error as Error).message)}`, { cause: error });
  }
  if (!isMap(document.contents) || typeof content !== "object" || content === null) {
    throw new UsageError(`${at(0)}: must hold sections such as "models:", got ${show(content)}`);
  }
  return content as Record<string, unknown>;
}

/** One line for each thing that an issue is about. */
function describe(
  issue: z.core.$ZodIssue,
  document: Document,
  at: (offset: number) => string,
  overrides: readonly Override[],
): string[] {
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(issue.path);
    return issue.keys.map((key) => {
      const path = [...issue.path, key];
      const near = closest(key, known);
      const advice = near === null ? `here stand ${known.join(", ")}` : `did you mean "${near}"?`;
      return `${place(path, document, at, overrides)}: unknown key ${JSON.stringify(dotted(path))}; ${advice}`;
    });
  }
  const where = `${place(issue.path, document, at, overrides)}: ${dotted(issue.path) || "the file"}`;
  return [`${where} ${requirement(issue, valueAt(issue.path, document, overrides))}`];
}

/** The rule that was broken and what was given, as the end of a sentence. */
function requirement(issue: z.core.$ZodIssue, given: unknown): string {
  const got = given === undefined ? "and is missing" : `got ${show(given)}`;
  switch (issue.code) {
    case "invalid_type":
      if (given === undefined) return `is required (${article(issue.expected)})`;
      return `must be ${article(issue.expected)}, ${got}`;
    case "too_small": {
      const counted = issue.origin === "array" || issue.origin === "string";
      if (counted) return `must not be empty, ${got}`;
      return `must be ${issue.inclusive ? "at least" : "greater than"} ${String(issue.minimum)}, ${got}`;
    }
    case "too_big":
      return `must be ${issue.inclusive ? "at most" : "less than"} ${String(issue.maximum)}, ${got}`;
    case "invalid_value":
      return `must be ${oneOf(issue.values.map(show))}, ${got}${suggestion(given, issue.values)}`;
    case "invalid_union": {
      const { options } = issue as { options?: readonly unknown[] };
      if (options === undefined) return `fits none of the allowed forms, ${got}`;
      if (given === undefined) return `is required (${oneOf(options.map(show))})`;
      return `must be ${oneOf(options.map(show))}, ${got}${suggestion(given, options)}`;
    }
    case "invalid_format":
      return `${issue.message}, ${got}`;
    default:
      return `${firstLine(issue.message)}, ${got}`;
  }
}

const article = (type: string) =>
  ({
    int: "a whole number",
    number: "a number",
    string: "a text",
    boolean: "true or false",
    object: "a section",
    array: "a list",
  })[type] ?? type;

const oneOf = (values: readonly string[]) =>
  values.length < 2 ? values.join("") : `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;

function show(value: unknown): string {
  if (typeof value === "number") return String(value);
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

function suggestion(given: unknown, values: readonly unknown[]): string {
  if (typeof given !== "string") return "";
  const near = closest(
    given,
    values.filter((value) => typeof value === "string"),
  );
  return near === null ? "" : `; did you mean "${near}"?`;
}

const dotted = (path: readonly PropertyKey[]) =>
  path
    .map((step, index) => (typeof step === "number" ? `[${step}]` : `${index > 0 ? "." : ""}${String(step)}`))
    .join("");

const startsWith = (path: readonly PropertyKey[], start: readonly string[]) =>
  start.every((step, index) => path[index] === step);

const overrideOf = (path: readonly PropertyKey[], overrides: readonly Override[]) =>
  overrides.findLast((override) => startsWith(path, override.path));

function valueAt(path: readonly PropertyKey[], document: Document, overrides: readonly Override[]): unknown {
  const override = overrideOf(path, overrides);
  if (override !== undefined) {
    const rest = path.slice(override.path.length);
    return rest.reduce<unknown>(
      (value, step) => (value as Record<PropertyKey, unknown> | undefined)?.[step],
      override.value,
    );
  }
  if (path.length === 0) return document.toJS() as unknown;
  const node: unknown = document.getIn(path, true);
  return isNode(node) ? (node.toJS(document) as unknown) : (node ?? undefined);
}

/** file:line:column of a value, or of the nearest section that is there; or the --set that gave it. */
function place(
  path: readonly PropertyKey[],
  document: Document,
  at: (offset: number) => string,
  overrides: readonly Override[],
): string {
  const override = overrideOf(path, overrides);
  if (override !== undefined) return `--set ${override.text}`;
  for (let length = path.length; length > 0; length -= 1) {
    const parent: unknown =
      length === 1 ? document.contents : document.getIn(path.slice(0, length - 1), true);
    if (isMap(parent)) {
      const pair = parent.items.find(
        (item) => isPair(item) && isNode(item.key) && item.key.toJS(document) === path[length - 1],
      );
      if (pair !== undefined && isNode(pair.key) && pair.key.range) {
        // An unknown or missing key is pointed at itself, a bad value at the value.
        const exact = length === path.length && isNode(pair.value) && pair.value.range && !isUnknownKey(path);
        return at(exact ? (pair.value as { range: [number, number, number] }).range[0] : pair.key.range[0]);
      }
    }
    const node: unknown = document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return at(node.range[0]);
  }
  return at(0);
}

const isUnknownKey = (path: readonly PropertyKey[]) =>
  !keysAt(path.slice(0, -1)).includes(String(path.at(-1)));

/**
 * Paths in a file are relative to that file, so that a run folder can be moved with it; those of the command line to
 * the working directory. A hub id (owner/name, no such folder here) and the embedded names stay as they are.
 */
function resolvePaths(
  configuration: Configuration,
  path: string,
  overrides: readonly Override[],
): Configuration {
  const base = (...keys: string[]) => (overrideOf(keys, overrides) === undefined ? dirname(path) : ".");
  const { models, prompts, scorer } = configuration;
  for (const role of ["tester", "target", "baseline"] as const) {
    const model = models[role];
    if (model !== undefined) models[role] = resolveModel(model, base("models", role));
  }
  for (const split of ["train", "dev", "test"] as const) {
    if (prompts[split] !== EMBEDDED) prompts[split] = resolve(base("prompts", split), prompts[split]);
  }
  if (scorer.type === "keyword") {
    if ((scorer.file === undefined) === (scorer.entries === undefined)) {
      throw new UsageError(
        `${path}: scorer must have either "file" or "entries", got ${scorer.file === undefined ? "neither" : "both"}`,
      );
    }
    if (scorer.file !== undefined) scorer.file = resolve(base("scorer", "file"), scorer.file);
  }
  return configuration;
}

/** owner/name, with a revision after "@" where wanted. Everything else is a folder; ./owner/name always is. */
const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$/;

function resolveModel(model: string, base: string): string {
  if (model.startsWith(`${EMBEDDED}:`)) {
    const known = EMBEDDED_MODELS.map((name) => `${EMBEDDED}:${name}`);
    if (known.includes(model as (typeof known)[number])) return model;
    throw new UsageError(`${model}: there is no such embedded model; there is ${known.join(", ")}`);
  }
  const folder = resolve(base, model);
  return HUB_ID.test(model) && !existsAsFolder(folder) ? model : folder;
}

const existsAsFolder = (path: string) => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
