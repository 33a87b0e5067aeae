const disposed = new WeakSet<object>();

/**
 * Disposes of a part unless it was already disposed of. Parts may be shared: a scorer used by several reward terms or
 * inside other scorers is freed with the first of its owners.
 */
export function disposeOnce(part: { dispose?(): void }): void {
  if (disposed.has(part)) return;
  disposed.add(part);
  part.dispose?.();
}

/** Creates an object that owns a part; frees the part if that fails. */
export async function disposing<T>(part: { dispose(): void }, make: () => T | Promise<T>): Promise<T> {
  try {
    return await make();
  } catch (error) {
    part.dispose();
    throw error;
  }
}
