import type { HubOptions } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import {
  findKind,
  isModuleReference,
  loadUserModule,
  MODULE_DEADLINE,
  type Configuration,
  type ScoreCache,
  type UserKind,
} from "../configuration/index.js";
import type { Embedder, Scorer, SystemNeed } from "../core/index.js";
import type { Kind, KindParts, KindSection, Made, Role } from "../kinds/index.js";
import { BatchedScorer, ScoreFile } from "../scorer/index.js";
import { scorerIdentity } from "./scorer-identity.js";

/** Makes what a section of a configuration chooses. @throws UsageError when it cannot be made */
export async function makePart<R extends Role>(
  role: R,
  section: KindSection,
  parts: KindParts[R],
): Promise<Made[R]> {
  const { type: _, ...options } = section;
  return (await kindOf(role, section)).make(options, parts);
}

/** What the algorithm of a configuration will need of its system, which is made before it. */
export async function algorithmNeeds({
  algorithm,
}: Pick<Configuration, "algorithm">): Promise<readonly SystemNeed[]> {
  const { type: _, ...options } = algorithm;
  const { needs = [] } = await kindOf("algorithm", algorithm);
  return typeof needs === "function" ? needs(options) : needs;
}

/** The kind that a section chooses, of the package's or of a module's. */
async function kindOf<R extends Role>(role: R, { type }: KindSection): Promise<Kind<R> | UserKind<R>> {
  const kind = findKind(role, type);
  if (kind !== null) return kind;
  if (!isModuleReference(type)) throw new UsageError(`${role}: there is no type ${JSON.stringify(type)}`);
  return (await loadUserModule(role, type)).kind;
}

export interface MakeScorerOptions {
  /** What is random in it follows from this. Default 0. */
  seed?: number;
  /** How models of the hub are fetched. */
  hub?: HubOptions;
}

/**
 * Makes the scorer that a section chooses, with those inside it, each with the cache that its section asks for.
 *
 * @returns a scorer that the caller disposes of
 * @throws UsageError when a file, a model or an option is wrong
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
  if (cache === undefined) return scorer;
  try {
    const { file, size } = cache;
    if (file === undefined) return new BatchedScorer(scorer, { cacheSize: size });
    const identity = await scorerIdentity(rest as KindSection, { seed, hub });
    return new BatchedScorer(scorer, {
      cacheSize: size,
      file: await ScoreFile.open(file, identity, { limit: size }),
    });
  } catch (error) {
    scorer.dispose();
    throw error;
  }
}

/**
 * Makes the scorer of a configuration.
 *
 * @param hub how models are downloaded from the hub, and where progress is reported
 * @throws UsageError when its files, entries or models are wrong
 */
export function assembleScorer(
  { scorer, seed }: Pick<Configuration, "scorer" | "seed">,
  hub: HubOptions = {},
): Promise<Scorer> {
  return makeScorer(scorer, { seed, hub });
}

/**
 * Makes the embedder of a configuration, which rewards and evaluations share.
 *
 * @throws UsageError when its model cannot be loaded
 */
export function assembleEmbedder({
  embedder,
  seed,
}: Pick<Configuration, "embedder" | "seed">): Promise<Embedder> {
  return makePart("embedder", embedder, { seed });
}
