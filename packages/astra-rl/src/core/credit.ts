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
   * What of a turn's worth beside its own reward is in it already, so that an algorithm which adds the same can refuse
   * it: what the turn led to, or what its siblings were worth. Absent: neither.
   */
  readonly accountsFor?: CreditAccount;
}

export type CreditAccount = "future" | "siblings";

/** A credit that says what it accounts for. */
export function accountingFor<C extends (graph: never) => unknown>(
  accountsFor: CreditAccount,
  credit: C,
): C & { readonly accountsFor: CreditAccount } {
  return Object.assign(credit, { accountsFor });
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
