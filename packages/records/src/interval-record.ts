import { z } from "zod";

export const interval = z.object({
  lower: z.number(),
  upper: z.number(),
  /** Confidence level, for example 0.95. */
  confidence: z.number(),
  /** How it was computed, for example "wilson". */
  method: z.string(),
});

export type IntervalRecord = z.infer<typeof interval>;
