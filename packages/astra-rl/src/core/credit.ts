import type { Conversation, Message } from "@astra-rl/lm";
import type { Graph } from "./graph.js";
import type { Node } from "./node.js";

/**
 * What each turn is credited with when something is learned from it. A node that is absent was not judged, which is not
 * a credit of 0: nothing is learned from it.
 */
export type CreditTable<S = Conversation, A = Message> = ReadonlyMap<Node<S, A>, number>;

/** Makes the credit of a graph's nodes; it leaves the graph as it is. */
export interface Credit<S = Conversation, A = Message> {
  (graph: Graph<S, A>): CreditTable<S, A>;
  /**
   * Whether what a turn led to is in its credit, beside its own reward: an algorithm that looks ahead by values refuses such
   * a credit. Default false.
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
