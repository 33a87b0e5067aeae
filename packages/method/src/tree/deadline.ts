import { AstraError } from "@astra-rl/base";

/** A call timed out. */
export class DeadlineError extends AstraError {
  override name = "DeadlineError";
}

/** Milliseconds without an answer after which `onSilence` is called. */
const SILENCE = 15_000;

/**
 * Awaits a promise with a timeout. The late call is not cancelled. While it waits, the timer keeps the process alive.
 *
 * @param milliseconds null for no timeout
 * @param where begins the message
 * @param onSilence gets a line about a call that has not answered for a while, long before the timeout
 * @throws DeadlineError on timeout
 */
export async function within<T>(
  milliseconds: number | null,
  where: string,
  promised: Promise<T>,
  onSilence: ((line: string) => void) | null = null,
): Promise<T> {
  if (milliseconds === null) return promised;
  const [soon, seconds] = [SILENCE / 1000, milliseconds / 1000];
  const notice = setTimeout(() => {
    onSilence?.(`${where}: no answer for ${soon} s; the call fails after ${seconds} s (deadline)`);
  }, SILENCE);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new DeadlineError(`${where}: gave no answer within ${seconds} s`));
    }, milliseconds);
  });
  try {
    return await Promise.race([promised, late]);
  } finally {
    clearTimeout(timer);
    clearTimeout(notice);
  }
}
