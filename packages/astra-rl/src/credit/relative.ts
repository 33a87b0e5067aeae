import { describeValue, UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { defineKind, isRewarded, type Graph, type Node } from "../core/index.js";

export interface RelativeOptions {
  /**
   * What a turn's reward is compared with: the mean of its siblings' without its own (RLOO), or of all of them (GRPO).
   * @default "others"
   */
  baseline?: "others" | "mean";
  /**
   * Divide by the standard deviation of the siblings' rewards (GRPO), or not (RLOO; Dr. GRPO). With two siblings "std"
   * leaves ±0.707 of any difference, so that its size is lost. @default "none"
   */
  scale?: "none" | "std";
}

const options = z.strictObject({
  baseline: z
    .enum(["others", "mean"])
    .default("others")
    .describe("What a turn is compared with: the mean of its siblings without it (RLOO), or of all (GRPO)"),
  scale: z
    .enum(["none", "std"])
    .default("none")
    .describe("std: divided by the standard deviation of the siblings' rewards (GRPO)"),
});
const DEFAULTS = options.parse({});

/** Keeps the division defined where all rewards are equal. */
const EPSILON = 1e-4;

/**
 * Credits a turn with how much better it was than its siblings.
 *
 * - `others`, RLOO: r − mean(r of the other siblings). Ahmadian et al., "Back to Basics", arXiv 2402.14740.
 * - `mean`, GRPO: r − mean(r of all siblings), with `std` divided by their standard deviation (that of a sample, n − 1)
 *   plus 1e-4. Shao et al., "DeepSeekMath", arXiv 2402.03300; without the division Liu et al., "Understanding
 *   R1-Zero-Like Training", arXiv 2503.20783.
 *
 * Failed turns take no part. A turn without a sibling to be compared with has no credit: nothing says whether it was good.
 *
 * @throws UsageError for an unknown baseline or scale
 */
export function relative({ baseline = DEFAULTS.baseline, scale = DEFAULTS.scale }: RelativeOptions = {}) {
  if (baseline !== "others" && baseline !== "mean") {
    throw new UsageError(`relative: baseline must be "others" or "mean", got ${describeValue(baseline)}`);
  }
  if (scale !== "none" && scale !== "std") {
    throw new UsageError(`relative: scale must be "none" or "std", got ${describeValue(scale)}`);
  }
  return <S, A>(graph: Graph<S, A>): Map<Node<S, A>, number> => {
    const credit = new Map<Node<S, A>, number>();
    for (const siblings of graph.siblings()) {
      const judged = siblings.filter((node) => isRewarded(node));
      const count = judged.length;
      if (count < 2) continue;
      const sum = judged.reduce((total, node) => total + node.reward, 0);
      const mean = sum / count;
      const squares = judged.reduce((total, node) => total + (node.reward - mean) ** 2, 0);
      const divisor = scale === "std" ? Math.sqrt(squares / (count - 1)) + EPSILON : 1;
      for (const node of judged) {
        const compared = baseline === "mean" ? mean : (sum - node.reward) / (count - 1);
        credit.set(node, (node.reward - compared) / divisor);
      }
    }
    return credit;
  };
}

export const relativeKind = defineKind({
  role: "credit",
  name: "relative",
  summary: "How much better a turn was than its siblings",
  schema: options,
  make: (chosen) => relative(chosen),
});
