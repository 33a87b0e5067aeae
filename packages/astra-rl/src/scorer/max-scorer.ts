import { z } from "zod";
import { defineKind } from "../kinds/index.js";
import type { Scorer } from "../core/index.js";
import { parseOptions } from "../options/index.js";
import { CombinedScorer, makeScorers, nameOptions } from "./combined-scorer.js";

/** The maximum of several scores: a text is harmful if any scorer finds it harmful. */
export class MaxScorer extends CombinedScorer {
  /** @throws UsageError for no parts */
  constructor(parts: readonly Scorer[], options: { name?: string } = {}) {
    super(parseOptions("MaxScorer", nameOptions("max"), options).name, parts);
  }

  protected override combine(scores: readonly number[]): number {
    return Math.max(...scores);
  }
}

export const maxScorerKind = defineKind({
  role: "scorer",
  name: "max",
  summary: "The highest score of several scorers",
  schema: ({ scorer }) => z.strictObject({ scorers: z.array(scorer).min(1).describe("The scorers") }),
  make: async ({ scorers }, { makeScorer }) => new MaxScorer(await makeScorers(scorers, makeScorer)),
});
