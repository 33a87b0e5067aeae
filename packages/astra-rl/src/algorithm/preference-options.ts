import { z } from "zod";

/** The options of every algorithm that learns from pairs; a class, a loss and a configuration take their defaults here. */
export const preferenceOptions = z.strictObject({
  beta: z.number().positive().default(0.1).describe("How strongly the tester is held to the baseline"),
  labelSmoothing: z.number().min(0).lt(0.5).default(0).describe("Assumed share of wrong preferences"),
  lengthNormalize: z
    .boolean()
    .default(false)
    .describe("Average log-probabilities over tokens instead of summing them"),
  epochs: z.number().int().min(1).default(1).describe("How often the pairs of an experience are passed over"),
});

export const PREFERENCE_DEFAULTS: Readonly<z.output<typeof preferenceOptions>> = preferenceOptions.parse({});
