import type { HubOptions } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import type { Scorer, SystemNeed, Kind, KindParts, KindSection, Made, Role } from "@astra-rl/method";
import { BatchedScorer, ScoreFile } from "@astra-rl/scorers";
import {
  findKind,
  isModuleReference,
  isProgramReference,
  loadUserModule,
  MODULE_DEADLINE,
  programName,
  type Configuration,
  type ModuleRole,
  type ScoreCache,
} from "../configuration/index.js";
import { modelSource } from "./model-source.js";
import { scorerIdentity } from "./scorer-identity.js";

/** Creates the part that a section selects. @throws UsageError if it cannot be created */
export async function makePart<R extends Role>(
  role: R,
  section: KindSection,
  parts: KindParts[R],
): Promise<Made[R]> {
  const { type, ...options } = section;
  // Only of a checkpoint: the model of a server has the server's name, whatever it is.
  const [checkpoint] = findKind(role, type)?.models?.(options) ?? [];
  if (checkpoint !== undefined && options["model"] === checkpoint) options["model"] = modelSource(checkpoint);
  return (await kindOf(role, section)).make(options, parts);
}

/** What the algorithm of a configuration needs from its system, which is created first. */
export function algorithmNeeds({ algorithm }: Pick<Configuration, "algorithm">): readonly SystemNeed[] {
  const { type, ...options } = algorithm;
  // A program has its models loaded as its algorithm needs them.
  const { needs = [] } = findKind("algorithm", type) ?? {};
  return typeof needs === "function" ? needs(options) : needs;
}

/** The kind that a section selects, from the package or a module. */
async function kindOf<R extends Role>(role: R, { type }: KindSection): Promise<Pick<Kind<R>, "make">> {
  const kind = findKind(role, type);
  if (kind !== null) return kind;
  if (isProgramReference(type)) {
    throw new UsageError(
      "made-by-program",
      `${role}: ${programName(type)} was made by the program of this run; pass it to train or evaluate, or choose another type`,
    );
  }
  if (!isModuleReference(type))
    throw new UsageError("unknown-choice", `${role}: unknown type ${JSON.stringify(type)}`);
  return (await loadUserModule(role as ModuleRole, type)).kind as unknown as Pick<Kind<R>, "make">;
}

export interface MakeScorerOptions {
  /** Seed of its randomness. Default 0. */
  seed?: number;
  /** How models are downloaded from the hub. */
  hub?: HubOptions;
}

/**
 * Creates the scorer that a section selects, including nested scorers, each with its configured cache.
 *
 * @returns a scorer that the caller disposes of
 * @throws UsageError for an invalid file, model or option
 */
export async function makeScorer(
  section: KindSection,
  { seed = 0, hub = {} }: MakeScorerOptions = {},
): Promise<Scorer> {
  const { cache, deadline, ...rest } = section as KindSection & { cache?: ScoreCache; deadline?: number };
  const makeInner = (inner: KindSection) => makeScorer(inner, { seed, hub });
  const scorer = await makePart("scorer", rest as KindSection, { seed, hub, makeScorer: makeInner });
  const seconds = deadline ?? (isModuleReference(section.type) ? MODULE_DEADLINE : null);
  if (seconds !== null) scorer.deadline = 1000 * seconds;
  scorer.onSilence = hub.onWarning ?? null;
  if (cache === undefined) return scorer;
  try {
    const { file, size } = cache;
    if (file === undefined) return new BatchedScorer(scorer, { cacheSize: size });
    const identity = await scorerIdentity(rest as KindSection, { seed, hub });
    const opened = await ScoreFile.open(file, identity, { limit: size });
    return new BatchedScorer(scorer, { cacheSize: size, file: opened });
  } catch (error) {
    scorer.dispose();
    throw error;
  }
}
