import { describeValue, UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { defineKind } from "../kinds/index.js";
import type { Scorer } from "../core/index.js";
import { parseOptions, requireList } from "../options/index.js";
import { CombinedScorer, makeScorers, nameOptions } from "./combined-scorer.js";

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
      throw new UsageError(`${name}: every weight must be above 0 and finite, got ${describeValue(weight)}`);
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
  summary: "Weighted mean of several scorers",
  schema: ({ scorer }) =>
    z.strictObject({
      scorers: z
        .array(
          z.strictObject({
            scorer,
            weight: z.number().positive().describe("Its share is this over the sum of all weights"),
          }),
        )
        .min(1)
        .describe("The scorers, each with its weight"),
    }),
  make: async ({ scorers }, { makeScorer }) => {
    const made = await makeScorers(
      scorers.map(({ scorer }) => scorer),
      makeScorer,
    );
    return new WeightedScorer(scorers.map(({ weight }, index) => ({ scorer: made[index]!, weight })));
  },
});
