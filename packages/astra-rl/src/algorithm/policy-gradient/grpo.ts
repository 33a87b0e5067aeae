import { UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { defineKind, type GroupAdvantageOptions, type System } from "../../core/index.js";
import { creditMisfit, siblingsMissing } from "../requirements.js";
import { SiblingAdvantage } from "./advantages.js";
import { clippedSurrogateLoss, type ClippedSurrogateOptions } from "./clipped-surrogate-loss.js";
import { PolicyGradient } from "./policy-gradient.js";
import { baselineNeeds, policyOptions, withUsualKL } from "./policy-options.js";
import type { PolicyGradientOptions } from "./policy-types.js";

const {
  epochs,
  oldLogprobs,
  targetKL,
  clipRange,
  clipRangeHigher,
  entropyCoefficient,
  klLossCoefficient,
  normalizer,
} = policyOptions;

/** Beside rewards of which 1 is the most. */
const USUAL_KL = 0.05;

const options = z.strictObject({
  scale: z
    .enum(["none", "std"])
    .default("none")
    .describe(
      "std: advantages are divided by the standard deviation of the siblings' credit; with two siblings that leaves " +
        "±0.707 of any difference",
    ),
  epochs: epochs.default(1),
  clipRange,
  clipRangeHigher,
  normalizer: normalizer.default("token"),
  klLossCoefficient: klLossCoefficient(USUAL_KL),
  entropyCoefficient,
  targetKL,
  oldLogprobs,
});

const DEFAULTS = options.parse({});

export interface GRPOOptions
  extends
    ClippedSurrogateOptions,
    Pick<
      PolicyGradientOptions,
      "epochs" | "normalizer" | "klLossCoefficient" | "entropyCoefficient" | "targetKL" | "oldLogprobs"
    > {
  /**
   * Whether advantages are divided by the standard deviation of the siblings' credit, as in the paper, or not (Dr. GRPO).
   * With two siblings "std" leaves ±0.707 of any difference, so that its size is lost. @default "none"
   */
  scale?: GroupAdvantageOptions["scale"];
}

/**
 * Group relative policy optimisation (Shao et al., "DeepSeekMath", arXiv 2402.03300): a probe is compared with the mean of its
 * siblings, in PPO's clipped surrogate. See `groupAdvantages`, `clippedSurrogateLoss` and `klPenalty`.
 *
 * Two defaults are not the paper's: advantages are not divided by the standard deviation, and the loss is a mean over
 * all tokens (`scale: "std"` and `normalizer: "sequence"` are; its weight of the KL is 0.04).
 *
 * @example new GRPO(system, { epochs: 2, clipRangeHigher: 0.28 })
 */
export class GRPO<S = string, A = string> extends PolicyGradient<S, A> {
  constructor(system: System<S, A>, given: GRPOOptions = {}) {
    const { scale, ...chosen } = withUsualKL({ ...DEFAULTS, ...given }, USUAL_KL);
    if (scale !== "none" && scale !== "std") {
      throw new UsageError(`GRPO: scale must be "none" or "std", got ${JSON.stringify(scale)}`);
    }
    super(
      system,
      "GRPO",
      {
        loss: ({ logprobs, old, advantages }) => clippedSurrogateLoss(logprobs, old, advantages, chosen),
        advantages: new SiblingAdvantage({ baseline: "mean", scale }),
        usesRatio: true,
      },
      chosen,
    );
  }
}

export const grpoKind = defineKind({
  role: "algorithm",
  name: "grpo",
  summary: "Group relative policy optimisation: siblings compared, PPO's surrogate",
  schema: options,
  check: (_, beside) =>
    siblingsMissing("GRPO", beside) ??
    creditMisfit("GRPO", { usesValues: false, usesSiblings: true }, beside),
  needs: (chosen) => baselineNeeds(withUsualKL(chosen, USUAL_KL)),
  make: (chosen, { system }) => new GRPO(system, chosen),
});
