/**
 * Yields to the event loop, so that pending events such as Ctrl-C are handled: computations block it, and awaiting
 * promises alone never yields.
 */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
