/** Number of threads for operators: set by the user, else by the largest model in use. */
import { UsageError } from "@astra-rl/base";
import { allowedProcessors } from "./control-groups.js";
import { addon } from "./native.js";
import type { Tensor } from "./tensor.js";
import { computingCores, mostThreads, namedThreads } from "./threads.js";

/**
 * Parameters below which a second thread costs more in waiting than it gains: measured on two cores, models of 1 to 21
 * million parameters (docs/performance.md).
 */
const WORTH_THREADS = 2e6;

/** The models in use, with their numbers of parameters. */
const inUse = new Set<{ size: number }>();
let chosen = false;

/** Threads that one operator may use. */
export function threads(): number {
  return addon().threads();
}

/**
 * Sets the number of threads for operators, whatever models are in use. Null: the engine decides again.
 *
 * @throws UsageError for more than `mostThreads()`
 */
export function setThreads(count: number | null): void {
  if (count !== null && count > mostThreads()) {
    throw new UsageError(
      "out-of-range",
      `setThreads: threads must be at most ${mostThreads()} here, got ${count}`,
    );
  }
  if (count !== null) addon().setThreads(count);
  chosen = count !== null;
  decide();
}

/**
 * Registers a model with these parameters as in use until the returned function is called. While all models in use are
 * too small to gain from more threads, operators use one; otherwise, or without any models, as many as the process may
 * use. A number set by the user, with `setThreads` or OMP_NUM_THREADS, takes precedence.
 *
 * The largest model in use decides, not the one currently computing: results then depend only on the models of the run,
 * not on the order in which they compute.
 */
export function claimThreads(parameters: readonly Tensor[]): () => void {
  const size = parameters.reduce((sum, each) => sum + (each.device === "cpu" ? each.numel() : 0), 0);
  if (size === 0) return () => {};
  const claim = { size };
  inUse.add(claim);
  decide();
  return () => {
    if (inUse.delete(claim)) decide();
  };
}

function decide(): void {
  if (chosen || namedThreads(process.env) !== null) return;
  const native = addon();
  const small = inUse.size > 0 && [...inUse].every(({ size }) => size < WORTH_THREADS);
  const count = small ? 1 : computingCores(allowedProcessors());
  // Setting the number makes libtorch discard compiled kernels, so it is set only when it changes.
  if (count !== native.threads()) native.setThreads(count);
}
