import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { elicitationDefaults } from "../elicitation-defaults.js";
import { siblingsMissing } from "../requirements.js";
import { clippedSurrogateLoss, grpoKLPenalty } from "../losses/index.js";
import { SiblingAdvantage } from "./advantages.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, policyOptions, SIBLING_KL } from "./policy-options.js";

const { epochs, oldLogprobs, targetKL, clipRange, clipRangeHigher, entropyCoefficient, normalizer } =
  policyOptions;

const options = z.strictObject({
  scale: z
    .enum(["none", "std"])
    .default("none")
    .describe(
      "std: divide advantages by the standard deviation of the siblings' credit; with two siblings, any " +
        "difference then " +
        "becomes ±0.707",
    ),
  epochs: epochs.default(1),
  clipRange,
  clipRangeHigher,
  normalizer: normalizer.default("token"),
  klLossCoefficient: z
    .number()
    .min(0)
    .default(SIBLING_KL)
    .describe("Weight of the KL to the baseline in the loss"),
  entropyCoefficient,
  targetKL,
  oldLogprobs,
});

export type GRPOOptions = z.input<typeof options>;

/**
 * Group relative policy optimization (Shao et al., "DeepSeekMath", arXiv 2402.03300): PPO's clipped surrogate with the
 * mean of the siblings as baseline. See `groupAdvantages`, `clippedSurrogateLoss` and `grpoKLPenalty`.
 *
 * Three defaults differ from the paper: advantages are not divided by the standard deviation, the loss is a mean over
 * all tokens, and the KL weight is 0.01 (paper: `scale: "std"`, `normalizer: "sequence"`, and a KL weight of 0.04).
 *
 * @example new GRPO(system, { epochs: 2, clipRangeHigher: 0.28 })
 */
export class GRPO<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: GRPOOptions = {}) {
    const { scale, ...chosen } = parseOptions("GRPO", options, given);
    super(
      system,
      "GRPO",
      {
        loss: ({ logprobs, old, advantages }) => clippedSurrogateLoss(logprobs, old, advantages, chosen),
        advantages: new SiblingAdvantage({ baseline: "mean", scale }),
        klPenalty: grpoKLPenalty,
        usesRatio: true,
      },
      chosen,
    );
  }
}

export const grpoKind = defineKind({
  role: "algorithm",
  name: "grpo",
  summary: "Group relative policy optimization: compares siblings, with PPO's surrogate loss",
  ...elicitationDefaults(options, { epochs: 2 }),
  check: (_, beside) => siblingsMissing("GRPO", beside),
  needs: baselineNeeds,
  make: (chosen, { system }) => new GRPO(system, chosen),
});
