// What a configuration chooses by `type:`: a name, the schema of its options, a maker. Must not know: which kinds there are.
import type { HubOptions } from "@astra-rl/lm";
import type { z } from "zod";
import type {
  Algorithm,
  Credit,
  Embedder,
  Evaluator,
  MetricsLogger,
  Model,
  Purpose,
  RewardTerm,
  Sampler,
  Scorer,
  System,
  SystemNeed,
} from "../core/index.js";

/** What the kinds of each role make. */
export interface Made {
  scorer: Scorer;
  embedder: Embedder;
  term: RewardTerm;
  credit: Credit;
  sampler: Sampler;
  algorithm: Algorithm;
  logger: MetricsLogger;
  /** A target that is no checkpoint; only modules make them. */
  target: Model;
  system: System;
  evaluator: Evaluator;
  trainer: RunnableTrainer;
}

/** What a run asks of its trainer. */
export interface RunnableTrainer {
  train(): Promise<void>;
  /** Training steps done. */
  readonly step: number;
  dispose(): void;
}

/** A section of a configuration that is one choice for a role: the kind's name and its own options. */
export interface KindSection {
  type: string;
  [option: string]: unknown;
}

/** Makes the scorer that a section among the options chooses; it is the asker's to dispose of. */
export type MakeScorer = (section: KindSection) => Promise<Scorer>;

/** What the makers of each role are given beside their options. */
export interface KindParts {
  /** `hub`: how models are downloaded from the hub, and where progress is reported. */
  scorer: { seed: number; hub: HubOptions; makeScorer: MakeScorer };
  embedder: { seed: number };
  /** The run's scorer and embedder, for terms that judge by them. */
  term: { scorer: Scorer; embedder: Embedder; seed: number; makeScorer: MakeScorer };
  credit: { seed: number };
  sampler: { system: System; prompts: readonly string[]; seed: number };
  algorithm: { system: System; seed: number };
  logger: { seed: number };
  /** `generation`: the decoding that the configuration has for targets, which is the model's own to follow. */
  target: { generation: object; seed: number };
  /**
   * What the run judges by, and what it is made for; `load` loads a class that extends `HFASTSystem` with the models of the
   * configuration.
   */
  system: {
    scorer: Scorer;
    embedder: Embedder;
    reward: object;
    purpose: Purpose;
    seed: number;
    load: (Class: LoadableSystem, options: Readonly<Record<string, unknown>>) => Promise<System>;
  };
  evaluator: {
    system: System;
    sampler: Sampler;
    prompts: readonly string[];
    scorer: Scorer;
    threshold: number;
    seed: number;
  };
  /** `configuration` is an HFASTConfiguration, `options` are those of an HFASTTrainer. */
  trainer: { configuration: object; sampler: Sampler; algorithm: Algorithm; options: object };
}

/** A class of systems with a static `load`, as `HFASTSystem` has. */
export type LoadableSystem = (abstract new (...values: never[]) => System) & {
  load(options: never): Promise<System>;
};

/** A part of a run that a configuration chooses by `type:`. */
export type Role = keyof Made;

/** What else a configuration chooses, for kinds that do not go with everything. */
export interface Beside {
  /** The sampler's section. */
  sampler: Readonly<Record<string, unknown>>;
  /** null for a credit of the user's own, which is made later. */
  credit: Credit | null;
}

/** A choice that does not go with another: where, and the reason with what to do. */
export interface Misfit {
  path: readonly string[];
  message: string;
}

/** Schemas of sections that may stand among the options of a kind, for kinds that are made of others. */
export type Sections = Readonly<Record<"scorer", z.ZodType<KindSection, KindSection>>>;

/**
 * One choice for a role: the name that `type:` gives, its options, and how it is
 * made. Each implementation exports its own; `configuration/registry.ts` lists them.
 */
export interface Kind<R extends Role = Role> {
  readonly role: R;
  /** As it is written in a configuration. */
  readonly name: string;
  /** What it is, in a few words, for the template and for editors. */
  readonly summary: string;
  /**
   * Its options, without `type`; the only place where their defaults stand. A function where sections that choose kinds
   * stand somewhere among them.
   */
  readonly schema: z.ZodObject | ((sections: Sections) => z.ZodObject);
  /** Asked before any model loads; absent: it goes with everything. */
  check?(options: Record<string, unknown>, beside: Beside): Misfit | null;
  /** What an algorithm will need of its system, which is made before it; or a function of its options. Default: nothing. */
  readonly needs?: KindNeeds<Record<string, unknown>>;
  /** The checkpoints that `make` loads, folders or hub ids, for the record of a run. Absent: none. */
  models?(options: Record<string, unknown>): readonly string[];
  make(options: Record<string, unknown>, parts: KindParts[R]): Made[R] | Promise<Made[R]>;
}

/** See `Kind.needs`. */
export type KindNeeds<O> = readonly SystemNeed[] | ((options: O) => readonly SystemNeed[]);

/** A kind whose maker takes what its schema gives. */
export function defineKind<R extends Role, S extends z.ZodObject>(kind: {
  role: R;
  name: string;
  summary: string;
  schema: S | ((sections: Sections) => S);
  check?(options: z.output<S>, beside: Beside): Misfit | null;
  needs?: KindNeeds<z.output<S>>;
  models?(options: z.output<S>): readonly string[];
  make(options: z.output<S>, parts: KindParts[R]): Made[R] | Promise<Made[R]>;
}): Kind<R> {
  return kind as unknown as Kind<R>;
}
