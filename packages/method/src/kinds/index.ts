// What a configuration selects by `type:`: a name, an options schema, a factory. Must not know: which kinds exist.
import type { HubOptions, Conversation } from "@astra-rl/lm";
import type { z } from "zod";
import type { Algorithm } from "../algorithm/index.js";
import type { Credit, Purpose } from "../tree/index.js";
import type { Embedder, Model } from "../models/index.js";
import type { MetricsLogger } from "../training/loggers/index.js";
import type { PromptOf, System, SystemNeed } from "../system/index.js";
import type { RewardTerm } from "../reward/index.js";
import type { Sampler } from "../sampler/index.js";
import type { Scorer } from "../scorer/index.js";

/** What the kinds of each role create. */
export interface Made {
  scorer: Scorer;
  embedder: Embedder;
  term: RewardTerm;
  credit: Credit;
  sampler: Sampler;
  algorithm: Algorithm;
  logger: MetricsLogger;
  /** A model that is not a checkpoint: of a server, or of a user module. */
  target: Model;
  system: System;
}

/** A configuration section that selects a kind for a role: the kind's name and its options. */
export interface KindSection {
  type: string;
  [option: string]: unknown;
}

/** Creates the scorer that a nested section selects; the caller disposes of it. */
export type MakeScorer = (section: KindSection) => Promise<Scorer>;

/** Context passed to the factories of each role, in addition to their options. */
export interface KindParts {
  /** `hub`: how models are downloaded from the hub, and where progress is reported. */
  scorer: { seed: number; hub: HubOptions; makeScorer: MakeScorer };
  embedder: { seed: number };
  /** The run's scorer and embedder, for terms that use them. */
  term: { scorer: Scorer; embedder: Embedder; seed: number; makeScorer: MakeScorer };
  credit: { seed: number };
  sampler: { system: System; prompts: readonly PromptOf<Conversation>[]; seed: number };
  algorithm: { system: System; seed: number };
  logger: { seed: number };
  /**
   * `generation`: the configuration's decoding options of its role, which the model has to apply itself; `name`: its name in
   * records, such as "target-2"; `key`: that of its section, for messages.
   */
  target: {
    generation: object;
    seed: number;
    role: "tester" | "target" | "likelihood";
    name: string;
    key: string;
  };
  /**
   * The run's scorer and embedder, and its purpose; `load` loads a class that extends `HFASTSystem` with the
   * configured models.
   */
  system: {
    scorer: Scorer;
    embedder: Embedder;
    reward: object;
    purpose: Purpose;
    seed: number;
    load: (Class: LoadableSystem, options: Readonly<Record<string, unknown>>) => Promise<System>;
  };
}

/** A class of systems with a static `load`, as `HFASTSystem` has. */
export type LoadableSystem = (abstract new (...values: never[]) => System) & {
  load(options: never): Promise<System>;
};

/** A part of a run that a configuration selects by `type:`. */
export type Role = keyof Made;

/** Other choices of a configuration, with which a kind may be incompatible. */
export interface OtherChoices {
  /** The sampler's section. */
  sampler: Readonly<Record<string, unknown>>;
  /** null for a custom credit, which is created later. */
  credit: Credit | null;
}

/** An incompatible choice: its path, and a message with the reason and the remedy. */
export interface Inconsistency {
  /** Code of the violated rule, as in `UsageError`. */
  rule: string;
  path: readonly string[];
  message: string;
}

/** Schemas of nested sections, for kinds that contain other kinds. */
export type Sections = Readonly<Record<"scorer", z.ZodType<KindSection, KindSection>>>;

/**
 * One choice for a role: its `type:` name, options and factory. Each implementation exports its own;
 * `@astra-rl/assembly` lists them (`registerKinds`).
 */
export interface Kind<R extends Role = Role, S extends z.ZodObject = z.ZodObject> {
  readonly role: R;
  /** The name in a configuration. */
  readonly name: string;
  /** A short description for the template and for editors. */
  readonly summary: string;
  /**
   * Its options without `type`, and the only definition of their defaults. A function if the options contain nested
   * sections that select kinds.
   */
  readonly schema: S | ((sections: Sections) => S);
  /** Called before any model loads. Absent: compatible with everything. */
  check?(options: z.output<S>, beside: OtherChoices): Inconsistency | null;
  /**
   * What an algorithm needs from its system, which is created first; or a function of its options. Default: nothing.
   */
  readonly needs?: KindNeeds<z.output<S>>;
  /**
   * Defaults of its options in configurations with the reward `elicitation`, `pairMargin` in harm, and with others; its
   * schema has none for these.
   */
  readonly elicitationDefaults?: Readonly<
    Record<string, readonly [elicitation: unknown, otherwise: unknown]>
  >;
  /** Whether an algorithm gains by `WIDE_TREES`, so that configurations with the reward `elicitation` grow them. */
  readonly growsWideTrees?: boolean;
  /** An algorithm's automatic learning rate, as a multiple of the usual one. Default: 1 */
  readonly learningRateFactor?: number;
  /** The checkpoints that `make` loads (folders or hub ids), for run.json. Absent: none. */
  models?(options: z.output<S>): readonly string[];
  make(options: z.output<S>, parts: KindParts[R]): Made[R] | Promise<Made[R]>;
}

/** See `Kind.needs`. */
export type KindNeeds<O> = readonly SystemNeed[] | ((options: O) => readonly SystemNeed[]);

/** Defines a kind whose factory takes the output of its schema. */
export const defineKind = <R extends Role, S extends z.ZodObject>(kind: Kind<R, S>): Kind<R> =>
  kind as unknown as Kind<R>;
