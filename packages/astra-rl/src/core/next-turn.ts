/**
 * Lets whatever waits be heard, such as Ctrl-C: computations are calls without a pause, and promises alone never give the
 * event loop its turn.
 */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
