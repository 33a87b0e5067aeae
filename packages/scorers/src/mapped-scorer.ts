import type { Judged, Scorer, ScoreOutcome } from "@astra-rl/method";
import { askPart, ComposedScorer } from "./composed-scorer.js";

/** Maps one scorer's scores to another scale. Labels keep their names. */
export abstract class MappedScorer extends ComposedScorer {
  readonly name: string;
  override readonly labelNames: readonly string[];

  constructor(
    readonly part: Scorer,
    /** Allowed scores of the part: probabilities, or any finite numbers. */
    readonly scale: "probability" | "any",
  ) {
    super([part]);
    this.name = part.name;
    this.labelNames = part.labelNames;
  }

  protected abstract mapScore(score: number): number;

  /** Default: the same as `mapScore`. */
  protected mapLabel(value: number): number {
    return this.mapScore(value);
  }

  protected override async judge(items: readonly Judged[]): Promise<ScoreOutcome[]> {
    const outcomes = await askPart(this.part, items, this.scale);
    return outcomes.map((outcome): ScoreOutcome => {
      if (outcome.failure) return outcome;
      const score = this.mapScore(outcome.score);
      const cut = outcome.cut === true ? { cut: true } : {};
      if (outcome.labels === undefined) return { score, ...cut };
      const labels = Object.entries(outcome.labels).map(([label, value]) => [label, this.mapLabel(value)]);
      return { score, labels: Object.fromEntries(labels) as Record<string, number>, ...cut };
    });
  }
}
