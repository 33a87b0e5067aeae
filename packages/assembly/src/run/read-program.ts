import type { z } from "zod";
import type { Conversation, Message } from "@astra-rl/lm";
import { didYouMean, dotted, UsageError } from "@astra-rl/base";
import { partName, type ProgramParts } from "../assemble/program-parts.js";
import { promptsHash } from "../assemble/run-record.js";
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
  const keys = Object.keys(configurationSchema().shape).filter((key) => key !== "modules");
  const parts: Record<string, unknown> = {};
  const own: Override[] = [];
  const override = (path: Override["path"], value: unknown) => own.push({ path, value, where: name });
  for (const [key, value] of Object.entries(given) as [string, unknown][]) {
    if (value === undefined) continue;
    if ((OTHER_PARTS as readonly string[]).includes(key)) parts[key] = value;
    else if (!keys.includes(key)) {
      const known = [...keys, ...OTHER_PARTS];
      throw new UsageError(
        `${name}: unknown option ${key}${didYouMean(key, known) || `; available: ${known.join(", ")}`}`,
      );
    } else if (key === "prompts") {
      const splits = Array.isArray(value) ? { [split]: value } : (value as Record<string, unknown>);
      const lists = Object.entries(splits).filter(([, each]) => Array.isArray(each)) as [string, Prompt[]][];
      if (lists.length > 0) parts[key] = Object.fromEntries(lists);
      for (const [inner, each] of Object.entries(splits)) {
        if (each === undefined) continue;
        const isList = (PROMPT_SPLITS as readonly string[]).includes(inner) && Array.isArray(each);
        override(
          [key, inner],
          isList ? programReference(promptsHash(checkPrompts(each, `${name}: ${key}.${inner}`))) : each,
        );
      }
    } else if ((PART_SECTIONS as readonly string[]).includes(key) && !isPlain(value)) {
      parts[key] = value;
      const reference = programReference(partName(value as object));
      override([key], key === "reward" ? { terms: [{ type: reference, weight: 1 }] } : { type: reference });
    } else if (MERGED.includes(key) && isPlain(value)) {
      for (const [inner, each] of Object.entries(value)) if (each !== undefined) override([key, inner], each);
    } else override([key], value);
  }
  checkReadyMade(name, given);
  const reading = { overrides: [...overrides, ...own.map(copied)], trains, where: name };
  const configuration = await (file === undefined
    ? parseConfiguration("", ".", reading)
    : readConfiguration(file, { overrides: reading.overrides, trains }));
  return { configuration, parts };
}

/** A section, in contrast to a part of a program, which is an instance, or has methods. */
const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" &&
  value !== null &&
  Object.getPrototypeOf(value) === Object.prototype &&
  Object.values(value).every((each) => typeof each !== "function");

/** Reading a configuration completes its sections in place, and the program's are not ours. */
function copied(override: Override): Override {
  try {
    return { ...override, value: structuredClone(override.value) };
  } catch (cause) {
    throw new UsageError(`${override.where}: ${dotted(override.path)} must be data, without functions`, {
      cause,
    });
  }
}

/** Refuses what a ready-made system cannot use, because it was made before. */
function checkReadyMade(name: string, given: object): void {
  const { system } = given as { system?: unknown };
  if (system === undefined || typeof system === "function" || isPlain(system)) return;
  for (const key of ["reward", "generation"] as const) {
    if ((given as Record<string, unknown>)[key] === undefined) continue;
    throw new UsageError(
      `${name}: ${key} is part of the system, which was passed ready-made; pass a function that makes one, ` +
        `system: ({ scorer, reward }) => new …`,
    );
  }
}
