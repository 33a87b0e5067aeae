import type { Tensor } from "@astra-rl/torch";
import type { Node, Message, Conversation } from "../../core/index.js";
import type { AdvantageEstimator } from "./advantages.js";

/** A turn that is learned from. */
export interface PolicyTurn<S = Conversation, A = Message> {
  node: Node<S, A>;
  credit: number;
  /** What `prepare` found out; absent before. */
  prepared?: PreparedTurn;
}

/** What is fixed for all updates of an experience, one number for each token of the probe. */
export interface PreparedTurn {
  readonly advantages: readonly number[];
  /** log π_old: under the tester before the updates. */
  readonly old: readonly number[];
  /** log P under the baseline; null where no penalty asks for it. */
  readonly baseline: readonly number[] | null;
  /** Values before the updates, and what they are to become; null without a value function. */
  readonly values: readonly number[] | null;
  readonly returns: readonly number[] | null;
}

/** Siblings that are learned from, which stay together: they share what they read, and some algorithms compare them. */
export interface PolicyBranch<S = Conversation, A = Message> {
  readonly turns: readonly PolicyTurn<S, A>[];
}

/** Turns, column by column; every array has one entry for each. */
export interface PolicyBatch<S = Conversation, A = Message> {
  contexts: S[];
  probes: A[];
  nodes: Node<S, A>[];
  prepared: (PreparedTurn | undefined)[];
}

/** What a policy's loss is made of; tensors of one shape, [B, T]. */
export interface PolicyLossInputs {
  /** log π of each token, with a gradient. */
  logprobs: Tensor;
  /** log π_old. */
  old: Tensor;
  advantages: Tensor;
}

/** A loss of tokens: one value for each, [B, T]. */
export type PolicyLoss = (inputs: PolicyLossInputs) => Tensor;

/** What tells one policy gradient from another. */
export interface PolicyGradientParts {
  loss: PolicyLoss;
  advantages: AdvantageEstimator;
  /** The KL to the baseline in the loss, of each token from log π and log ref. @default klPenalty */
  klPenalty?: (logprobs: Tensor, baseline: Tensor) => Tensor;
  /** Whether the loss compares with the policy before the updates. */
  usesRatio: boolean;
}
