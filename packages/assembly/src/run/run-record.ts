import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { hostname, cpus } from "node:os";
import { basename, extname, join } from "node:path";
import { resolveTokenizer, TOKENIZER_FILES, type HubOptions } from "@astra-rl/lm";
import { distributed, engineInformation } from "@astra-rl/torch";
import { explainDiskErrors, fileDigest, makeFolder, packageVersion, writeFileAtomic } from "@astra-rl/base";
import {
  parseRunRecord,
  stringifyRunRecord,
  savedStep,
  type FileIdentity,
  type MeasuredRecord,
  type ModelIdentity,
  type RunRecord,
  type RunSession,
  type SearchRecord,
  type ServerRecord,
} from "@astra-rl/records";
import {
  configuredFiles,
  configuredModels,
  EMBEDDED,
  isProgramReference,
  moduleParts,
  partModels,
  programName,
  type Configuration,
  type ConfiguredModel,
} from "../configuration/index.js";
import { defaultPrompts, PROMPT_SPLITS, type PromptSplit } from "../embedded/index.js";
import { isRemotePrompts, localPrompts, type Prompt } from "../datasets/index.js";
import { identityOf, modelIdentity, modelSource } from "../assemble/index.js";
import type { ModelFormats } from "./model-formats.js";

const FILE = "run.json";

/** Maximum size of files that are copied to the run folder, in bytes. */
const SMALL = 1 << 20;

/**
 * Records a process in `run.json`: date, command and machine. The first time it also records the SHA-256 of models,
 * prompts and word lists, and copies small files to `inputs/`. A resumed run keeps its record and adds a session.
 *
 * @param hub how models were downloaded
 */
export async function recordSession(
  folder: string,
  configuration: Configuration,
  {
    resume = false,
    hub = {} as HubOptions,
    now = new Date(),
    formats = {},
    servers = {},
    command = [basename(process.execPath), ...process.argv.slice(1)],
  }: {
    resume?: boolean;
    hub?: HubOptions;
    now?: Date;
    formats?: ModelFormats["formats"];
    servers?: Record<string, ServerRecord>;
    /** What started this process. */
    command?: readonly string[];
  } = {},
): Promise<void> {
  const path = join(folder, FILE);
  const session = describeSession(now, command, resume ? savedStep(folder) : null);
  // A run that was started by a trainer alone has no run.json, and gets one on resume.
  const before = resume && existsSync(path) ? parseRunRecord(readFileSync(path, "utf8"), path) : null;
  const record: RunRecord =
    before === null
      ? {
          seed: configuration.seed,
          models: await modelIdentities(configuration, hub),
          formats,
          ...serversIn(servers),
          files: await fileIdentities(folder, configuration, hub),
          sessions: [session],
          version: 1,
        }
      : { ...before, sessions: [...before.sessions, session] };
  writeFileAtomic(path, [stringifyRunRecord(record)]);
}

/** Records in `run.json` why training ended before its last step; does nothing if the folder has no such file. */
export function recordStop(folder: string, stopped: NonNullable<RunSession["stopped"]>): void {
  const path = join(folder, FILE);
  if (!existsSync(path)) return;
  const record = parseRunRecord(readFileSync(path, "utf8"), path);
  const sessions = [...record.sessions.slice(0, -1), { ...record.sessions.at(-1)!, stopped }];
  writeFileAtomic(path, [stringifyRunRecord({ ...record, sessions })]);
}

/**
 * The warning for a run that continues with another number of threads or instruction set than its last session: sums
 * are then computed in another order.
 *
 * @returns null if both are the same, or not recorded
 */
export function engineChange(folder: string): string | null {
  const path = join(folder, FILE);
  if (!existsSync(path)) return null;
  const { engine: before } = parseRunRecord(readFileSync(path, "utf8"), path).sessions.at(-1)!;
  const { isa, threads } = engineInformation();
  const processes = distributed.worldSize();
  const isSame = before.isa === isa && before.threads === threads && before.processes === processes;
  if (isSame) return null;
  const settings = [
    ...(before.threads === threads ? [] : [`OMP_NUM_THREADS=${before.threads}`]),
    ...(before.isa === isa ? [] : [`ASTRA_ISA=${before.isa}`]),
    ...(before.processes === processes ? [] : [`--processes ${before.processes}`]),
  ];
  const on = (count: number, among: number) =>
    `${count === 1 ? "1 thread" : `${count} threads`}${among === 1 ? "" : ` of each of ${among} processes`}`;
  return (
    `${folder}: computed on ${on(before.threads, before.processes)} with ${before.isa} so far, and resumes on ` +
    `${on(threads, processes)} with ${isa}. ` +
    "Rounding differs, so from here on numbers, and eventually texts, will differ from those of an uninterrupted " +
    "run. Completed steps, random draws, prompts and their order stay the same. To resume exactly, if the machine " +
    `supports it: ${settings.join(" ")}`
  );
}

