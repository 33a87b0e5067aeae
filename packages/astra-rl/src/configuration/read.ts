import { statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { UsageError } from "@astra-rl/torch";
import {
  Document,
  isAlias,
  isMap,
  isNode,
  isPair,
  LineCounter,
  parseDocument,
  visit,
  type Alias,
  type YAMLError,
  type YAMLMap,
} from "yaml";
import { z } from "zod";
import { closest, dotted, valueAt } from "../options/index.js";
import { readTextFile } from "../text/index.js";
import { hubFile, isRemotePrompts } from "../datasets/index.js";
import { keysAt, kindsWith, leavesOf } from "./json-schema.js";
import { kindPlaces, moduleAt, type KindPlace } from "./kind-sections.js";
import type { KindSectionName } from "./registry.js";
import { algorithmMisfit } from "./misfits.js";
import { applyOverrides, type Override } from "./override.js";
import {
  COMMON_SHAPES,
  configurationSchema,
  EMBEDDED,
  EMBEDDED_MODELS,
  kindSchema,
  type Configuration,
  type KindSection,
  type ModuleTypes,
} from "./schema.js";
import { tooManyTurns } from "./sizes.js";
import type { UserModule } from "./user-module.js";
import { excessOf } from "./yaml-bounds.js";

export interface ReadOptions {
  /** In order; later ones win. Paths in them are relative to the working directory, those of the file to the file. */
  overrides?: readonly Override[];
}

/**
 * Reads a configuration file and fills in the defaults; paths come back absolute. Modules that `type:` names are
 * imported, which runs their code.
 *
 * @throws UsageError with one line for each mistake, each beginning file:line:column
 */
export async function readConfiguration(path: string, options: ReadOptions = {}): Promise<Configuration> {
  const text = await readTextFile(path, "the configuration");
  return parseConfiguration(text, path, options);
}

/** As `readConfiguration`, for text that is already here; `path` begins the messages and is what paths relate to. */
export async function parseConfiguration(
  text: string,
  path: string,
  { overrides = [] }: ReadOptions = {},
): Promise<Configuration> {
  const { document, at } = parseYaml(text, path);
  const content = contentOf(document, at);
  applyOverrides(content, overrides);
  const source: Source = { content, document, at, overrides };
  const { data, modules } = await check(source, path, configurationSchema);
  const misfit = tooManyTurns(data) ?? (await algorithmMisfit(data));
  if (misfit !== null) {
    const { path: keys, message } = misfit;
    throw new UsageError(`${place(keys, source)}: ${dotted(keys)}: ${message}`);
  }
  return withHashes(data, modules, source);
}

/**
 * Reads one section that chooses a kind: a file that holds nothing else, the section of that name of a whole
 * configuration, or a text such as `{type: keyword, entries: […]}`.
 *
 * @param path what paths in it are relative to: the file; of a text on the command line "."
 * @param where begins the messages of a text that is in no file
 */
export async function parseKindSection(
  name: KindSectionName,
  text: string,
  path: string,
  where?: string,
): Promise<KindSection> {
  const { document, at } = parseYaml(text, path, where);
  const { contents } = document;
  const inner = isMap(contents) && !contents.has("type") ? contents.get(name, true) : contents;
  if (!isMap(inner)) {
    throw new UsageError(
      `${at(0)}: must hold a ${name} with its type, got ${show(plainValue(document, document, at))}`,
    );
  }
  const content = { [name]: plainValue(inner, document, at) };
  // The same nodes, so that they still know their lines, one level deeper.
  const around = new Document({});
  (around.contents as unknown as YAMLMap).set(name, inner);
  const schemaOf = (modules: ModuleTypes) => z.strictObject({ [name]: kindSchema(name, modules) });
  const { data } = await check({ content, document: around, at, overrides: [] }, path, schemaOf);
  return data[name] as KindSection;
}

function parseYaml(text: string, path: string, where?: string) {
  const lines = new LineCounter();
  const at = (offset: number) => {
    if (where !== undefined) return where;
    const { line, col } = lines.linePos(offset);
    return `${path}:${Math.max(line, 1)}:${Math.max(col, 1)}`;
  };
  const excess = excessOf(text);
  if (excess !== null) throw new UsageError(`${at(0)}: ${excess}`);
  // Not "silent", which takes the first of several documents without a word.
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, logLevel: "error" });
  if (document.errors.length > 0) {
    const tabs = document.errors.filter(({ code }) => code === "TAB_AS_INDENT");
    // Where tabs indent, everything else that is said follows from them, or is about further tabs.
    const errors = tabs.length > 0 ? tabs.slice(0, 1) : document.errors;
    throw tooManyToTell(errors.map((error) => () => `${at(error.pos[0])}: ${yamlProblem(error)}`));
  }
  const unknown = unknownAliases(document as Document);
  if (unknown.length > 0) {
    throw tooManyToTell(
      unknown.map(
        (alias) => () =>
          `${at(alias.range![0])}: the alias ${JSON.stringify(`*${alias.source}`)} has no anchor ` +
          `${JSON.stringify(`&${alias.source}`)} before it; quote it where a text is meant`,
      ),
    );
  }
  return { document: document as Document, at };
}

