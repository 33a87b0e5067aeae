import { z } from "zod";

export const likelihoodSchema = z.object({
  /** Mean −log P per probe token, in nats; null for an empty probe. */
  nll: z.number().nullable(),
  /** Σ log P over the probe's tokens, in nats; 0 for an empty probe. */
  total: z.number(),
  /** Number of the target's tokens in the probe. */
  tokens: z.int().nonnegative(),
});

/** Likelihood of a probe after its context, under the target. */
export type Likelihood = z.infer<typeof likelihoodSchema>;

/**
 * Why a server gave no answer: its content filter, reasoning without an answer, an answer that is none, an error status, no
 * connection, or no answer in time.
 */
export const failureCause = z.enum(["filtered", "reasoning", "answer", "status", "connection", "timeout"]);
export type FailureCause = z.infer<typeof failureCause>;

export const failureSchema = z.object({
  /** Stage whose call failed. */
  stage: z.enum(["tester", "target", "scorer", "likelihood", "reward"]),
  /** The last error's message. */
  message: z.string(),
  /** Number of attempts. */
  attempts: z.int().nonnegative(),
  /** Absent for a failure of a part in this process. */
  cause: failureCause.optional(),
});

/** A call that failed after its retries, kept as data alongside the successful results. */
export type Failure = z.infer<typeof failureSchema>;

export const RESPONSE_NOTES = ["refused", "unfiltered", "unfinished"] as const;

/**
 * What a server says about its answer. refused: the answer is marked as a refusal. unfiltered: the content filter failed, so
 * that the answer was not filtered. unfinished: it ended at its maximum length.
 */
export type ResponseNote = (typeof RESPONSE_NOTES)[number];
