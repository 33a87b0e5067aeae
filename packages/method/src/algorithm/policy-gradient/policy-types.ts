import type { Tensor } from "@astra-rl/torch";
import type { Message, Conversation } from "@astra-rl/lm";
import type { Node } from "../../tree/index.js";
import type { AdvantageEstimator } from "./advantages.js";

/** A turn to train on. */
export interface PolicyTurn<S = Conversation, A = Message> {
  node: Node<S, A>;
  credit: number;
  /** Set by `prepare`. */
  prepared?: PreparedTurn;
}

/** Values that stay fixed during an experience's updates: one number for each token of the probe. */
export interface PreparedTurn {
  readonly advantages: readonly number[];
  /** log π_old: under the tester before the experience's updates. */
  readonly old: readonly number[];
  /** log P under the baseline; null if no penalty uses it. */
  readonly baseline: readonly number[] | null;
  /** Values before the updates, and their regression targets; null without a value function. */
  readonly values: readonly number[] | null;
  readonly returns: readonly number[] | null;
}

/** Siblings to train on. They stay in one batch: they share a prefix, and some algorithms compare them. */
export interface PolicyBranch<S = Conversation, A = Message> {
  readonly turns: readonly PolicyTurn<S, A>[];
  /** The index of their graph, if known. Several processes share the work by whole graphs. */
  readonly episode?: number;
}

/** A batch of turns as columns; every array has one entry per turn. */
export interface PolicyBatch<S = Conversation, A = Message> {
  contexts: S[];
  probes: A[];
  nodes: Node<S, A>[];
  prepared: (PreparedTurn | undefined)[];
}

/** Inputs of a policy loss; tensors of the same shape, [B, T]. */
export interface PolicyLossInputs {
  /** log π of each token, with a gradient. */
  logprobs: Tensor;
  /** log π_old. */
  old: Tensor;
  advantages: Tensor;
}

/** A per-token loss, [B, T]. */
export type PolicyLoss = (inputs: PolicyLossInputs) => Tensor;

/** The parts in which policy gradients differ. */
export interface PolicyGradientParts {
  loss: PolicyLoss;
  advantages: AdvantageEstimator;
  /** KL to the baseline as a loss term per token, from log π and log ref. @default klPenalty */
  klPenalty?: (logprobs: Tensor, baseline: Tensor) => Tensor;
  /** Whether the loss uses the ratio to the policy before the updates. */
  usesRatio: boolean;
}
