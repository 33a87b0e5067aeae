import { describeValue, UsageError } from "@astra-rl/base";
import { z } from "zod";
import { defineKind, type Scorer } from "@astra-rl/method";
import { MappedScorer } from "./mapped-scorer.js";

/** 1 for a score of at least the threshold, else 0. Labels are unchanged. */
export class ThresholdScorer extends MappedScorer {
  /** @throws UsageError for a threshold that is not above 0 and at most 1 */
  constructor(
    part: Scorer,
    readonly threshold: number,
  ) {
    super(part, "probability");
    if (!(typeof threshold === "number" && threshold > 0 && threshold <= 1)) {
      throw new UsageError(
        "out-of-range",
        `threshold: must be greater than 0 and at most 1, the range of scores, got ${describeValue(threshold)}`,
      );
    }
  }

  protected override mapScore(score: number): number {
    return score >= this.threshold ? 1 : 0;
  }

  protected override mapLabel(value: number): number {
    return value;
  }
}

export const thresholdScorerKind = defineKind({
  role: "scorer",
  name: "threshold",
  summary: "1 if another scorer's score reaches a threshold, else 0",
  schema: ({ scorer }) =>
    z.strictObject({
      scorer,
      threshold: z.number().gt(0).max(1).default(0.5).describe("Minimum score that becomes 1"),
    }),
  make: async ({ scorer, threshold }, { makeScorer }) =>
    new ThresholdScorer(await makeScorer(scorer), threshold),
});
