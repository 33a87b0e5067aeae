import { z } from "zod";
import type { SystemNeed } from "../../system/index.js";
import { NORMALIZERS } from "../losses/token-mean.js";

const coefficient = z.number().min(0);

/**
 * Default weight of the KL in the loss, for rewards of at most 1. With 0.05, a tester stops improving where what can be
 * learned about a reward, some hundredths, is worth no more (docs/decisions/0200).
 */
export const USUAL_KL = 0.02;

/** Default weight where siblings are compared. */
export const SIBLING_KL = USUAL_KL / 2;

/** The weight of the KL in the loss, for algorithms that can also penalize the reward. */
export const klLoss = (usual: number) =>
  coefficient
    .optional()
    .describe(
      `Weight of the KL to the baseline in the loss. Default: ${usual}, or 0 if klCoefficient is given`,
    );

/** Options shared by policy gradients; each algorithm picks the ones it uses. */
export const policyOptions = {
  epochs: z.number().int().min(1).describe("Epochs over each experience, reshuffled each time"),
  oldLogprobs: z
    .enum(["recomputed", "recorded"])
    .default("recomputed")
    .describe(
      "Log-probabilities of the policy before the updates: recomputed under the master weights, or as " +
        "recorded by the rollout, if it did",
    ),
  targetKL: z
    .number()
    .positive()
    .optional()
    .describe(
      "Ends the updates of a step if the KL to the policy before them exceeds this, in nats per token",
    ),
  clipRange: z.number().gt(0).lt(1).default(0.2).describe("Clip range of the probability ratio: 1 ± this"),
  clipRangeHigher: z
    .number()
    .positive()
    .optional()
    .describe("Upper clip range of the ratio. Default: clipRange"),
  gamma: z.number().min(0).max(1).default(1).describe("Discount factor per token"),
  gaeLambda: z
    .number()
    .min(0)
    .max(1)
    .describe(
      "λ of generalized advantage estimation: 0 bootstraps from the value of the next token, 1 uses full returns",
    ),
  valueCoefficient: coefficient.default(0.5).describe("Weight of the squared error of values"),
  valueClipRange: coefficient.describe("Clip range of value updates; 0 disables clipping"),
  valueLearningRate: z
    .number()
    .positive()
    .optional()
    .describe("Learning rate of the value head. Default: training.learningRate"),
  entropyCoefficient: coefficient
    .default(0)
    .describe("Weight of the entropy bonus, the entropy of the next token"),
  normalizeAdvantages: z
    .boolean()
    .describe("Normalize the advantages of an experience to mean 0 and standard deviation 1 over its tokens"),
  klCoefficient: coefficient
    .optional()
    .describe("Weight of the KL to the baseline as a penalty on the reward of each token. Default: 0"),
  klLossCoefficient: klLoss(USUAL_KL),
  klTarget: z
    .number()
    .positive()
    .optional()
    .describe(
      "Target KL per probe, in nats, to which klCoefficient is adapted. Default: klCoefficient is fixed",
    ),
  normalizer: z
    .enum(NORMALIZERS)
    .describe(
      "Reduction of the loss: mean over tokens, over sequences of their token means, or over sequences of " +
        "their sums (none)",
    ),
};

/** The options of `PolicyGradient` itself; each algorithm uses some of them, with its own defaults. */
export const policyGradientOptions = z
  .strictObject({
    ...policyOptions,
    epochs: policyOptions.epochs.default(1),
    normalizer: policyOptions.normalizer.default("token"),
    valueClipRange: policyOptions.valueClipRange.default(0),
    normalizeAdvantages: policyOptions.normalizeAdvantages.default(false),
    klCoefficient: policyOptions.klCoefficient.default(0),
    klLossCoefficient: policyOptions.klLossCoefficient.default(0),
  })
  .omit({ gamma: true, gaeLambda: true });

export type PolicyGradientOptions = z.input<typeof policyGradientOptions>;

interface KLOptions {
  klCoefficient?: number | undefined;
  klLossCoefficient?: number | undefined;
}

/**
 * Fills in both weights of the KL to the baseline. If neither is given, the KL in the loss gets its default weight; if
 * only one is given, the other is 0. So `klCoefficient: 0` means no KL at all.
 */
export const withUsualKL = <Options extends KLOptions>(options: Options, usual = USUAL_KL) => ({
  ...options,
  klCoefficient: options.klCoefficient ?? 0,
  klLossCoefficient: options.klLossCoefficient ?? (options.klCoefficient === undefined ? usual : 0),
});

/** Capabilities that a policy gradient with these options requires of its system. */
export const baselineNeeds = ({ klCoefficient = 0, klLossCoefficient = 0 }: KLOptions): SystemNeed[] =>
  klCoefficient > 0 || klLossCoefficient > 0 ? ["baseline"] : [];
