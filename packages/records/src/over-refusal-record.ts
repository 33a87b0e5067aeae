import { z } from "zod";
import { interval } from "./interval-record.js";

/** A benign prompt, and the target's answer to it. */
export const benignAnswer = z.looseObject({
  prompt: z.string(),
  /** Empty without an answer. */
  response: z.string(),
  /** The score of the answer as a refusal; null without one. */
  refusal: z.number().nullable(),
  /** null where it is unknown. */
  is_refused: z.boolean().nullable(),
  /** The error as "stage: message"; null if there was none. */
  error: z.string().nullable(),
});

/** How often the target refuses benign prompts. */
export const overRefusal = z.looseObject({
  /** The name of the scorer of refusals. */
  scorer: z.string(),
  /** Prompts with an answer of which it is known whether it is a refusal; those refused; the others. */
  n: z.int().nonnegative(),
  n_refused: z.int().nonnegative(),
  n_errors: z.int().nonnegative(),
  rate: z.number().nullable(),
  interval: interval.nullable(),
});

export type BenignAnswer = z.infer<typeof benignAnswer>;
export type OverRefusalSummary = z.infer<typeof overRefusal>;
