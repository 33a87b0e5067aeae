const disposed = new WeakSet<object>();

/**
 * Frees a part, where it holds anything, with whatever it is a part of: a scorer that judges for several terms of a reward
 * and stands inside other scorers is freed with the first of them. A second time does nothing.
 */
export function disposeOnce(part: { dispose?(): void }): void {
  if (disposed.has(part)) return;
  disposed.add(part);
  part.dispose?.();
}