function describeSession(now: Date, command: readonly string[], resumedAfter: number | null): RunSession {
  const { libtorch, origin, blas, isa, threads } = engineInformation();
  const processors = cpus();
  return {
    started: now.toISOString(),
    astra_rl: packageVersion,
    commit: gitCommit(),
    command: [...command],
    directory: process.cwd(),
    host: {
      name: hostname(),
      platform: `${process.platform} ${process.arch}`,
      processor: processors[0]?.model.trim() ?? "unknown",
      cores: Math.max(1, processors.length),
      node: process.versions.node,
    },
    engine: { libtorch, library: origin, blas, isa, threads, processes: distributed.worldSize() },
    resumed_after: resumedAfter,
  };
}

/** The git commit of the working directory; null outside git. */
function gitCommit(): string | null {
  const git = (...args: string[]) =>
    execFileSync("git", args, {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
      timeout: 5000,
    }).trim();
  try {
    const commit = git("rev-parse", "HEAD");
    return git("status", "--porcelain", "--untracked-files=no") === "" ? commit : `${commit}+changes`;
  } catch {
    // git is not installed, or this is not a repository.
    return null;
  }
}

/** The checkpoints of a run: models by role, those of other parts by the key of the part's section. */
async function modelIdentities(
  configuration: Configuration,
  hub: HubOptions,
): Promise<Record<string, ModelIdentity>> {
  const known = new Map<string, ModelIdentity>();
  const identities: Record<string, ModelIdentity> = {};
  for (const { name, model } of configuredModels(configuration).filter((each) => each.tokenizerOnly)) {
    const folder = await resolveTokenizer(modelSource(model), hub);
    identities[name] = identityOf(model, folder, (file) => TOKENIZER_FILES.includes(file));
  }
  const whole = configuredModels(configuration).filter((each) => !each.tokenizerOnly);
  const source = "checkpoint" as const;
  const parts = partModels(configuration).map(({ key, model }) => ({ name: key, model, source }));
  for (const { name, ...model } of [...whole, ...parts]) {
    const identity = known.get(model.model) ?? (await configuredIdentity(configuration, model, hub));
    known.set(model.model, identity);
    identities[name] = identity;
  }
  return identities;
}

const serversIn = (servers: Record<string, ServerRecord>) =>
  Object.keys(servers).length === 0 ? {} : { servers };

/** Identifies a model by its files: of a checkpoint, or of the module that creates it; a server has none. */
async function configuredIdentity(
  configuration: Configuration,
  { model, source }: Pick<ConfiguredModel, "model" | "source">,
  hub: HubOptions,
): Promise<ModelIdentity> {
  if (source === "checkpoint") return modelIdentity(model, hub);
  if (source === "server") return { model, files: {} };
  const { module: file } = moduleParts(model);
  return { model, files: { [file]: (configuration.modules ?? {})[file]! } };
}

async function fileIdentities(
  folder: string,
  configuration: Configuration,
  hub: HubOptions,
): Promise<FileIdentity[]> {
  const identities: FileIdentity[] = [];
  for (const { key, path } of configuredFiles(configuration)) {
    if (isProgramReference(path)) {
      identities.push({ key, path, sha256: programName(path), copy: null });
      continue;
    }
    if (path === EMBEDDED) {
      identities.push({ key, path, sha256: await embeddedHash(key), copy: null });
      continue;
    }
    const local = isRemotePrompts(path) ? await localPrompts(path, { hub }) : path;
    const copy = statSync(local).size <= SMALL ? join("inputs", `${key}${extname(local)}`) : null;
    if (copy !== null) {
      makeFolder(join(folder, "inputs"));
      explainDiskErrors(folder, () => writeFileSync(join(folder, copy), readFileSync(local)));
    }
    identities.push({ key, path, sha256: fileDigest(local), copy });
  }
  return identities;
}