/** Imports the modules, has everything checked, and makes the paths of files absolute. */
async function check<T extends Record<string, unknown>>(
  source: Source,
  path: string,
  schemaOf: (modules: ModuleTypes) => z.ZodType<T>,
): Promise<{ data: T; modules: UserModule[] }> {
  const modules = await importModules(kindPlaces(source.content), source, path);
  const types: Record<string, string[]> = {};
  for (const { role, reference } of modules.values()) (types[role] ??= []).push(reference);
  const result = schemaOf(types satisfies ModuleTypes).safeParse(source.content);
  if (!result.success) {
    throw tooManyToTell(result.error.issues.flatMap((issue) => describe(issue, source)));
  }
  await checkModuleOptions(result.data, modules, source);
  for (const { path: keys, value, schema } of leavesOf(result.data)) {
    if (schema.path === undefined || typeof value !== "string") continue;
    if (schema.path === "file" && value === EMBEDDED) continue;
    if (isPromptKey(keys) && isRemotePrompts(value)) {
      checkRemote(value, keys, source);
      continue;
    }
    const section = valueAt(keys.slice(0, -1), result.data) as Record<PropertyKey, unknown>;
    const base = baseOf(keys, path, source.overrides);
    section[keys.at(-1)!] = schema.path === "model" ? resolveModel(value, base) : resolve(base, value);
  }
  return { data: result.data, modules: [...modules.values()] };
}

/** Sources of prompts alone may be names of sets, or files of the hub. */
const isPromptKey = ([section]: readonly (string | number)[]) => section === "prompts";

/** @throws UsageError for an address of the hub that is none, with its place */
function checkRemote(value: string, keys: readonly (string | number)[], source: Source): void {
  if (!value.startsWith("hf://")) return;
  try {
    hubFile(value);
  } catch (cause) {
    throw new UsageError(`${place(keys, source)}: ${dotted(keys)}: ${(cause as Error).message}`, { cause });
  }
}

/** A file and what the command line made of it, to say where something stands. */
interface Source {
  content: Record<string, unknown>;
  document: Document;
  at: (offset: number) => string;
  overrides: readonly Override[];
}

type PlacedModule = UserModule & Pick<KindPlace, "path" | "role">;

/** Imports what the places name and puts the absolute name in its place, by the dotted path of the section. */
async function importModules(
  places: readonly KindPlace[],
  source: Source,
  path: string,
): Promise<Map<string, PlacedModule>> {
  const modules = new Map<string, PlacedModule>();
  for (const kindPlace of places) {
    const typePath = [...kindPlace.path, "type"];
    try {
      const module = await moduleAt(kindPlace, baseOf(typePath, path, source.overrides));
      if (module === null) continue;
      kindPlace.section["type"] = module.reference;
      modules.set(dotted(kindPlace.path), { ...module, path: kindPlace.path, role: kindPlace.role });
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      throw new UsageError(`${place(typePath, source)}: ${dotted(typePath)}: ${error.message}`, {
        cause: error,
      });
    }
  }
  return modules;
}

