import * as algorithms from "../algorithm/index.js";
import * as credits from "../credit/index.js";
import * as embedders from "../embedder/index.js";
import * as servers from "../http/index.js";
import type { Kind, Role } from "../kinds/index.js";
import * as models from "../models/index.js";
import * as rewards from "../reward/index.js";
import * as samplers from "../sampler/index.js";
import * as scorers from "../scorer/index.js";
import * as training from "../training/index.js";

/** The default `type` of each role's section. */
export const DEFAULT_TYPES = {
  sampler: "ast",
  scorer: "embedded",
  embedder: "hashed-ngrams",
  credit: "reward",
  algorithm: "dpo",
} as const satisfies Partial<Record<Role, string>>;

/** A configuration section that selects a kind for the role of the same name. */
export type KindSectionName = keyof typeof DEFAULT_TYPES;

export const KIND_SECTIONS = Object.keys(DEFAULT_TYPES) as KindSectionName[];

const isKind = (value: unknown): value is Kind =>
  typeof value === "object" && value !== null && "role" in value && "make" in value && "schema" in value;

/** Every kind, or list of kinds, exported by the stages: the default of its role first, the others by name. */
const KINDS: readonly Kind[] = [
  servers,
  models,
  samplers,
  scorers,
  embedders,
  rewards,
  credits,
  algorithms,
  training,
]
  .flatMap((stage) => Object.values<unknown>(stage).flat().filter(isKind))
  .sort((a, b) => Number(isDefault(b)) - Number(isDefault(a)) || a.name.localeCompare(b.name));

function isDefault({ role, name }: Kind): boolean {
  return (DEFAULT_TYPES as Partial<Record<Role, string>>)[role] === name;
}

export function kindsOf<R extends Role>(role: R): readonly Kind<R>[] {
  return KINDS.filter((kind) => kind.role === role) as unknown as readonly Kind<R>[];
}

/** Finds a kind by name; null if there is none, as for user modules. */
export function findKind<R extends Role>(role: R, name: string): Kind<R> | null {
  return kindsOf(role).find((kind) => kind.name === name) ?? null;
}
