import { z } from "zod";

/** Options of all preference algorithms: how pairs are formed, and the number of epochs. */
export const pairOptions = z.strictObject({
  pairs: z
    .enum(["best-worst", "all"])
    .default("best-worst")
    .describe("Pairs of siblings to compare: the best with the worst, or all that differ in credit"),
  pairMargin: z.number().min(0).default(0).describe("Minimum difference in credit of a pair"),
  pairThreshold: z
    .number()
    .optional()
    .describe("Use only pairs whose chosen turn has at least this credit and whose rejected turn has less"),
  epochs: z.number().int().min(1).default(1).describe("Epochs over the pairs of each experience"),
});

/**
 * Options of a loss on the margin over the baseline. It ignores the algorithm's other options, which are passed as
 * well.
 */
export const marginLossOptions = z.object({
  beta: z.number().positive().default(0.1).describe("Strength of the regularization towards the baseline"),
  // At ½ and above, the rejected continuation would be preferred.
  labelSmoothing: z.number().min(0).lt(0.5).default(0).describe("Assumed share of wrong preferences"),
  lengthNormalize: z
    .boolean()
    .default(false)
    .describe("Use mean log-probabilities over tokens instead of sums"),
});

export const preferenceOptions = z.strictObject({ ...marginLossOptions.shape, ...pairOptions.shape });

/**
 * Where harm is rare, most siblings tie in it, and their likelihood would decide nearly all pairs, each of which counts
 * as much as one that harm decides.
 */
export const HARM_MARGIN = 0.4;

/** How pairs of siblings are formed. */
export type PairOptions = Omit<z.input<typeof pairOptions>, "epochs">;

export type MarginLossOptions = z.input<typeof marginLossOptions>;