/** Has the options of each module checked and completed by its own schema. */
async function checkModuleOptions(
  configuration: Record<string, unknown>,
  modules: ReadonlyMap<string, PlacedModule>,
  source: Source,
): Promise<void> {
  const reports: string[] = [];
  for (const { path, role, kind } of modules.values()) {
    if (kind.schema === null) continue;
    const section = valueAt(path, configuration) as Record<string, unknown>;
    const common = ["type", ...Object.keys(COMMON_SHAPES[role] ?? {})];
    const entries = Object.entries(section);
    const kept = Object.fromEntries(entries.filter(([key]) => common.includes(key)));
    const options = Object.fromEntries(entries.filter(([key]) => !common.includes(key)));
    const result = await kind.schema["~standard"].validate(options);
    if (result.issues === undefined) {
      for (const key of Object.keys(options)) delete section[key];
      Object.assign(section, result.value, kept);
      continue;
    }
    for (const issue of result.issues) {
      const steps = (issue.path ?? []).map((step) => (typeof step === "object" ? step.key : step));
      const where = [...path, ...steps] as (string | number)[];
      reports.push(`${place(where, source)}: ${dotted(where)}: ${firstLine(issue.message)}`);
    }
  }
  if (reports.length > 0) throw tooManyToTell(reports.map((report) => () => report));
}

/** Records what the modules are; a file that says what they were has to be right. */
function withHashes(
  configuration: Configuration,
  modules: readonly UserModule[],
  source: Source,
): Configuration {
  const { modules: recorded = {}, ...rest } = configuration;
  const hashes: Record<string, string> = {};
  for (const { file, sha256 } of modules) {
    hashes[file] = sha256;
    const before = recorded[file];
    if (before === undefined || before === sha256) continue;
    throw new UsageError(
      `${place(["modules", file], source)}: ${file} was changed since this was written (SHA-256 ${before}, now ` +
        `${sha256}); restore it, or delete this line to take it as it is`,
    );
  }
  return modules.length === 0 ? rest : { ...rest, modules: hashes };
}

/** What is wrong with a text that is no YAML. */
function yamlProblem({ code, message }: YAMLError): string {
  if (code === "TAB_AS_INDENT") return "a tab indents this line; indent by spaces, here and everywhere";
  if (code !== "MULTIPLE_DOCS") return firstLine(message);
  return 'begins a second document, and a configuration is one; delete the line "---" or what follows it';
}

const firstLine = (message: string) => message.split("\n")[0]!;

/** @throws UsageError for aliases that would write out to a million times what is there */
function plainValue(node: Document | YAMLMap, document: Document, at: (offset: number) => string): unknown {
  try {
    const limit = { maxAliasCount: 100 };
    return isMap(node) ? (node.toJS(document, limit) as unknown) : (document.toJS(limit) as unknown);
  } catch (error) {
    throw new UsageError(`${at(0)}: ${firstLine((error as Error).message)}`, { cause: error });
  }
}

function contentOf(document: Document, at: (offset: number) => string): Record<string, unknown> {
  if (document.contents === null) return {};
  const content = plainValue(document, document, at);
  if (!isMap(document.contents) || typeof content !== "object" || content === null) {
    throw new UsageError(`${at(0)}: must hold sections such as "models:", got ${show(content)}`);
  }
  return content as Record<string, unknown>;
}

/** For each thing that an issue is about what makes its line. */
function describe(issue: z.core.$ZodIssue, source: Source): (() => string)[] {
  const { content } = source;
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(issue.path, content);
    return issue.keys.map((key) => () => {
      const path = [...issue.path, key];
      return `${place(path, source, "key")}: unknown key ${JSON.stringify(dotted(path))}${advice(key, known, issue.path, content)}`;
    });
  }
  return [
    () => {
      const where = `${place(issue.path, source)}: ${dotted(issue.path) || "the file"}`;
      return `${where} ${requirement(issue, valueAt(issue.path, content))}`;
    },
  ];
}

