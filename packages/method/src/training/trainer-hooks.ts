/** Receives a trainer's messages to the user, one line per call. */
export interface Logger {
  info(message: string): void;
  warn(message: string): void;
}

/** Progress of a trainer, for display. */
export interface Progress {
  phase: "rollout" | "update" | "evaluate";
  /** The current training step, from 1. */
  step: number;
  /** Training steps of the whole run. */
  steps: number;
  /** Updates or evaluation rollouts completed in this phase, out of `total`. */
  done?: number;
  total?: number;
}

/** Without a logger, only warnings are shown: a run that saves nothing, or skips updates, must not go unnoticed. */
export const warningsLogger: Logger = {
  info: () => {},
  warn: (message) => process.stderr.write(`${message}\n`),
};
