/** Work done by a session, in tokens: independent of the machine. */
export class WorkCounters {
  /**
   * Tokens that were given (prompts, the token that stands in for an empty one, what `read` was given), counted when
   * the model reads them, and once more whenever it has to read them again.
   */
  tokensRead = 0;
  /** Tokens that were sampled, end ids and tokens cut off by a stop string included. */
  tokensGenerated = 0;
  /**
   * The part of the work that was done before: after text was dropped at the left of a full window, after a cache was
   * given up for the sake of the memory budget. Counted in `tokensRead` too, sampled tokens included.
   */
  tokensReread = 0;
  /** Every token that passed through the network, given or sampled, again or for the first time. */
  tokensForwarded = 0;
  /** Columns computed in vain: padding of shorter rows, and finished rows until the batch shrinks. */
  tokensPadded = 0;

  add(work: Partial<WorkCounts>): void {
    this.tokensRead += work.tokensRead ?? 0;
    this.tokensGenerated += work.tokensGenerated ?? 0;
    this.tokensReread += work.tokensReread ?? 0;
    this.tokensForwarded += work.tokensForwarded ?? 0;
    this.tokensPadded += work.tokensPadded ?? 0;
  }
}

export type WorkCounts = Omit<WorkCounters, "add">;