/** Mistakes of one file that are told of, and characters of each. */
const MOST_MISTAKES = 10;
const LONGEST_MISTAKE = 500;

/** One line for each of the first mistakes, which alone are looked up, and one for how many there are besides. */
function tooManyToTell(mistakes: readonly (() => string)[]): UsageError {
  const told = mistakes.slice(0, MOST_MISTAKES).map((tell) => {
    const line = tell();
    return line.length > LONGEST_MISTAKE ? `${line.slice(0, LONGEST_MISTAKE - 1)}…` : line;
  });
  const rest = mistakes.length - told.length;
  return new UsageError([...told, ...(rest > 0 ? [`and ${rest} more of this kind`] : [])].join("\n"));
}

/** Aliases of anchors that do not stand before them. */
function unknownAliases(document: Document): Alias[] {
  const anchors = new Set<string>();
  const unknown: Alias[] = [];
  visit(document, {
    Alias: (_, alias) => {
      if (!anchors.has(alias.source)) unknown.push(alias);
    },
    Node: (_, node) => {
      if (!isAlias(node) && node.anchor !== undefined) anchors.add(node.anchor);
    },
  });
  return unknown;
}

/** What to do about a key that is not known where it stands. */
function advice(
  key: string,
  known: readonly string[],
  path: readonly PropertyKey[],
  content: Record<string, unknown>,
): string {
  const section = valueAt(path, content) as Record<string, unknown>;
  const { type } = section;
  const isKind = known.includes("type");
  if (isKind && key === "name") return `; "type" names a kind: write type: ${show(section[key])}`;
  const near = closest(key, known);
  if (near !== null) return `; did you mean "${near}"?`;
  if (isKind && keysAt(path).includes(key)) return `; ${otherType(key, path, type)}`;
  return `; here stand ${known.join(", ")}`;
}

/** Of a key that another kind of the section has: which, and how to choose it. */
function otherType(key: string, path: readonly PropertyKey[], type: unknown): string {
  const types = kindsWith(path, key);
  const choice =
    types.length === 0 ? "" : `; for it, choose ${dotted([...path, "type"])}: ${types.join(" or ")}`;
  return `it belongs to another type than ${show(type)}${choice}`;
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
      if (options === undefined) {
        const rule = firstLine(issue.message);
        return given === undefined ? `is required (${rule.replace(/^must be /u, "")})` : `${rule}, ${got}`;
      }
      const choice = oneOf([...options.map(show), "an export of a module such as ./file.js#name"]);
      if (given === undefined) return `is required (${choice})`;
      return `must be ${choice}, ${got}${suggestion(given, options)}`;
    }
    case "invalid_format":
      return `${issue.message}, ${got}`;
    case "custom":
      return firstLine(issue.message);
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
    tuple: "a list",
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

const startsWith = (path: readonly PropertyKey[], start: readonly PropertyKey[]) =>
  start.every((step, index) => path[index] === step);

const overrideOf = (path: readonly PropertyKey[], overrides: readonly Override[]) =>
  overrides.findLast((override) => startsWith(path, override.path));

/** file:line:column of a value, or of the nearest section that is there; or the --set that gave it. */
function place(
  path: readonly PropertyKey[],
  { document, at, overrides }: Source,
  pointAt: "value" | "key" = "value",
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
        const exact = length === path.length && isNode(pair.value) && pair.value.range && pointAt === "value";
        return at(exact ? (pair.value as { range: [number, number, number] }).range[0] : pair.key.range[0]);
      }
    }
    const node: unknown = document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return at(node.range[0]);
  }
  return at(0);
}

/**
 * Paths in a file are relative to that file, so that a run folder can be moved with it; those of the command line to
 * the working directory.
 */
const baseOf = (keys: readonly (string | number)[], path: string, overrides: readonly Override[]) =>
  overrideOf(keys, overrides) === undefined ? dirname(path) : ".";

/** owner/name, with a revision after "@" where wanted. Everything else is a folder; ./owner/name always is. */
const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$/;

/** A hub id (owner/name, no such folder here) and the embedded names stay as they are. */
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
