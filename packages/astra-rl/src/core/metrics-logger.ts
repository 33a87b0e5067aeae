import type { Json } from "./state.js";

/** The values of one training step, as in metrics.jsonl; null for a number that is not known. */
export type LoggedValues = Readonly<Record<string, number | string | boolean | null>>;

/** The run whose steps are logged. */
export interface LoggedRun {
  /** Where the run keeps its files; null where it keeps none. */
  folder: string | null;
  /** The next step: 1, or where a resumed run goes on. */
  nextStep: number;
  /** What the run was started with. */
  configuration: Json;
}

/**
 * Where the values of training steps go besides metrics.jsonl. Steps come in order, each once in a process; a resumed run
 * computes the steps since its last checkpoint again, with the same values, and a logger that keeps what it was given in
 * an earlier process leaves those out.
 *
 * What a logger throws never ends training: it is said once, and the logger is asked again at later steps. A UsageError
 * of `open` does, since nothing has been computed yet.
 */
export interface MetricsLogger {
  /** In messages. */
  readonly name: string;
  /** Training begins; asked again at a later step where it failed. */
  open(run: LoggedRun): void | Promise<void>;
  log(step: number, values: LoggedValues): void | Promise<void>;
  /** Training ends, for whatever reason; only after `open`. */
  close(outcome: "finished" | "failed"): void | Promise<void>;
}
