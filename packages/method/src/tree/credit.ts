import type { Conversation, Message } from "@astra-rl/lm";
import type { Graph } from "./graph.js";
import type { Node } from "./node.js";

/**
 * The training signal of each turn. A node that is absent was not judged: it is left out of training, which differs
 * from a credit of 0.
 */
export type CreditTable<S = Conversation, A = Message> = ReadonlyMap<Node<S, A>, number>;

/** Computes the credit of a graph's nodes without changing the graph. */
export interface Credit<S = Conversation, A = Message> {
  (graph: Graph<S, A>): CreditTable<S, A>;
  /**
   * Whether the credit already contains returns from later turns. Algorithms that bootstrap from values refuse such a
   * credit. Default false.
   */
  readonly looksAhead?: boolean;
}

/** Whether a node has a reward: failed turns have none. */
export function isRewarded<S, A>(node: Node<S, A>): boolean {
  return !node.failed && Number.isFinite(node.reward);
}

/** Credits each turn with its own reward. */
export function rewardCredit<S, A>(graph: Graph<S, A>): CreditTable<S, A> {
  const credit = new Map<Node<S, A>, number>();
  for (const node of graph.nodes()) if (isRewarded(node)) credit.set(node, node.reward);
  return credit;
}
