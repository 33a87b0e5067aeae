import type { Json } from "@astra-rl/base";

/** The values of one training step, as in metrics.jsonl; null for an unknown number. */
export type LoggedValues = Readonly<Record<string, number | string | boolean | null>>;

/** The run whose steps are logged. */
export interface LoggedRun {
  /** The run's folder; null if it writes no files. */
  folder: string | null;
  /** The next step: 1, or the step at which a resumed run continues. */
  nextStep: number;
  /** The run's configuration. */
  configuration: Json;
}

/**
 * A destination for the values of training steps besides metrics.jsonl. Steps come in order, each once per process. A
 * resumed run recomputes the steps since its last checkpoint with the same values; a logger that kept them from an
 * earlier process skips these.
 *
 * An error from a logger does not end training: it is reported once, and the logger is called again at later steps.
 * Only a UsageError from `open` does, since nothing has been computed yet.
 */
export interface MetricsLogger {
  /** Used in messages. */
  readonly name: string;
  /** Called when training begins; retried at later steps after a failure. */
  open(run: LoggedRun): void | Promise<void>;
  log(step: number, values: LoggedValues): void | Promise<void>;
  /** Called when training ends for any reason; only after `open`. */
  close(outcome: "finished" | "failed"): void | Promise<void>;
}
