/** Work done by a session, in tokens; independent of the machine. */
export class WorkCounters {
  /**
   * Given tokens (prompts, the replacement for an empty prompt, tokens passed to `read`), counted when they are
   * prefilled and again each time they have to be prefilled again.
   */
  tokensRead = 0;
  /** Sampled tokens, including end ids and tokens cut off by a stop string. */
  tokensGenerated = 0;
  /**
   * Tokens computed again: after truncation to the context window, or after a cache was evicted by the memory budget.
   * Also counted in `tokensRead`, including sampled tokens.
   */
  tokensReread = 0;
  /** All tokens that passed through the network, given or sampled, for the first time or again. */
  tokensForwarded = 0;
  /** Wasted columns: padding of shorter rows, and finished rows until the batch is compacted. */
  tokensPadded = 0;

  add(work: Partial<WorkCounts>): void {
    for (const [name, count] of Object.entries(work)) this[name as keyof WorkCounts] += count;
  }
}

export type WorkCounts = Omit<WorkCounters, "add">;
