import type { Conversation, Message } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";
import { Stateless, type Credit, type CreditTable, type Graph } from "../tree/index.js";
import type { Sampler } from "../sampler/index.js";
import type { System, SystemNeed } from "../system/index.js";

/** Result of an algorithm's step on one batch. */
export interface StepResult {
  /** A scalar with a gradient into the system's parameters: the mean over the items that `weight` counts. */
  loss: Tensor;
  /** Metrics by name, each documented on the algorithm's page in the docs. */
  logs: Record<string, number>;
  /**
   * Stop training on this experience; this batch's loss is discarded, too. A number decides for a batch that several
   * processes share: the weighted mean over their shares.
   */
  stop?: boolean | StopRule;
}

/** Stops where the mean of `value`, weighted by `weight`, exceeds `limit`. */
export interface StopRule {
  value: number;
  weight: number;
  limit: number;
}

/** Parameters with a separate learning rate. */
export interface LearningRateGroup {
  /** Its learning rate is logged as `learning_rate/<name>`. */
  name: string;
  /** Some of the system's `parameters()`. */
  parameters: Iterable<Tensor>;
  /** Replaces the training's learning rate; the schedule scales it in the same way. */
  learningRate: number;
}

/**
 * Turns graphs into losses: graph → steps (`flatten`) → once per experience (`prepare`) → batch (`collate`) → loss and
 * logs (`step`), the last two in each of `epochs` passes.
 *
 * `flatten` must visit every node, leave out those without credit, and keep node objects, so that subclasses of Node
 * and their token ids survive. Steps that share a long prefix should be adjacent: shuffling keeps small groups of
 * neighbors together, since a batch computes shared prefixes once. `getState` returns the algorithm's state between
 * experiences.
 */
export abstract class Algorithm<
  S = Conversation,
  A = Message,
  Step = unknown,
  Batch = unknown,
> extends Stateless {
  /** Passes over the steps of an experience, each in a new order. */
  readonly epochs: number = 1;
  /** Required capabilities; a system without them is refused at assembly. */
  readonly needs: readonly SystemNeed[] = [];

  constructor(readonly system: System<S, A>) {
    super();
  }

  /** Throws, with an explanation, for a sampler whose graphs this algorithm cannot learn from. Called at assembly. */
  checkSampler(_sampler: Sampler<S, A>): void {}

  /** Throws, with an explanation, for a credit that this algorithm cannot learn from. Called at assembly. */
  checkCredit(_credit: Credit<S, A>): void {}

  /** Parameters with a separate learning rate. Called once, at assembly. Default: none. */
  learningRates(): readonly LearningRateGroup[] {
    return [];
  }

  abstract flatten(graph: Graph<S, A>, credit: CreditTable<S, A>): Step[];

  /**
   * Called once per experience with all its steps, without gradients and before the first update, to compute what
   * depends on the tester before it changes. Returns the steps to train on.
   */
  async prepare(steps: readonly Step[]): Promise<readonly Step[]> {
    return steps;
  }

  abstract collate(steps: readonly Step[]): Batch;

  /**
   * Weight of a batch of these steps in gradient accumulation: the number of items that its loss averages over.
   * Default: the number of steps; a loss averaged over tokens returns their number.
   */
  weight(steps: readonly Step[]): number {
    return steps.length;
  }

  abstract step(batch: Batch): Promise<StepResult>;

  /** Additional metrics of an experience's graphs, for the log of the training step. */
  graphMetrics(
    _graphs: readonly Graph<S, A>[],
    _credits: readonly CreditTable<S, A>[],
  ): Record<string, number> {
    return {};
  }
}