async function embeddedHash(key: string): Promise<string> {
  const split = PROMPT_SPLITS.find((name) => key === `prompts.${name}`);
  return promptsHash(split === undefined ? [] : await defaultPrompts(split));
}

/** Distinguishes conversations from their texts, and by their speakers and goals. */
export const promptsHash = (prompts: readonly Prompt[]) =>
  createHash("sha256")
    .update(
      JSON.stringify(
        prompts.map((prompt) => {
          if (typeof prompt === "string") return prompt;
          const messages = prompt.messages().map(({ from, text }) => [from, text]);
          return prompt.goal === null ? messages : { messages, goal: prompt.goal };
        }),
      ),
    )
    .digest("hex");

export interface MeasuredOptions {
  split: MeasuredRecord["prompts"]["split"];
  prompts: readonly Prompt[];
  /** Their source, if not the configured file of the split. */
  source?: string;
  /** The compute dtype of rollouts. */
  dtype: string;
  /** The tester, if it is not the configured one. */
  tester?: ModelIdentity;
  /** How the tester's probes were found, if by a search. */
  search?: SearchRecord;
  /** The benign prompts that the target was asked. */
  benign?: NonNullable<MeasuredRecord["benign"]>;
  formats?: ModelFormats;
  servers?: Record<string, ServerRecord>;
  hub?: HubOptions;
}

/** Describes what an evaluation of a configuration measured, for its record. */
export async function describeMeasured(
  configuration: Configuration,
  { split, prompts, source, dtype, tester, search, benign, formats, servers = {}, hub = {} }: MeasuredOptions,
): Promise<MeasuredRecord> {
  const { models, scorer, generation, sampler, evaluation, seed } = configuration;
  const files = configuredFiles(configuration).filter(({ key }) => key.startsWith("scorer."));
  const judges = partModels(configuration).filter(({ key }) => /^scorer\b/.test(key));
  const identities = await Promise.all(judges.map(({ model }) => modelIdentity(model, hub)));
  const { depth } = evaluation;
  const others: Record<string, ModelIdentity> = {};
  const named = configuredModels(configuration);
  for (const { path, name, ...model } of named) {
    if (path.length > 1) others[name] = await configuredIdentity(configuration, model, hub);
  }
  const likelihood = named.find(({ path }) => path[0] === "likelihood");
  // A role without a model is implemented by the custom system.
  const roleIdentity = async (role: "tester" | "target"): Promise<ModelIdentity> => {
    const given = named.find(({ name }) => name === role);
    if (given === undefined)
      return { model: configuration.system!.type, files: { ...configuration.modules } };
    const { model, source } = given;
    const saved = join(model, "state", "parameters.safetensors");
    if (source !== "checkpoint" || configuration.system === undefined || !existsSync(saved)) {
      return configuredIdentity(configuration, given, hub);
    }
    return { model, files: { "state/parameters.safetensors": fileDigest(saved) } };
  };
  return {
    tester: tester ?? (await roleIdentity("tester")),
    ...(search === undefined ? {} : { search }),
    target: await roleIdentity("target"),
    ...(likelihood === undefined
      ? {}
      : { likelihood: await configuredIdentity(configuration, likelihood, hub) }),
    reward: configuration.reward,
    ...(Object.keys(others).length === 0 ? {} : { others }),
    scorer: {
      ...scorer,
      ...(files.length === 0
        ? {}
        : { sha256: Object.fromEntries(files.map(({ key, path }) => [key, fileDigest(path)])) }),
      ...(identities.length === 0 ? {} : { models: identities }),
    },
    ...(evaluation.secondScorer === undefined ? {} : { second_scorer: evaluation.secondScorer }),
    ...(benign === undefined ? {} : { benign }),
    prompts: {
      source: source ?? configuration.prompts[split as PromptSplit],
      split,
      sha256: promptsHash(prompts),
      count: prompts.length,
    },
    generation,
    formats: formats?.formats ?? {},
    ...serversIn(servers),
    ...(formats?.readsDate === true && models.date !== undefined ? { date: models.date } : {}),
    sampler: depth === undefined ? sampler : { ...sampler, depth },
    dtype,
    seed,
    astra_rl: packageVersion,
  };
}
