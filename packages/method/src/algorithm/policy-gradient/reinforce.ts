import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { logProbabilityLoss } from "../losses/index.js";
import { BaselineAdvantage, BASELINES } from "./advantages.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, policyOptions, withUsualKL } from "./policy-options.js";

const { entropyCoefficient, normalizeAdvantages, klCoefficient, klLossCoefficient, klTarget, normalizer } =
  policyOptions;

const options = z.strictObject({
  baseline: z
    .enum(BASELINES)
    .default("others")
    .describe(
      "Baseline of a turn's return: the mean of the other turns of the experience, a running mean of earlier " +
        "experiences, or none",
    ),
  normalizer: normalizer.default("none"),
  normalizeAdvantages: normalizeAdvantages.default(false),
  entropyCoefficient,
  klCoefficient,
  klLossCoefficient,
  klTarget,
});

/**
 * In configurations the loss is a mean over tokens, as RLOO's: sums over probes reach `clipGradNorm`, and on a model
 * without planted behaviour the tester diverged to unnatural text (docs/decisions/0200).
 */
const kindOptions = options.extend({ normalizer: normalizer.default("token") });

export type REINFORCEOptions = z.input<typeof options>;

/**
 * REINFORCE with a baseline (Williams 1992): see `logProbabilityLoss` and `BaselineAdvantage`. It learns from single
 * paths or trees, and needs neither siblings nor a value function. One epoch per experience.
 *
 * @example new REINFORCE(system, { baseline: "running" })
 */
export class REINFORCE<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: REINFORCEOptions = {}) {
    const { baseline, ...chosen } = withUsualKL(parseOptions("REINFORCE", options, given));
    super(
      system,
      "REINFORCE",
      {
        loss: ({ logprobs, advantages }) => logProbabilityLoss(logprobs, advantages),
        advantages: new BaselineAdvantage(baseline),
        usesRatio: false,
      },
      chosen,
    );
  }
}

export const reinforceKind = defineKind({
  role: "algorithm",
  name: "reinforce",
  summary: "REINFORCE with a baseline, for trees and single paths",
  schema: kindOptions,
  needs: (chosen) => baselineNeeds(withUsualKL(chosen)),
  make: (chosen, { system }) => new REINFORCE(system, chosen),
});
