/** Who decides on how many threads operators run: the user, else the largest model in use. */
import { allowedProcessors } from "./control-groups.js";
import { UsageError } from "./errors.js";
import { addon } from "./native.js";
import type { Tensor } from "./tensor.js";
import { computingCores, mostThreads, namedThreads } from "./threads.js";

/**
 * Parameters below which a second thread waits more than it works: measured on two cores, models of 1 to 21 million
 * parameters (docs/performance.md).
 */
const WORTH_THREADS = 2e6;

/** The models in use, with the number of their parameters. */
const inUse = new Set<{ size: number }>();
let chosen = false;

/** Threads that one operator may use. */
export function threads(): number {
  return addon().threads();
}

/**
 * From here on operators use so many threads, whatever models are in use. Null: the engine decides again.
 *
 * @throws UsageError for more than can be of use on this machine
 */
export function setThreads(count: number | null): void {
  if (count !== null && count > mostThreads()) {
    throw new UsageError(`setThreads: threads must be at most ${mostThreads()} here, got ${count}`);
  }
  if (count !== null) addon().setThreads(count);
  chosen = count !== null;
  decide();
}

/**
 * Tells that work with a model of these parameters goes on until the returned function is called. As long
 * as all models in use are too small to gain from more, operators use one thread; with a larger one, or with none, as
 * many as the process may use. A number that the user chose, with `setThreads` or OMP_NUM_THREADS, stays.
 *
 * It is the largest that counts, not the one that computes at the moment: what a model gives then depends on the models
 * of the run only, not on the order in which they compute.
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
  // libtorch gives up compiled kernels when it is told.
  if (count !== native.threads()) native.setThreads(count);
}
