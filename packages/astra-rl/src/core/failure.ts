import { AstraError, NotFiniteError, TorchError, UsageError } from "@astra-rl/torch";
import { Message } from "@astra-rl/lm";
import { z } from "zod";
import { ContractError } from "./checks.js";
import { DeadlineError } from "./within.js";

const NEVER_DATA = [UsageError, TorchError, NotFiniteError, ContractError, ReferenceError];

export const failureSchema = z.object({
  /** Whose call failed. */
  stage: z.enum(["tester", "target", "scorer", "likelihood", "reward"]),
  /** The last error's message. */
  message: z.string(),
  /** How often the call was tried. */
  attempts: z.int().nonnegative(),
});

/** A call that did not succeed after its retries, kept as data beside the results that did. */
export type Failure = z.infer<typeof failureSchema>;

/** Thrown by a call that has been repeated already: the failure is data as it stands, and the call is not tried again. */
export class RecordedFailure extends AstraError {
  override name = "RecordedFailure";

  constructor(
    message: string,
    readonly failure: Failure,
  ) {
    super(message);
  }
}

/** How a call that may fail is repeated. */
export interface RetryOptions {
  /** Tries in all, the first included. Default 3. */
  attempts?: number;
  /** Wait before the second try, in milliseconds; doubles with each further try. Default 0. */
  delay?: number;
  /** Replaces the waiting, for tests and for callers that have a clock of their own. */
  sleep?: (milliseconds: number) => Promise<void>;
}

/**
 * True for errors that say something about the outside world (a server, a scorer) rather than about the caller
 * or about us. Only these may become data; wrong usage, failed operators and our own bugs must stop the run.
 */
export function isRecordable(error: unknown): boolean {
  if (NEVER_DATA.some((kind) => error instanceof kind)) return false;
  return !(error instanceof AstraError && error.message.startsWith("internal:"));
}

/** Readable text of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** What came of a call. */
/** `late`: nobody answered in time. */
export type Attempt<T> =
  { value: T; failure: null; late?: undefined } | { value?: undefined; failure: Failure; late?: true };

const wait = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));

/**
 * Calls until it succeeds or the tries are used up.
 *
 * @returns the value, or the failure of the last try, which is not repeated where it was late; throws only what `isRecordable` refuses.
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
 * One result for each row of a call that takes any number of them: of all at once, and where that keeps failing, row by
 * row, so that one bad row costs only itself.
 *
 * @param call is given the numbers of rows, and answers in their order
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
 * What a model that failed has said in place of a message: nothing. Reading its text throws the failure, so that no
 * override can take it for an empty answer.
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
