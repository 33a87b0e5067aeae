import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { elicitationDefaults } from "../elicitation-defaults.js";
import { siblingsMissing } from "../requirements.js";
import { clippedSurrogateLoss, logProbabilityLoss } from "../losses/index.js";
import { SiblingAdvantage } from "./advantages.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, klLoss, policyOptions, SIBLING_KL, withUsualKL } from "./policy-options.js";

const { epochs, entropyCoefficient, klCoefficient, klTarget, normalizer } = policyOptions;

const options = z.strictObject({
  epochs: epochs.default(1),
  normalizer: normalizer.default("token"),
  entropyCoefficient,
  klCoefficient,
  klLossCoefficient: klLoss(SIBLING_KL),
  klTarget,
});

export type RLOOOptions = z.input<typeof options>;

/**
 * REINFORCE leave-one-out (Ahmadian et al., "Back to Basics", arXiv 2402.14740): the baseline of a probe is the mean of
 * its siblings, and a whole probe is one action. See `groupAdvantages` and `logProbabilityLoss`. With several
 * epochs the policy is no longer the one that sampled, so the loss is `clippedSurrogateLoss`, as in TRL's RLOOTrainer; the
 * first step's gradient is the same.
 *
 * One default differs from the paper: the loss is a mean over all tokens. With sums per probe (`normalizer: "none"`)
 * gradients grow with probe length, so `clipGradNorm` scales the gradient of a rare success down to that of an
 * experience without one.
 *
 * @example new RLOO(system, { klLossCoefficient: 0.03 })
 */
export class RLOO<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: RLOOOptions = {}) {
    const chosen = parseOptions("RLOO", options, given);
    const usesRatio = chosen.epochs > 1;
    super(
      system,
      "RLOO",
      {
        loss: ({ logprobs, old, advantages }) =>
          usesRatio
            ? clippedSurrogateLoss(logprobs, old, advantages)
            : logProbabilityLoss(logprobs, advantages),
        advantages: new SiblingAdvantage({ baseline: "others", scale: "none" }),
        usesRatio,
      },
      withUsualKL(chosen, SIBLING_KL),
    );
  }
}

export const rlooKind = defineKind({
  role: "algorithm",
  name: "rloo",
  summary: "REINFORCE leave-one-out: compares a turn with the mean of its siblings",
  ...elicitationDefaults(options, { epochs: 2 }),
  check: (_, beside) => siblingsMissing("RLOO", beside),
  needs: (chosen) => baselineNeeds(withUsualKL(chosen, SIBLING_KL)),
  make: (chosen, { system }) => new RLOO(system, chosen),
});
