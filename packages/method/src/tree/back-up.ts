import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../kinds/index.js";
import { isRewarded, type Credit } from "./credit.js";
import type { Graph } from "./graph.js";
import type { Node } from "./node.js";

const UNIT_RULE = "must be a number from 0 to 1";

const options = z.strictObject({
  op: z
    .enum(["max", "mean"])
    .default("max")
    .describe("Credit that a turn receives from its children: the maximum or the mean of theirs"),
  gamma: z.number().min(0, UNIT_RULE).max(1, UNIT_RULE).default(0.9).describe("Discount factor per turn"),
});

export type BackUpOptions = z.input<typeof options>;

/**
 * Credits a turn with its own reward plus returns from later turns: c = r + γ · op(c of its children), from the leaves
 * to the root (MALIBU: the multi-turn back-up of sisl/astra-rl's `gpt2_backup.py`). A probe that leads to harm two
 * turns later is then preferred over a sibling that does not.
 *
 * Failed turns have no credit and pass none to their parents, nor do their descendants: a turn whose children all
 * failed keeps its own reward.
 *
 * @throws UsageError for an unknown op, or a γ outside of [0, 1]
 */
export function backUp<S = Conversation, A = Message>(given: BackUpOptions = {}): Credit<S, A> {
  const { op, gamma } = parseOptions("backUp", options, given);
  const credits = (graph: Graph<S, A>): Map<Node<S, A>, number> => {
    const credit = new Map<Node<S, A>, number>();
    // Reversed order: children before parents.
    for (const node of [...graph.nodes()].reverse()) {
      if (!isRewarded(node)) continue;
      const future = node.children.flatMap((child) => credit.get(child) ?? []);
      if (future.length === 0) credit.set(node, node.reward);
      else {
        const taken =
          op === "max" ? Math.max(...future) : future.reduce((sum, value) => sum + value, 0) / future.length;
        credit.set(node, node.reward + gamma * taken);
      }
    }
    return credit;
  };
  return Object.assign(credits, { looksAhead: true });
}

export const backUpKind = defineKind({
  role: "credit",
  name: "back-up",
  summary: "A turn's own reward plus the discounted credit of later turns",
  schema: options,
  make: (chosen) => backUp(chosen),
});
