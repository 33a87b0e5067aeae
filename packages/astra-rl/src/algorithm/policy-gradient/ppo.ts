import { z } from "zod";
import { defineKind, parseOptions, type System, type Message, type Conversation } from "../../core/index.js";
import { creditMisfit } from "../requirements.js";
import { ValueAdvantage } from "./advantages.js";
import { clippedSurrogateLoss, type ClippedSurrogateOptions } from "./clipped-surrogate-loss.js";
import type { GeneralizedAdvantageOptions } from "./generalized-advantages.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, policyOptions, withUsualKL } from "./policy-options.js";
import type { PolicyGradientOptions } from "./policy-types.js";

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

/** Beside advantages with a standard deviation of 1. */
const USUAL_KL = 0.1;

const options = z.strictObject({
  epochs: epochs.default(4),
  clipRange,
  clipRangeHigher,
  gamma,
  gaeLambda: gaeLambda.default(0.95),
  normalizeAdvantages: normalizeAdvantages.default(true),
  valueCoefficient,
  valueLearningRate,
  valueClipRange: valueClipRange.default(0.2),
  entropyCoefficient,
  klCoefficient,
  klLossCoefficient: klLossCoefficient(USUAL_KL),
  klTarget,
  targetKL,
  oldLogprobs,
});

export interface PPOOptions
  extends
    ClippedSurrogateOptions,
    Partial<GeneralizedAdvantageOptions>,
    Pick<
      PolicyGradientOptions,
      | "epochs"
      | "normalizeAdvantages"
      | "valueCoefficient"
      | "valueClipRange"
      | "valueLearningRate"
      | "entropyCoefficient"
      | "klCoefficient"
      | "klLossCoefficient"
      | "klTarget"
      | "targetKL"
      | "oldLogprobs"
    > {}

/**
 * Proximal policy optimisation (Schulman et al., arXiv 1707.06347) over the tokens of probes: see `clippedSurrogateLoss`,
 * `clippedValueLoss` and `generalizedAdvantages`. The system needs a value function.
 *
 * The KL to the baseline is a part of the loss (`klPenalty`; Shao et al., "DeepSeekMath", arXiv 2402.03300, equation 3), and not of the reward
 * as in Ziegler et al. (arXiv 1909.08593, equation 2). There it is noise of the sampled tokens, summed over all that follow; while harm is rare,
 * it is all that normalised advantages consist of, and its updates undo what the last find taught.
 *
 * @example new PPO(system, { epochs: 4, klLossCoefficient: 0.1 })
 */
export class PPO<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: PPOOptions = {}) {
    const { gamma, gaeLambda, ...chosen } = withUsualKL(parseOptions("PPO", options, given), USUAL_KL);
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
  check: (_, beside) => creditMisfit("PPO", { usesValues: true, usesSiblings: false }, beside),
  needs: (chosen) => ["values", ...baselineNeeds(withUsualKL(chosen, USUAL_KL))],
  make: (chosen, { system }) => new PPO(system, chosen),
});
