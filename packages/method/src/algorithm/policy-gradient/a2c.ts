import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { creditInconsistency } from "../requirements.js";
import { logProbabilityLoss } from "../losses/index.js";
import { ValueAdvantage } from "./advantages.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, policyOptions, withUsualKL } from "./policy-options.js";

const {
  gamma,
  gaeLambda,
  valueCoefficient,
  valueLearningRate,
  entropyCoefficient,
  normalizeAdvantages,
  klCoefficient,
  klLossCoefficient,
  klTarget,
} = policyOptions;

const options = z.strictObject({
  gamma,
  gaeLambda: gaeLambda.default(1),
  normalizeAdvantages: normalizeAdvantages.default(false),
  valueCoefficient,
  valueLearningRate,
  entropyCoefficient,
  klCoefficient,
  klLossCoefficient,
  klTarget,
});

export type A2COptions = z.input<typeof options>;

/**
 * Advantage actor-critic (Mnih et al., arXiv 1602.01783, section 4, synchronous) over the tokens of probes: see
 * `logProbabilityLoss` and `generalizedAdvantages`, whose λ = 1 gives the paper's full returns. One epoch per
 * experience. The system needs a value function.
 *
 * @example new A2C(system, { valueLearningRate: 1e-3 })
 */
export class A2C<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: A2COptions = {}) {
    const { gamma, gaeLambda, ...chosen } = withUsualKL(parseOptions("A2C", options, given));
    super(
      system,
      "A2C",
      {
        loss: ({ logprobs, advantages }) => logProbabilityLoss(logprobs, advantages),
        advantages: new ValueAdvantage({ gamma, gaeLambda }),
        usesRatio: false,
      },
      chosen,
    );
  }
}

export const a2cKind = defineKind({
  role: "algorithm",
  name: "a2c",
  summary: "Advantage actor-critic, with a value function",
  schema: options,
  check: (_, beside) => creditInconsistency("A2C", beside),
  needs: (chosen) => ["values", ...baselineNeeds(withUsualKL(chosen))],
  make: (chosen, { system }) => new A2C(system, chosen),
});
