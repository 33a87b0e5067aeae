import {
  a2cKind,
  dpoKind,
  grpoKind,
  ipoKind,
  orpoKind,
  ppoKind,
  reinforceKind,
  rlooKind,
  supervisedKind,
} from "../algorithm/index.js";
import { backUpKind, rewardCreditKind } from "../credit/index.js";
import { hashedNgramEmbedderKind, sentenceEncoderKind } from "../embedder/index.js";
import {
  cosineKind,
  entropyKind,
  gibberishKind,
  harmKind,
  likelihoodKind,
  nllKind,
  selfBLEUKind,
} from "../reward/index.js";
import type { Kind, Role } from "../kinds/index.js";
import { archiveSamplerKind, astSamplerKind, fewShotSamplerKind, pathSamplerKind } from "../sampler/index.js";
import {
  calibratedScorerKind,
  classifierScorerKind,
  clipScorerKind,
  detoxifyScorerKind,
  embeddedScorerKind,
  keywordScorerKind,
  llamaGuardScorerKind,
  maxScorerKind,
  meanScorerKind,
  thresholdScorerKind,
  weightedScorerKind,
} from "../scorer/index.js";
import { consoleKind, jsonLinesKind, mlflowKind, tensorBoardKind, wandbKind } from "../training/index.js";

/** Every kind that comes with the package, in the order in which messages and templates list them. */
const KINDS: readonly Kind[] = [
  astSamplerKind,
  pathSamplerKind,
  archiveSamplerKind,
  fewShotSamplerKind,
  embeddedScorerKind,
  keywordScorerKind,
  classifierScorerKind,
  detoxifyScorerKind,
  llamaGuardScorerKind,
  weightedScorerKind,
  meanScorerKind,
  maxScorerKind,
  thresholdScorerKind,
  clipScorerKind,
  calibratedScorerKind,
  hashedNgramEmbedderKind,
  sentenceEncoderKind,
  harmKind,
  nllKind,
  likelihoodKind,
  selfBLEUKind,
  cosineKind,
  entropyKind,
  gibberishKind,
  rewardCreditKind,
  backUpKind,
  dpoKind,
  ipoKind,
  orpoKind,
  ppoKind,
  a2cKind,
  reinforceKind,
  rlooKind,
  grpoKind,
  supervisedKind,
  tensorBoardKind,
  mlflowKind,
  wandbKind,
  consoleKind,
  jsonLinesKind,
] as readonly Kind[];

/** The kind of a role's section that leaves `type` out. */
export const DEFAULT_TYPES = {
  sampler: "ast",
  scorer: "embedded",
  embedder: "hashed-ngrams",
  credit: "reward",
  algorithm: "dpo",
} as const satisfies Partial<Record<Role, string>>;

/** A section of a configuration that is one choice for a role of the same name. */
export type KindSectionName = keyof typeof DEFAULT_TYPES;

export const KIND_SECTIONS = Object.keys(DEFAULT_TYPES) as KindSectionName[];

export function kindsOf<R extends Role>(role: R): readonly Kind<R>[] {
  return KINDS.filter((kind) => kind.role === role) as unknown as readonly Kind<R>[];
}

/** The kind of a name; null where there is none, as for a module of the user's. */
export function findKind<R extends Role>(role: R, name: string): Kind<R> | null {
  return kindsOf(role).find((kind) => kind.name === name) ?? null;
}
