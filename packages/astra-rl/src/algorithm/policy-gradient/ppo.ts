import { z } from "zod";
import { defineKind, parseOptions, type System, type Message, type Conversation } from "../../core/index.js";
import { creditMisfit } from "../requirements.js";
import { ValueAdvantage } from "./advantages.js";
import { clippedSurrogateLoss, type ClippedSurrogateOptions } from "./clipped-surrogate-loss.js";
import type { GeneralizedAdvantageOptions } from "./generalized-advantages.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, policyOptions } from "./policy-options.js";
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
  klTarget,
} = policyOptions;

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
  klCoefficient: klCoefficient.default(0.05),
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
      | "klTarget"
      | "targetKL"
      | "oldLogprobs"
    > {}

/**
 * Proximal policy optimisation (Schulman et al., arXiv 1707.06347) over the tokens of probes: see `clippedSurrogateLoss`,
 * `clippedValueLoss`, `generalizedAdvantages` and, for the KL in the reward, `KLController`. The system needs a value function.
 *
 * @example new PPO(system, { epochs: 4, klCoefficient: 0.05 })
 */
export class PPO<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: PPOOptions = {}) {
    const { gamma, gaeLambda, ...chosen } = parseOptions("PPO", options, given);
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
  needs: (chosen) => ["values", ...baselineNeeds(chosen)],
  make: (chosen, { system }) => new PPO(system, chosen),
});
