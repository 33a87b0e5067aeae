import type { Conversation, Message } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";
import type { Credit, CreditTable } from "./credit.js";
import type { Graph } from "./graph.js";
import type { Sampler } from "./sampler.js";
import { Stateless } from "./state.js";
import type { System, SystemNeed } from "./system.js";

/** What an algorithm makes of one batch. */
export interface StepResult {
  /** A scalar with a gradient into the system's parameters: the mean over what `weight` counts. */
  loss: Tensor;
  /** Metrics by name, each documented on the algorithm's page. */
  logs: Record<string, number>;
  /** Nothing more is to be learned from this experience, from this batch neither: its loss is left out. */
  stop?: boolean;
}

/** Parameters that learn at a rate of their own. */
export interface LearningRateGroup {
  /** In the metric of its rate, `learning_rate/<name>`. */
  name: string;
  /** Some of the system's `parameters()`. */
  parameters: Iterable<Tensor>;
  /** In place of the training's learning rate; the schedule scales it in the same way. */
  learningRate: number;
}

/**
 * Turns graphs into losses: graph → steps (`flatten`) → once an experience (`prepare`) → batch (`collate`) → loss and
 * logs (`step`), the last two in each of `epochs` passes.
 *
 * `flatten` must reach every node of the graph, leave out those without credit, and keep nodes as they are, so that
 * subclasses of Node and the token ids behind them survive. Steps that share most of their conversation should be neighbours:
 * they are shuffled a few neighbours at a time, since a batch reads once what its steps share. `getState` is what the
 * algorithm remembers between experiences.
 */
export abstract class Algorithm<
  S = Conversation,
  A = Message,
  Step = unknown,
  Batch = unknown,
> extends Stateless {
  /** How often the steps of an experience are passed over, each time in another order. */
  readonly epochs: number = 1;
  /** What the system must be able to tell. One that cannot is refused at assembly. */
  readonly needs: readonly SystemNeed[] = [];

  constructor(readonly system: System<S, A>) {
    super();
  }

  /** Fails, with an explanation, for a sampler whose graphs this algorithm cannot learn from. Called at assembly. */
  checkSampler(_sampler: Sampler<S, A>): void {}

  /** Fails, with an explanation, for a credit that this algorithm cannot learn from. Called at assembly. */
  checkCredit(_credit: Credit<S, A>): void {}

  /** Parameters that do not learn at the training's learning rate. Asked once, at assembly. Default: none. */
  learningRates(): readonly LearningRateGroup[] {
    return [];
  }

  abstract flatten(graph: Graph<S, A>, credit: CreditTable<S, A>): Step[];

  /**
   * Called once an experience with all its steps, without gradients and before the first update: the place for what must
   * be known under the tester as it is now. Returns the steps that are learned from.
   */
  async prepare(steps: readonly Step[]): Promise<readonly Step[]> {
    return steps;
  }

  abstract collate(steps: readonly Step[]): Batch;

  /**
   * How much a batch of these steps counts in a gradient that is accumulated from several: as many as its loss is a mean
   * of. Steps by default; a loss that is a mean over tokens returns their number.
   */
  weight(steps: readonly Step[]): number {
    return steps.length;
  }

  abstract step(batch: Batch): Promise<StepResult>;

  /** What the graphs of an experience show beside the steps made of them, for the metrics of the training step. */
  graphMetrics(
    _graphs: readonly Graph<S, A>[],
    _credits: readonly CreditTable<S, A>[],
  ): Record<string, number> {
    return {};
  }
}
