import { z } from "zod";
import type { SystemNeed } from "../../system/index.js";
import { NORMALIZERS } from "../losses/token-mean.js";

const coefficient = z.number().min(0);

/**
 * Default weight of the KL in the loss, for rewards of at most 1. With 0.05 a tester settles where what can be learned of
 * a reward, some hundredths, is worth no more (docs/decisions/0200).
 */
export const USUAL_KL = 0.02;

/** Options shared by policy gradients; each algorithm picks the ones it uses. */
export const policyOptions = {
  epochs: z
    .number()
    .int()
    .min(1)
    .describe("How often the turns of an experience are passed over, each time in another order"),
  oldLogprobs: z
    .enum(["recomputed", "recorded"])
    .default("recomputed")
    .describe(
      "The policy before the updates: read again under the master weights, or as the rollout recorded it, where it did",
    ),
  targetKL: z
    .number()
    .positive()
    .optional()
    .describe("The updates of a step end where the policy is further from its beginning, in nats a token"),
  clipRange: z.number().gt(0).lt(1).default(0.2).describe("Beyond 1 ± this a ratio earns nothing more"),
  clipRangeHigher: z
    .number()
    .positive()
    .optional()
    .describe("The upper one where it is another. Default: clipRange"),
  gamma: z.number().min(0).max(1).default(1).describe("What a reward one token later is worth now"),
  gaeLambda: z
    .number()
    .min(0)
    .max(1)
    .describe("0 trusts the values of the next token alone, 1 the rewards to the end alone"),
  valueCoefficient: coefficient.default(0.5).describe("Weight of the squared error of values"),
  valueClipRange: coefficient.describe(
    "How far a value may move from what it was before the updates; 0: as far as it likes",
  ),
  valueLearningRate: z
    .number()
    .positive()
    .optional()
    .describe("Learning rate of the value head. Default: the training's"),
  entropyCoefficient: coefficient.default(0).describe("Weight of the entropy of the next token, as a bonus"),
  normalizeAdvantages: z
    .boolean()
    .describe("Advantages of an experience get mean 0 and standard deviation 1 over its tokens"),
  klCoefficient: coefficient
    .optional()
    .describe("Weight of the KL to the baseline, taken off the reward of each token. Default: 0"),
  klLossCoefficient: coefficient
    .optional()
    .describe(
      `Weight of the KL to the baseline, as a part of the loss. Default: ${USUAL_KL}, or 0 where klCoefficient is given`,
    ),
  klTarget: z
    .number()
    .positive()
    .optional()
    .describe("klCoefficient is moved until the KL of a probe is this, in nats. Default: it stays"),
  normalizer: z
    .enum(NORMALIZERS)
    .describe(
      "What the loss is a mean over: tokens, sequences (of their token means), or sequences of their sums (none)",
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
export const withUsualKL = <Options extends KLOptions>(options: Options) => ({
  ...options,
  klCoefficient: options.klCoefficient ?? 0,
  klLossCoefficient: options.klLossCoefficient ?? (options.klCoefficient === undefined ? USUAL_KL : 0),
});

/** Capabilities that a policy gradient with these options requires of its system. */
export const baselineNeeds = ({ klCoefficient = 0, klLossCoefficient = 0 }: KLOptions): SystemNeed[] =>
  klCoefficient > 0 || klLossCoefficient > 0 ? ["baseline"] : [];
