import { AstraError, NotFiniteError, TorchError, UsageError } from "@astra-rl/torch";
import { Message } from "@astra-rl/lm";
import { z } from "zod";
import { ContractError } from "./checks.js";
import { DeadlineError } from "./within.js";

const NEVER_DATA = [UsageError, TorchError, NotFiniteError, ContractError, ReferenceError];

/**
 * Why a server gave no answer: its content filter, reasoning without an answer, an invalid answer, an error status, no
 * connection, or a timeout.
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

/** Thrown by a call that was already retried: its failure is recorded as is, without further attempts. */
export class RecordedFailure extends AstraError {
  override name = "RecordedFailure";

  constructor(
    message: string,
    readonly failure: Failure,
  ) {
    super(message);
  }
}

/** Retry policy of a call. */
export interface RetryOptions {
  /** Total number of attempts. Default 3. */
  attempts?: number;
  /** Delay before the second attempt, in milliseconds; doubles with each further attempt. Default 0. */
  delay?: number;
  /** Replaces the timer, for tests and for callers with their own clock. */
  sleep?: (milliseconds: number) => Promise<void>;
}

/**
 * True for errors of external parts (a server, a scorer), which may be recorded as data. False for wrong usage, failed
 * operators and our own bugs, which must stop the run.
 */
export function isRecordable(error: unknown): boolean {
  if (NEVER_DATA.some((kind) => error instanceof kind)) return false;
  return !(error instanceof AstraError && error.message.startsWith("internal:"));
}

/** Message of any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Result of a call; `late` if it timed out. */
export type Attempt<T> =
  { value: T; failure: null; late?: undefined } | { value?: undefined; failure: Failure; late?: true };

const wait = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));

/**
 * Calls until it succeeds or the attempts are used up.
 *
 * @returns the value, or the failure of the last attempt; a call that timed out is not retried. Throws only errors for
 * which `isRecordable` is false.
 */
export async function attempt<T>(
  stage: Failure["stage"],
  call: () => Promise<T>,
  { attempts = 3, delay = 0, sleep = wait }: RetryOptions = {},
): Promise<Attempt<T>> {
  for (let tried = 1; ; tried++) {
    try {
      return { value: await call(), failure: null };
    } catch (error) {
      if (error instanceof RecordedFailure) return { failure: error.failure };
      if (!isRecordable(error)) throw error;
      if (error instanceof DeadlineError) {
        return { failure: { stage, message: messageOf(error), attempts: tried }, late: true };
      }
      if (tried >= attempts) return { failure: { stage, message: messageOf(error), attempts: tried } };
      if (delay > 0) await sleep(delay * 2 ** (tried - 1));
    }
  }
}

/**
 * One result per row of a batched call: all rows at once, and if that keeps failing, row by row, so that a bad row
 * fails alone.
 *
 * @param call takes row indices and returns results in the same order
 */
export async function attemptRows<T>(
  stage: Failure["stage"],
  rows: number,
  call: (rows: readonly number[]) => Promise<readonly T[]>,
  retry?: RetryOptions,
): Promise<Attempt<T>[]> {
  if (rows === 0) return [];
  const all = Array.from({ length: rows }, (_, row) => row);
  const batch = await attempt(stage, () => call(all), retry);
  if (batch.failure === null) return batch.value.map((value) => ({ value, failure: null }));
  if (rows === 1) return [batch];
  const results: Attempt<T>[] = [];
  for (const row of all) {
    const single = await attempt(stage, () => call([row]), retry);
    results.push(single.failure === null ? { value: single.value[0]!, failure: null } : single);
  }
  return results;
}

/**
 * Placeholder for the message of a failed model call. Reading its text throws the failure, so that no override can
 * mistake it for an empty response.
 */
export class FailedMessage extends Message {
  declare readonly failure: Failure;

  constructor(from: "tester" | "target", failure: Failure) {
    super(from, "");
    Object.defineProperties(this, {
      failure: { value: failure, enumerable: true },
      text: {
        get(): never {
          throw new RecordedFailure(`${failure.stage}: ${failure.message}`, failure);
        },
      },
    });
    Object.freeze(this);
  }
}
