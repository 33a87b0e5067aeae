import { AstraError } from "@astra-rl/torch";

/** A call timed out. */
export class DeadlineError extends AstraError {
  override name = "DeadlineError";
}

/**
 * Awaits a promise with a timeout. The late call is not cancelled. While it waits, the timer keeps the process alive.
 *
 * @param milliseconds null for no timeout
 * @param where begins the message
 * @throws DeadlineError on timeout
 */
export async function within<T>(
  milliseconds: number | null,
  where: string,
  promised: Promise<T>,
): Promise<T> {
  if (milliseconds === null) return promised;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new DeadlineError(`${where}: gave no answer within ${milliseconds / 1000} s`));
    }, milliseconds);
  });
  try {
    return await Promise.race([promised, late]);
  } finally {
    clearTimeout(timer);
  }
}
