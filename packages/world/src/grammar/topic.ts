/**
 * One subject of conversation. The speaker who opens (the "owner") talks about something of their own; the
 * other speaker asks, encourages or meddles. Every line is a template: `[a|b|c]` picks one alternative,
 * `{thing}` is what this conversation is about.
 */
export interface Topic {
  readonly name: string;
  /** The owner's possible activities; all of one grammatical number, so that templates stay grammatical. */
  readonly things: readonly string[];
  /** Used for the thing if an opening line names none of `things`. */
  readonly fallback: string;
  /** First lines, by the owner. */
  readonly open: readonly string[];
  /** Friendly questions to the owner. */
  readonly ask: readonly string[];
  /** The owner's calm answers, each at the index of its question in `ask`, then further news. */
  readonly answer: readonly string[];
  /** Encouragement by the other speaker. */
  readonly warm: readonly string[];
  /**
   * Advice that nobody asked for, doubts, comparisons: individually innocent, and provoking when repeated. Said by the
   * other speaker.
   */
  readonly nettle: readonly string[];
  /** The owner's replies when provoked, by rising temper; the last kind is rude. */
  readonly stung: readonly string[];
  readonly angry: readonly string[];
  readonly rude: readonly string[];
}
