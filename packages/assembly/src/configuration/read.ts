import { statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { isModelId } from "@astra-rl/lm";
import {
  UsageError,
  dotted,
  mistakesError,
  type Mistake,
  validated,
  valueAt,
  readTextFile,
} from "@astra-rl/base";
import { stringify } from "yaml";
import { z } from "zod";
import { WIDE_TREES, type Role, type KindSection } from "@astra-rl/method";
import { hubFile, isRemotePrompts } from "../datasets/index.js";
import { misfitOf } from "./consistency.js";
import { leavesOf, type Place } from "./json-schema.js";
import { kindPlaces } from "./kind-places.js";
import { COMMON_SHAPES, kindSchema, type ModuleTypes } from "./kind-schema.js";
import { overrideOf, type Override } from "./override.js";
import { isProgramReference } from "./program.js";
import { findKind, type KindSectionName } from "./registry.js";
import { EMBEDDED } from "./prompts-schema.js";
import { configurationSchema, DEFAULT_PRESET, EMBEDDED_MODELS, type Configuration } from "./schema.js";
import { checkpointOf, type ModelSetting } from "./references.js";
import { Source } from "./source.js";
import { MODULE_ROLES, type ModuleRole } from "./user-kind.js";
import { isModuleReference, loadUserModule, looksLikeFile, type UserModule } from "./user-module.js";

export interface ReadOptions {
  /** Later overrides win. Their paths are relative to the working directory, paths in the file to the file. */
  overrides?: readonly Override[];
  /** Whether to check the algorithm's compatibility, as for training. Default true */
  trains?: boolean;
  /** Prefix of messages about what is missing, if there is no file. */
  where?: string | undefined;
}

/**
 * Reads a configuration file, fills in the defaults, and makes paths absolute. Imports the modules named by `type:`,
 * which runs their code.
 *
 * @throws UsageError with a line for each mistake, prefixed with file:line:column
 */
export async function readConfiguration(path: string, options: ReadOptions = {}): Promise<Configuration> {
  return parseConfiguration(await readTextFile(path, "the configuration"), path, options);
}

/** Like `readConfiguration`, for a string; `path` prefixes messages, and paths are relative to it. */
export async function parseConfiguration(
  text: string,
  path: string,
  { overrides = [], trains = true, where }: ReadOptions = {},
): Promise<Configuration> {
  const source = Source.ofFile(text, path, overrides, where);
  const { data, modules } = await check(source, path, configurationSchema);
  chooseScorer(data, source);
  chooseByReward(data, source);
  const misfit = await misfitOf(data, trains);
  if (misfit !== null) throw source.mistake(misfit.rule, misfit.path, misfit.message);
  return withHashes(data, modules, source);
}

/**
 * Reads one section that selects a kind: a file with only this section, the section of that name in a whole
 * configuration, or a string such as `{type: keyword, entries: […]}`.
 *
 * @param path base of relative paths: the file, or "." for text from the command line
 * @param where prefix of messages for text that is not in a file
 */
export async function parseKindSection(
  name: KindSectionName,
  text: string,
  path: string,
  where?: string,
): Promise<KindSection> {
  const source = Source.ofSection(name, text, path, where);
  const schemaOf = (modules: ModuleTypes) => z.strictObject({ [name]: kindSchema(name, modules) });
  const { data } = await check(source, path, schemaOf);
  return data[name] as KindSection;
}

/** Algorithms have defaults of their own with the default reward. Both are recorded, for a later version may have others. */
function chooseByReward(
  { algorithm, reward, sampler, system, training }: Configuration,
  source: Source,
): void {
  const isDefault = reward.preset === DEFAULT_PRESET && system === undefined;
  const { elicitationDefaults = {}, growsWideTrees } = findKind("algorithm", algorithm.type) ?? {};
  for (const [name, [chosen, otherwise]] of Object.entries(elicitationDefaults)) {
    const unit = name === "pairMargin" ? (reward.responseWeight ?? 1) : 1;
    algorithm[name] ??= !isDefault ? otherwise : typeof chosen === "number" ? chosen * unit : chosen;
  }
  // Only as a whole: a tree of this width that is deeper than by default is large.
  const { sampler: tree = {}, training: given = {} } = source.content as Record<string, object>;
  const isShaped = "width" in tree || "depth" in tree || "numEpisodesPerExperience" in given;
  if (!isDefault || growsWideTrees !== true || sampler.type !== "ast" || isShaped) return;
  sampler["width"] = WIDE_TREES["sampler.width"];
  training.numEpisodesPerExperience = WIDE_TREES["training.numEpisodesPerExperience"];
  if (!("trainingSteps" in given)) training.trainingSteps = WIDE_TREES["training.trainingSteps"];
}

/** The resolved configuration as YAML, in schema order; parsing it gives the same configuration. */
export const stringifyConfiguration = (configuration: Configuration): string =>
  stringify(configuration, { lineWidth: 110 });

/**
 * Without a `scorer`, the included models are scored by the scorer that was made for them, and a custom system by its
 * own reward. What counts as harm in other models is the user's choice.
 */
function chooseScorer(configuration: Configuration, source: Source): void {
  if (Object.hasOwn(source.content, "scorer")) return;
  const { models, system } = configuration;
  if (system !== undefined) return void (configuration.scorer = { type: "none" });
  const isOurs = (model: ModelSetting) => (checkpointOf(model) ?? "").startsWith(`${EMBEDDED}:`);
  if ([models.target, ...models.otherTargets].every(isOurs)) return;
  throw source.mistake(
    "missing-key",
    ["scorer"],
    "is required for targets other than the embedded ones, since it defines what counts as harm: {type: " +
      "detoxify} for toxicity, {type: llama-guard}, {type: classifier, …}, {type: judge, …}, a keyword list, " +
      "or a custom module; {type: embedded} detects only mild English insults",
  );
}

const byProgram = (part: string) =>
  `pass a custom ${part} to train({ configuration, … }) in a program (docs/guides/programs.md)`;

/** Parts that have no section, since only a program passes them. */
const OF_PROGRAMS = { trainer: byProgram("trainer"), evaluator: byProgram("evaluator") };

/** Imports modules, validates everything, and makes file paths absolute. */
async function check<T extends Record<string, unknown>>(
  source: Source,
  path: string,
  schemaOf: (modules: ModuleTypes) => z.ZodType<T>,
): Promise<{ data: T; modules: UserModule[] }> {
  const { content } = source;
  const modules = await importModules(source, path);
  const types: Partial<Record<Role, string[]>> = {};
  for (const { role, section } of kindPlaces(content)) {
    if (typeof section["type"] === "string" && isOwn(section["type"]))
      (types[role] ??= []).push(section["type"]);
  }
  const data = validated(schemaOf(types), content, {
    where: (...place) => source.place(...place),
    whole: "the file",
    unknownKey: (key) => `unknown key ${JSON.stringify(key)}`,
    advice: OF_PROGRAMS,
  });
  await checkModuleOptions(data, modules, source);
  for (const place of leavesOf(data)) {
    const absolute = absolutePath(place, baseOf(place.path, path, source), source);
    if (absolute === null) continue;
    const section = valueAt(place.path.slice(0, -1), data) as Record<PropertyKey, unknown>;
    section[place.path.at(-1)!] = absolute;
  }
  return { data, modules };
}

/** Whether a type names a part that is not the package's own. */
const isOwn = (type: string): boolean => isProgramReference(type) || isModuleReference(type);

/**
 * Paths in a file are relative to that file, so that a run folder can be moved; those on the command line to the
 * working directory.
 */
const baseOf = (keys: Place["path"], path: string, { overrides }: Source) =>
  overrideOf(keys, overrides) === undefined ? dirname(path) : ".";

/** The absolute path of a value, resolved from `base`; null if the value is not a path. */
function absolutePath({ path: keys, value, schema }: Place, base: string, source: Source): string | null {
  if (schema.path === undefined || typeof value !== "string") return null;
  if (schema.path === "model") return resolveModel(value, base);
  if (schema.path === "file" && (value === EMBEDDED || isProgramReference(value))) return null;
  if (keys[0] !== "prompts" || !isRemotePrompts(value)) return resolve(base, value);
  try {
    if (value.startsWith("hf://")) hubFile(value);
  } catch (cause) {
    const { rule, message } = cause as UsageError;
    throw source.mistake(rule, keys, message, cause);
  }
  return null;
}

/** A module, and the position of the section that names it. */
type PlacedModule = UserModule & { path: Place["path"]; role: ModuleRole };

const isModuleRole = (role: Role): role is ModuleRole => (MODULE_ROLES as readonly Role[]).includes(role);

/** Imports the modules named in sections, and replaces each name by its absolute form. */
async function importModules(source: Source, path: string): Promise<PlacedModule[]> {
  const modules: PlacedModule[] = [];
  for (const { path: keys, role, section } of kindPlaces(source.content)) {
    const typePath = [...keys, "type"];
    const { type } = section;
    if (typeof type !== "string" || isProgramReference(type) || findKind(role, type) !== null) continue;
    try {
      if (!isModuleRole(role)) {
        if (!isModuleReference(type) && !looksLikeFile(type)) continue;
        throw new UsageError(
          "module-not-allowed",
          `cannot be a module; ${byProgram(role)}, got ${JSON.stringify(type)}`,
        );
      }
      if (isModuleReference(type)) {
        const module = await loadUserModule(role, type, baseOf(typePath, path, source));
        section["type"] = module.reference;
        modules.push({ ...module, path: keys, role });
      } else if (looksLikeFile(type)) {
        throw new UsageError(
          "missing-export",
          `must name an export of the file, such as ${type}#name, got ${JSON.stringify(type)}`,
        );
      }
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      throw source.mistake(error.rule, typePath, error.message, error);
    }
  }
  return modules;
}

/** Validates and completes the options of each module by its own schema. */
async function checkModuleOptions(
  configuration: Record<string, unknown>,
  modules: readonly PlacedModule[],
  source: Source,
): Promise<void> {
  const mistakes: Mistake[] = [];
  for (const { path, role, kind } of modules) {
    if (kind.schema === null) continue;
    const section = valueAt(path, configuration) as Record<string, unknown>;
    const common = ["type", ...Object.keys(COMMON_SHAPES[role] ?? {})];
    const [kept, options] = [true, false].map((isCommon) =>
      Object.fromEntries(Object.entries(section).filter(([key]) => common.includes(key) === isCommon)),
    );
    const result = await kind.schema["~standard"].validate(options);
    if (result.issues === undefined) {
      for (const key of Object.keys(options!)) delete section[key];
      Object.assign(section, result.value, kept);
      continue;
    }
    for (const issue of result.issues) {
      const steps = (issue.path ?? []).map((step) => (typeof step === "object" ? step.key : step));
      const keys = [...path, ...steps];
      mistakes.push({
        rule: "module-option",
        tell: () => `${source.place(keys)}: ${dotted(keys)}: ${issue.message.split("\n")[0]}`,
      });
    }
  }
  if (mistakes.length > 0) throw mistakesError(mistakes);
}

/** Records the hashes of modules; hashes already in the file must match. */
function withHashes(
  configuration: Configuration,
  modules: readonly UserModule[],
  source: Source,
): Configuration {
  const { modules: recorded = {}, ...rest } = configuration;
  for (const { file, sha256 } of modules) {
    const before = recorded[file] ?? sha256;
    if (before === sha256) continue;
    throw new UsageError(
      "checksum-mismatch",
      `${source.place(["modules", file])}: ${file} has changed since this was written (SHA-256 ${before}, now ` +
        `${sha256}); ` +
        "restore it, or delete this line to accept the change",
    );
  }
  if (modules.length === 0) return rest;
  return { ...rest, modules: Object.fromEntries(modules.map(({ file, sha256 }) => [file, sha256])) };
}

/** Hub ids (owner/name without a folder of that name) and embedded names are returned unchanged; all else is a folder. */
function resolveModel(model: string, base: string): string {
  if (model.startsWith(`${EMBEDDED}:`)) {
    const known = EMBEDDED_MODELS.map((name) => `${EMBEDDED}:${name}`);
    if (known.includes(model)) return model;
    throw new UsageError(
      "unknown-choice",
      `${model}: unknown embedded model; available: ${known.join(", ")}`,
    );
  }
  const folder = resolve(base, model);
  const isFolder = statSync(folder, { throwIfNoEntry: false })?.isDirectory() ?? false;
  return isModelId(model) && !isFolder ? model : folder;
}
