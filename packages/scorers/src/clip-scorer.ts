import { z } from "zod";
import { defineKind, type Scorer } from "@astra-rl/method";
import { MappedScorer } from "./mapped-scorer.js";

/**
 * Clips finite scores and labels to [0, 1]. For scorers that slightly exceed the range; calibrate those on another
 * scale (logits, 0 to 100), of which clipping would turn almost everything into 0 or 1.
 */
export class ClipScorer extends MappedScorer {
  constructor(part: Scorer) {
    super(part, "any");
  }

  protected override mapScore(score: number): number {
    return Math.min(1, Math.max(0, score));
  }
}

export const clipScorerKind = defineKind({
  role: "scorer",
  name: "clip",
  summary: "Clips the scores of another scorer to between 0 and 1",
  schema: ({ scorer }) => z.strictObject({ scorer }),
  make: async ({ scorer }, { makeScorer }) => new ClipScorer(await makeScorer(scorer)),
});
