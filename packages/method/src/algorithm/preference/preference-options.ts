import { z } from "zod";

/** Options of all preference algorithms: how pairs are formed, and the number of epochs. */
export const pairOptions = z.strictObject({
  pairs: z
    .enum(["best-worst", "all"])
    .default("best-worst")
    .describe("Which siblings are compared: the best with the worst, or every two that differ in credit"),
  pairMargin: z.number().min(0).default(0).describe("Least difference in credit between the two of a pair"),
  pairThreshold: z
    .number()
    .optional()
    .describe(
      "Only pairs that it separates: the chosen turn has at least this credit, the rejected one less",
    ),
  epochs: z.number().int().min(1).default(1).describe("How often the pairs of an experience are passed over"),
});

/** Options of a loss on the margin over the baseline. It ignores the other options of its algorithm, which gives it all. */
export const marginLossOptions = z.object({
  beta: z.number().positive().default(0.1).describe("How strongly the tester is held to the baseline"),
  // From ½ on, the rejected continuation would be preferred.
  labelSmoothing: z.number().min(0).lt(0.5).default(0).describe("Assumed share of wrong preferences"),
  lengthNormalize: z
    .boolean()
    .default(false)
    .describe("Average log-probabilities over tokens instead of summing them"),
});

export const preferenceOptions = z.strictObject({ ...marginLossOptions.shape, ...pairOptions.shape });

/**
 * What preferences take of the learning rate of policy gradients: a pair counts in full however little its two differ, and most
 * differ by little where harm is rare (docs/decisions/0200).
 */
export const PREFERENCE_RATE = 0.4;

/** How pairs of siblings are formed. */
export type PairOptions = Omit<z.input<typeof pairOptions>, "epochs">;

export type MarginLossOptions = z.input<typeof marginLossOptions>;
