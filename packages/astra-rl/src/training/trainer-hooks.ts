/** Where a trainer says in words what a user should know. Each call is one line. */
export interface Logger {
  info(message: string): void;
  warn(message: string): void;
}

/** What a trainer is doing, for a progress display. */
export interface Progress {
  phase: "rollout" | "update" | "evaluate";
  /** The training step in progress, from 1. */
  step: number;
  /** Training steps of the whole run. */
  steps: number;
  /** Parts of the phase that are done, out of `total`; updates or evaluation rollouts. */
  done?: number;
  total?: number;
}

export const silentLogger: Logger = { info: () => {}, warn: () => {} };
