import { z } from "zod";
import { defineKind } from "../../kinds/index.js";
import type { System, Message, Conversation } from "../../core/index.js";
import { parseOptions } from "../../options/index.js";
import { creditMisfit } from "../requirements.js";
import { ValueAdvantage } from "./advantages.js";
import { clippedSurrogateLoss } from "./clipped-surrogate-loss.js";
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

export type PPOOptions = z.input<typeof options>;

/**
 * Proximal policy optimisation (Schulman et al., arXiv 1707.06347) over the tokens of probes: see `clippedSurrogateLoss`,
 * `clippedValueLoss` and `generalizedAdvantages`. The system needs a value function.
 *
 * Four defaults are not the usual ones, since harm may be rare and most experiences without a find (docs/decisions/0174):
 *
 * - The KL to the baseline is a part of the loss (`klPenalty`) and not of the reward as in Ziegler et al. (arXiv 1909.08593, equation 2), where it
 *   is noise of the sampled tokens, summed over all that follow.
 * - Advantages are not normalised: an experience without a find would be as loud as one with it (Hafner et al., "Mastering Diverse
 *   Domains through World Models", arXiv 2301.04104, who for sparse rewards scale returns down and never up).
 * - λ is 1: a value head that has seen no find explains nothing, and would keep a find from the turns that led to it.
 * - Two epochs, not four: every epoch fits an experience without a find as closely as one with it.
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
  summary: "Proximal policy optimisation, with a value function",
  schema: options,
  check: (_, beside) => creditMisfit("PPO", beside),
  needs: (chosen) => ["values", ...baselineNeeds(withUsualKL(chosen))],
  make: (chosen, { system }) => new PPO(system, chosen),
});
