import type { z } from "zod";
import type { Conversation, Message } from "@astra-rl/lm";
import { didYouMean, dotted, UsageError } from "@astra-rl/base";
import { partName, type ProgramParts } from "../assemble/program-parts.js";
import { promptsHash } from "./run-record.js";
import {
  configurationSchema,
  parseConfiguration,
  programReference,
  readConfiguration,
  type Configuration,
  type Override,
} from "../configuration/index.js";
import { checkPrompts, type Prompt } from "../datasets/index.js";
import { PROMPT_SPLITS, type PromptSplit } from "../embedded/index.js";

type Sections = z.input<ReturnType<typeof configurationSchema>>;

/** A section that chooses a part; without `type`, the default one. */
interface PartSection {
  type?: string;
  [option: string]: unknown;
}

/** Sections that a program may replace by a part of its own. */
const PART_SECTIONS = ["system", "sampler", "algorithm", "scorer", "embedder", "reward", "credit"] as const;
type PartSectionName = (typeof PART_SECTIONS)[number];

/** Parts of a program that no section chooses. */
const OTHER_PARTS = ["loggers", "optimizer", "trainer", "evaluator"] as const;

/** Sections whose keys replace those of the file one by one; the others are replaced whole. */
const MERGED = ["models", "prompts", "generation", "training", "evaluation"];

/** The keys of a configuration, as docs/configuration.md describes them. */
type PlainSections = Omit<Partial<Sections>, PartSectionName | "prompts" | "modules">;

/** What `train` and `evaluate` make a run from: the keys of a configuration, and parts of a program's own. */
export interface RunParts<S = Conversation, A = Message>
  extends PlainSections, Omit<ProgramParts<S, A>, PartSectionName | "prompts"> {
  /** A configuration file, whose values the keys given here replace. Default: the defaults. */
  configuration?: string;
  /** Further replaced values, as `--set` has them: see `parseOverride`. */
  overrides?: readonly Override[] | undefined;
  system?: PartSection | ProgramParts<S, A>["system"];
  sampler?: PartSection | ProgramParts<S, A>["sampler"];
  algorithm?: PartSection | ProgramParts<S, A>["algorithm"];
  scorer?: PartSection | ProgramParts<S, A>["scorer"];
  embedder?: PartSection | ProgramParts<S, A>["embedder"];
  reward?: Sections["reward"] | ProgramParts<S, A>["reward"];
  credit?: PartSection | ProgramParts<S, A>["credit"];
  /** Prompts of each split, from a file or as they are; a list alone is that of the split that the run uses. */
  prompts?:
    | readonly Prompt[]
    | ({ [split in PromptSplit]?: string | readonly Prompt[] | undefined } & { column?: string });
}

/**
 * The configuration and the parts of a program's options.
 *
 * @param name of the function, for messages
 * @param split whose prompts a list alone is
 * @throws UsageError for an unknown key or an invalid value
 */
export async function readProgram<S, A>(
  name: "train" | "evaluate",
  { configuration: file, overrides = [], ...given }: RunParts<S, A>,
  { split, trains }: { split: PromptSplit; trains: boolean },
): Promise<{ configuration: Configuration; parts: ProgramParts }> {
  const parts: Record<string, unknown> = {};
  const own: Override[] = [];
  for (const [key, value] of Object.entries(given) as [string, unknown][]) {
    if (value === undefined) continue;
    const { part, sections } = divided(name, key, value, split);
    if (part !== undefined) parts[key] = part;
    for (const [path, data] of sections) if (data !== undefined) own.push(override(name, path, data));
  }
  checkReadyMade(name, given);
  const reading = { overrides: [...overrides, ...own], trains, where: name };
  const configuration = await (file === undefined
    ? parseConfiguration("", ".", reading)
    : readConfiguration(file, { overrides: reading.overrides, trains }));
  return { configuration, parts };
}

type Replaced = readonly [path: Override["path"], value: unknown];

/** What of an option a program made itself, and the values of the configuration that the option replaces. */
function divided(
  name: string,
  key: string,
  value: unknown,
  split: PromptSplit,
): { part?: unknown; sections: Replaced[] } {
  if ((OTHER_PARTS as readonly string[]).includes(key)) return { part: value, sections: [] };
  const keys = Object.keys(configurationSchema().shape).filter((each) => each !== "modules");
  if (!keys.includes(key)) {
    const known = [...keys, ...OTHER_PARTS];
    const advice = didYouMean(key, known) || `; available: ${known.join(", ")}`;
    throw new UsageError("unknown-key", `${name}: unknown option ${key}${advice}`);
  }
  if (key === "prompts") return dividedPrompts(name, Array.isArray(value) ? { [split]: value } : value);
  if ((PART_SECTIONS as readonly string[]).includes(key) && !isPlain(value)) {
    const section = { type: programReference(partName(value as object)) };
    const recorded = key === "reward" ? { terms: [{ ...section, weight: 1 }] } : section;
    return { part: value, sections: [[[key], recorded]] };
  }
  if (!MERGED.includes(key) || !isPlain(value)) return { sections: [[[key], value]] };
  return { sections: Object.entries(value).map(([inner, each]) => [[key, inner], each]) };
}

/** Lists of prompts are parts, which the configuration names by their hash. */
function dividedPrompts(name: string, prompts: unknown): { part?: unknown; sections: Replaced[] } {
  if (!isPlain(prompts)) return { sections: [[["prompts"], prompts]] };
  const lists = Object.entries(prompts).filter(
    ([split, each]) => (PROMPT_SPLITS as readonly string[]).includes(split) && Array.isArray(each),
  );
  const hashes = lists.map(([split, each]) => {
    return [split, programReference(promptsHash(checkPrompts(each, `${name}: prompts.${split}`)))] as const;
  });
  const recorded = { ...prompts, ...Object.fromEntries(hashes) };
  return {
    ...(lists.length === 0 ? {} : { part: Object.fromEntries(lists) }),
    sections: Object.entries(recorded).map(([inner, each]) => [["prompts", inner], each]),
  };
}

/** A section, in contrast to a part of a program, which is an instance, or has methods. */
const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" &&
  value !== null &&
  Object.getPrototypeOf(value) === Object.prototype &&
  Object.values(value).every((each) => typeof each !== "function");

/** Reading a configuration completes its sections in place, and the program's are not ours. */
function override(where: string, path: Override["path"], value: unknown): Override {
  try {
    return { path, value: structuredClone(value), where };
  } catch (cause) {
    throw new UsageError("not-data", `${where}: ${dotted(path)} must be data, without functions`, { cause });
  }
}

/** Refuses what a ready-made system cannot use, because it was made before. */
function checkReadyMade(name: string, given: object): void {
  const options = given as Record<string, unknown>;
  const { system } = options;
  if (system === undefined || typeof system === "function" || isPlain(system)) return;
  const key = ["reward", "generation"].find((each) => options[each] !== undefined);
  if (key === undefined) return;
  throw new UsageError(
    "inapplicable-option",
    `${name}: ${key} is part of the system, which was passed ready-made; pass a function that makes one, ` +
      `system: ({ scorer, reward }) => new …`,
  );
}
