import { AstraError } from "@astra-rl/torch";

/** Somebody did not answer in time. */
export class DeadlineError extends AstraError {
  override name = "DeadlineError";
}

/**
 * What was promised, unless it takes longer. What is late is not stopped, only waited for no longer; as long as it is
 * waited for, the process stays, even where nothing else would keep it.
 *
 * @param milliseconds null: however long it takes
 * @param where begins the message
 * @throws DeadlineError when it is late
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
