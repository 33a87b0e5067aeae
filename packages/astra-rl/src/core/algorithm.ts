import type { Graph } from "./graph.js";
import type { Sampler } from "./sampler.js";
import type { System } from "./system.js";
import type { Tensor } from "@astra-rl/torch";

/** What an algorithm makes of one batch. */
export interface StepResult {
  /** A scalar with a gradient into the system's parameters. */
  loss: Tensor;
  /** Metrics by name, each documented on the algorithm's page. */
  logs: Record<string, number>;
}

/**
 * Turns graphs into losses: graph → steps (`flatten`) → batch (`collate`) → loss and logs (`step`).
 *
 * `flatten` must reach every node of the graph, leave out failed ones, and keep nodes as they are, so that
 * subclasses of Node and the token ids behind them survive.
 */
export abstract class Algorithm<S = string, A = string, Step = unknown, Batch = unknown> {
  constructor(readonly system: System<S, A>) {}

  /** Fails, with an explanation, for a sampler whose graphs this algorithm cannot learn from. Called at assembly. */
  checkSampler(_sampler: Sampler<S, A>): void {}

  abstract flatten(graph: Graph<S, A>): Step[];
  abstract collate(steps: readonly Step[]): Batch;
  abstract step(batch: Batch): Promise<StepResult>;
}
