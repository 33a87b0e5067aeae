import { z } from "zod";
import {
  accountingFor,
  defineKind,
  groupAdvantages,
  isRewarded,
  parseOptions,
  type Credit,
  type Graph,
  type Node,
  type Message,
  type Conversation,
} from "../core/index.js";

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

/**
 * Credits a turn with how much better it was than its siblings: see `groupAdvantages` for the two ways to compare. Failed
 * turns take no part. A turn without a sibling to be compared with has no credit: nothing says whether it was good.
 *
 * For algorithms that compare nothing themselves; RLOO and GRPO do.
 *
 * @throws UsageError for an unknown baseline or scale
 */
export function relative<S = Conversation, A = Message>(given: RelativeOptions = {}): Credit<S, A> {
  const { baseline, scale } = parseOptions("relative", options, given);
  return accountingFor("siblings", (graph: Graph<S, A>): Map<Node<S, A>, number> => {
    const credit = new Map<Node<S, A>, number>();
    for (const siblings of graph.siblings()) {
      const judged = siblings.filter((node) => isRewarded(node));
      const rewards = judged.map((node) => node.reward);
      const advantages = groupAdvantages(rewards, { baseline, scale });
      for (const [index, advantage] of (advantages ?? []).entries()) credit.set(judged[index]!, advantage);
    }
    return credit;
  });
}

export const relativeKind = defineKind({
  role: "credit",
  name: "relative",
  summary: "How much better a turn was than its siblings",
  schema: options,
  make: (chosen) => relative(chosen),
});
