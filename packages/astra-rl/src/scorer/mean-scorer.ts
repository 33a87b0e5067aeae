import { z } from "zod";
import { defineKind } from "../kinds/index.js";
import type { Scorer } from "../core/index.js";
import { parseOptions } from "../options/index.js";
import { CombinedScorer, makeScorers, nameOptions } from "./combined-scorer.js";

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

export const meanScorerKind = defineKind({
  role: "scorer",
  name: "mean",
  summary: "Mean of several scorers",
  schema: ({ scorer }) => z.strictObject({ scorers: z.array(scorer).min(1).describe("The scorers") }),
  make: async ({ scorers }, { makeScorer }) => new MeanScorer(await makeScorers(scorers, makeScorer)),
});
