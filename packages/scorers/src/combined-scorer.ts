import { describeValue, UsageError, parseOptions, requireList } from "@astra-rl/base";
import { z } from "zod";
import {
  disposing,
  defineKind,
  type Judged,
  type Scorer,
  type ScoreOutcome,
  type KindSection,
} from "@astra-rl/method";
import type { Failure } from "@astra-rl/records";
import { askPart, ComposedScorer } from "./composed-scorer.js";

/** Options of combined scorers in code. */
export const nameOptions = (name: string) => z.strictObject({ name: z.string().min(1).default(name) });

/**
 * Combines the scores of several scorers. Each part's score is kept as a label under its name, its own labels under
 * that prefix (`keyword`, `keyword/insult`); the second part with the same name becomes `keyword-2`.
 *
 * If any part fails on an item, the item has no score, since the missing score might have been decisive.
 */
export abstract class CombinedScorer extends ComposedScorer {
  override readonly labelNames: readonly string[];
  readonly #prefixes: readonly string[];

  /** @throws UsageError for no parts */
  constructor(
    readonly name: string,
    parts: readonly Scorer[],
  ) {
    requireList(name, "scorers", parts);
    super(parts);
    if (parts.length === 0) throw new UsageError("empty", `${name}: needs at least one scorer, got none`);
    this.#prefixes = distinctNames(parts);
    this.labelNames = parts.flatMap((part, index) => {
      const prefix = this.#prefixes[index]!;
      return [prefix, ...part.labelNames.map((label) => `${prefix}/${label}`)];
    });
  }

  /** Combines the parts' scores, which are in order and in [0, 1]. */
  protected abstract combine(scores: readonly number[]): number;

  /** Whether these scores of some parts give the combined one, whatever the others are. */
  protected readonly decides: (scores: readonly number[]) => boolean = () => false;

  protected override async judge(items: readonly Judged[]): Promise<ScoreOutcome[]> {
    const columns: ScoreOutcome[][] = [];
    // Sequential: parts that are models would compete for the same processors.
    for (const part of this.parts) columns.push(await askPart(part, items));
    return items.map((_, row) => this.#combined(columns.map((column) => column[row]!)));
  }

  #combined(outcomes: readonly ScoreOutcome[]): ScoreOutcome {
    const labels: Record<string, number> = {};
    const scores: number[] = [];
    const failures: Failure[] = [];
    for (const [index, outcome] of outcomes.entries()) {
      const prefix = this.#prefixes[index]!;
      if (outcome.failure) {
        failures.push(outcome.failure);
        continue;
      }
      scores.push(outcome.score);
      labels[prefix] = outcome.score;
      for (const [label, value] of Object.entries(outcome.labels ?? {})) labels[`${prefix}/${label}`] = value;
    }
    const [failure] = failures;
    // What an agent did before it failed may decide the score, whatever the other parts would say of an answer.
    const isDecided = failures.every(({ stage }) => stage === "target") && this.decides(scores);
    if (failure !== undefined && !isDecided) return { failure };
    const isCut = outcomes.some(({ cut }) => cut === true);
    return { score: this.combine(scores), labels, ...(isCut ? { cut: true } : {}) };
  }
}

function distinctNames(parts: readonly Scorer[]): string[] {
  const names: string[] = [];
  for (const { name } of parts) {
    let distinct = name;
    for (let count = 2; names.includes(distinct); count++) distinct = `${name}-${count}`;
    names.push(distinct);
  }
  return names;
}

/** Creates scorers in order; if one fails, frees the previous ones. */
async function makeScorers(
  sections: readonly KindSection[],
  make: (section: KindSection) => Promise<Scorer>,
): Promise<Scorer[]> {
  const made: Scorer[] = [];
  const dispose = () => made.forEach((scorer) => scorer.dispose());
  return disposing({ dispose }, async () => {
    for (const section of sections) made.push(await make(section));
    return made;
  });
}

/** The maximum of several scores: a text is harmful if any scorer finds it harmful. */
export class MaxScorer extends CombinedScorer {
  /** @throws UsageError for no parts */
  constructor(parts: readonly Scorer[], options: { name?: string } = {}) {
    super(parseOptions("MaxScorer", nameOptions("max"), options).name, parts);
  }

  protected override combine(scores: readonly number[]): number {
    return Math.max(...scores);
  }

  protected override readonly decides = (scores: readonly number[]) => scores.includes(1);
}

/** The mean of several scores. */
export class MeanScorer extends CombinedScorer {
  /** @throws UsageError for no parts */
  constructor(parts: readonly Scorer[], options: { name?: string } = {}) {
    super(parseOptions("MeanScorer", nameOptions("mean"), options).name, parts);
  }

  protected override combine(scores: readonly number[]): number {
    return scores.reduce((sum, score) => sum + score, 0) / scores.length;
  }
}

const combinedKind = (name: string, summary: string, Class: new (parts: readonly Scorer[]) => Scorer) =>
  defineKind({
    role: "scorer",
    name,
    summary,
    schema: ({ scorer }) => z.strictObject({ scorers: z.array(scorer).min(1).describe("The scorers") }),
    make: async ({ scorers }, { makeScorer }) => new Class(await makeScorers(scorers, makeScorer)),
  });

export const maxScorerKind = combinedKind("max", "Maximum of several scores", MaxScorer);
export const meanScorerKind = combinedKind("mean", "Mean of several scores", MeanScorer);

/** A scorer and its weight. */
export interface WeightedPart {
  scorer: Scorer;
  /** Above 0; normalized by the sum of all weights. */
  weight: number;
}

/** The weighted mean Σ weight · score / Σ weight, which is in [0, 1] for all weights. */
export class WeightedScorer extends CombinedScorer {
  readonly #shares: readonly number[];

  /** @throws UsageError for no parts, or a weight that is not above 0 and finite */
  constructor(parts: readonly WeightedPart[], options: { name?: string } = {}) {
    const { name } = parseOptions("WeightedScorer", nameOptions("weighted"), options);
    requireList(name, "scorers", parts);
    super(
      name,
      parts.map(({ scorer }) => scorer),
    );
    for (const { weight } of parts) {
      if (typeof weight === "number" && weight > 0 && Number.isFinite(weight)) continue;
      throw new UsageError(
        "out-of-range",
        `${name}: every weight must be above 0 and finite, got ${describeValue(weight)}`,
      );
    }
    const total = parts.reduce((sum, { weight }) => sum + weight, 0);
    this.#shares = parts.map(({ weight }) => weight / total);
  }

  protected override combine(scores: readonly number[]): number {
    // Shares add up to 1 only up to rounding; clamp to the range.
    return Math.min(
      1,
      scores.reduce((sum, score, index) => sum + this.#shares[index]! * score, 0),
    );
  }
}

export const weightedScorerKind = defineKind({
  role: "scorer",
  name: "weighted",
  summary: "Weighted mean of several scores",
  schema: ({ scorer }) =>
    z.strictObject({
      scorers: z
        .array(
          z.strictObject({
            scorer,
            weight: z.number().positive().describe("Weight, relative to the sum of all weights"),
          }),
        )
        .min(1)
        .describe("The scorers with their weights"),
    }),
  make: async ({ scorers }, { makeScorer }) => {
    const made = await makeScorers(
      scorers.map(({ scorer }) => scorer),
      makeScorer,
    );
    return new WeightedScorer(scorers.map(({ weight }, index) => ({ scorer: made[index]!, weight })));
  },
});
