import { z } from "zod";

/** What every algorithm that learns from pairs can be told of them, and how often it passes over them. */
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

/** The options of the losses on a margin over the baseline; a class, a loss and a configuration take their defaults here. */
export const preferenceOptions = z.strictObject({
  beta: z.number().positive().default(0.1).describe("How strongly the tester is held to the baseline"),
  labelSmoothing: z.number().min(0).lt(0.5).default(0).describe("Assumed share of wrong preferences"),
  lengthNormalize: z
    .boolean()
    .default(false)
    .describe("Average log-probabilities over tokens instead of summing them"),
  ...pairOptions.shape,
});

export const PREFERENCE_DEFAULTS: Readonly<z.output<typeof preferenceOptions>> = preferenceOptions.parse({});

/** Which pairs of siblings are compared. */
export type PairOptions = Omit<z.input<typeof pairOptions>, "epochs">;

/** The options of a loss on the margin over a baseline. */
export type MarginLossOptions = Pick<
  z.input<typeof preferenceOptions>,
  "beta" | "labelSmoothing" | "lengthNormalize"
>;
