import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { creditInconsistency } from "../requirements.js";
import { clippedSurrogateLoss } from "../losses/index.js";
import { ValueAdvantage } from "./advantages.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, policyOptions, withUsualKL } from "./policy-options.js";

const {
  epochs,
  oldLogprobs,
  targetKL,
  clipRange,
  clipRangeHigher,
  gamma,
  gaeLambda,
  valueCoefficient,
  valueClipRange,
  valueLearningRate,
  entropyCoefficient,
  normalizeAdvantages,
  klCoefficient,
  klLossCoefficient,
  klTarget,
} = policyOptions;

const options = z.strictObject({
  epochs: epochs.default(2),
  clipRange,
  clipRangeHigher,
  gamma,
  gaeLambda: gaeLambda.default(1),
  normalizeAdvantages: normalizeAdvantages.default(false),
  valueCoefficient,
  valueLearningRate,
  valueClipRange: valueClipRange.default(0.2),
  entropyCoefficient,
  klCoefficient,
  klLossCoefficient,
  klTarget,
  targetKL,
  oldLogprobs,
});

/**
 * In configurations the updates of a step end where the policy is 0.004 nats a token from its beginning, and smaller ones
 * follow: Adam's first updates are as large as its rate, for any gradient. At 0.02 nats a tester of probes of 16 tokens
 * left the language within a hundred steps (docs/log.md).
 */
const kindOptions = options.extend({
  targetKL: targetKL
    .unwrap()
    .default(0.004)
    .meta(targetKL.meta() ?? {}),
});

export type PPOOptions = z.input<typeof options>;

/**
 * Proximal policy optimization (Schulman et al., arXiv 1707.06347) over the tokens of probes: see
 * `clippedSurrogateLoss`, `clippedValueLoss` and `generalizedAdvantages`. The system needs a value function.
 *
 * Four defaults differ from the usual ones, since harm may be rare and most experiences without a success
 * (docs/decisions/0174):
 *
 * - The KL to the baseline is in the loss (`klPenalty`), not in the reward as in Ziegler et al. (arXiv 1909.08593,
 *   equation 2), where each token's return contains the sampling noise of the KL of all later tokens.
 * - Advantages are not normalized: this would scale noise in experiences without a success up to the size of a
 *   success (Hafner et al., "Mastering Diverse Domains through World Models", arXiv 2301.04104, scale returns down but
 *   never up, for sparse rewards).
 * - λ is 1: a value head that has not seen a success predicts nothing useful, and λ < 1 would keep a success from
 *   being credited to the turns that led to it.
 * - Two epochs instead of four: more epochs also fit experiences without a success more closely.
 *
 * @example new PPO(system, { epochs: 4, klLossCoefficient: 0.1 })
 */
export class PPO<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: PPOOptions = {}) {
    const { gamma, gaeLambda, ...chosen } = withUsualKL(parseOptions("PPO", options, given));
    super(
      system,
      "PPO",
      {
        loss: ({ logprobs, old, advantages }) => clippedSurrogateLoss(logprobs, old, advantages, chosen),
        advantages: new ValueAdvantage({ gamma, gaeLambda }),
        usesRatio: true,
      },
      chosen,
    );
  }
}

export const ppoKind = defineKind({
  role: "algorithm",
  name: "ppo",
  summary: "Proximal policy optimization, with a value function",
  schema: kindOptions,
  check: (_, beside) => creditInconsistency("PPO", beside),
  needs: (chosen) => ["values", ...baselineNeeds(withUsualKL(chosen))],
  make: (chosen, { system }) => new PPO(system, chosen),
});
