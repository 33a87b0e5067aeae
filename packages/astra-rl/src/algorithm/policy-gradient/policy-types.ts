import type { Tensor } from "@astra-rl/torch";
import type { Node, Message, Conversation } from "../../core/index.js";
import type { AdvantageEstimator } from "./advantages.js";
import type { Normalizer } from "./token-mean.js";

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

export interface PolicyGradientOptions {
  /** How often the turns of an experience are passed over. @default 1 */
  epochs?: number;
  /** What the loss is a mean over; see `Normalizer`. @default "token" */
  normalizer?: Normalizer;
  /**
   * Where log π_old comes from: read again under the master weights, so that the first ratio is 1, or as the rollout
   * recorded it, which may have computed in 16 bits; a turn of which nothing is recorded is read again. @default "recomputed"
   */
  oldLogprobs?: "recomputed" | "recorded";
  /** Nats a token from π_old at which the updates of the experience end. Default: they do not. */
  targetKL?: number;
  /** Weight of the squared error of values. @default 0.5 */
  valueCoefficient?: number;
  /** How far values may move from what they were, see `clippedValueLoss`; 0 clips nothing. @default 0 */
  valueClipRange?: number;
  /** Learning rate of what values alone rest on, such as a value head. Default: the training's. */
  valueLearningRate?: number;
  /** Weight of the entropy bonus. @default 0 */
  entropyCoefficient?: number;
  /** Whether advantages get mean 0 and standard deviation 1 over the experience's tokens. @default false */
  normalizeAdvantages?: boolean;
  /** Weight of the KL to the baseline in the reward of each token. @default 0 */
  klCoefficient?: number;
  /** The KL of a probe, in nats, that `klCoefficient` is moved for; see `KLController`. Default: it stays. */
  klTarget?: number;
  /**
   * Weight of the KL to the baseline as a part of the loss; see `klPenalty`. @default 0; each algorithm has a usual weight of its
   * own, see `withUsualKL`
   */
  klLossCoefficient?: number;
  /** How far a ratio may go, for what is logged of it. @default 0.2 on both sides */
  clipRange?: number;
  clipRangeHigher?: number;
}
