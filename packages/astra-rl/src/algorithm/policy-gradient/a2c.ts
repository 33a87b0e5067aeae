import { z } from "zod";
import { defineKind, parseOptions, type System, type Message, type Conversation } from "../../core/index.js";
import { creditMisfit } from "../requirements.js";
import { ValueAdvantage } from "./advantages.js";
import type { GeneralizedAdvantageOptions } from "./generalized-advantages.js";
import { logProbabilityLoss } from "./log-probability-loss.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, policyOptions } from "./policy-options.js";
import type { PolicyGradientOptions } from "./policy-types.js";

const {
  gamma,
  gaeLambda,
  valueCoefficient,
  valueLearningRate,
  entropyCoefficient,
  normalizeAdvantages,
  klCoefficient,
  klTarget,
} = policyOptions;

/** As in Mnih et al. */
const ENTROPY_COEFFICIENT = 0.01;

const options = z.strictObject({
  gamma,
  gaeLambda: gaeLambda.default(1),
  normalizeAdvantages: normalizeAdvantages.default(false),
  valueCoefficient,
  valueLearningRate,
  entropyCoefficient: entropyCoefficient
    .unwrap()
    .optional()
    .describe(
      `Weight of the entropy of the next token, as a bonus. Default: ${ENTROPY_COEFFICIENT} where the system tells the ` +
        "entropy of its tester, else 0",
    ),
  klCoefficient: klCoefficient.default(0),
  klTarget,
});

export interface A2COptions
  extends
    Partial<GeneralizedAdvantageOptions>,
    Pick<
      PolicyGradientOptions,
      | "normalizeAdvantages"
      | "valueCoefficient"
      | "valueLearningRate"
      | "entropyCoefficient"
      | "klCoefficient"
      | "klTarget"
    > {}

/**
 * Advantage actor-critic (Mnih et al., arXiv 1602.01783, section 4, synchronous) over the tokens of probes: see
 * `logProbabilityLoss` and `generalizedAdvantages`, whose λ of 1 gives the paper's returns to the end. One pass over each
 * experience. The system needs a value function.
 *
 * @example new A2C(system, { entropyCoefficient: 0.01 })
 */
export class A2C<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: A2COptions = {}) {
    const { gamma, gaeLambda, ...rest } = parseOptions("A2C", options, given);
    const unknown = (system as Partial<System<S, A>>).lacks?.("entropy") ?? null;
    const entropyDefault = unknown === null ? ENTROPY_COEFFICIENT : 0;
    const chosen = { ...rest, entropyCoefficient: rest.entropyCoefficient ?? entropyDefault };
    super(
      system,
      "A2C",
      {
        loss: ({ logprobs, advantages }) => logProbabilityLoss(logprobs, advantages),
        advantages: new ValueAdvantage({ gamma, gaeLambda }),
        usesRatio: false,
      },
      chosen as PolicyGradientOptions,
    );
  }
}

export const a2cKind = defineKind({
  role: "algorithm",
  name: "a2c",
  summary: "Advantage actor-critic, with a value function",
  schema: options,
  check: (_, beside) => creditMisfit("A2C", { usesValues: true, usesSiblings: false }, beside),
  needs: (chosen) => ["values", ...baselineNeeds(chosen)],
  make: (chosen, { system }) => new A2C(system, chosen),
});
