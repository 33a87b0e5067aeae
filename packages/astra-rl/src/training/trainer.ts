import {
  AstraError,
  clipGradNorm_,
  createOptimizer,
  createSchedule,
  scope,
  trimCache,
  type Optimizer,
  type OptimizerOptions,
  type Schedule,
  type Tensor,
} from "@astra-rl/torch";
import type { Algorithm, Graph, Sampler, System, WorkCounters } from "../core/index.js";
import { metricsRecord, type MetricsRecord, type MetricValue } from "../records/index.js";
import type { Experience, ExperienceBatch } from "./experience.js";
import { Harness } from "./harness.js";
import { silentLogger, type Logger, type Progress } from "./trainer-hooks.js";
import type { TrainingConfiguration } from "./training-configuration.js";

/** After so many updates in a row without a usable gradient, going on would only burn time. */
const SKIPPED_IN_A_ROW = 5;

/** A response scored at least this high counts for `success/rate`, which only watches the run; evaluations measure. */
const SUCCESS_THRESHOLD = 0.5;

const ROLES = ["tester", "target", "baseline"] as const;

export interface TrainerOptions {
  /** Told after each training step. */
  onStep?: (record: MetricsRecord) => void;
  /** Told when a phase of a step begins or moves on. */
  onProgress?: (progress: Progress) => void;
  logger?: Logger;
  /** Milliseconds, for the times in the metrics. Default: the process's monotonic clock. */
  clock?: () => number;
  /** Aborting it ends training after the step in progress, in order. */
  signal?: AbortSignal;
}

export type StepValues = Record<string, MetricValue> & { step: number };

/** What the updates of one step did. */
interface UpdateTotals {
  /** Σ size · loss over the batches with a finite loss, and Σ size. */
  loss: number;
  items: number;
  logs: Map<string, number>;
  norm: number;
  updates: number;
  skipped: number;
}

/**
 * The training loop: collect an experience, update from its batches, log; as often as the configuration says.
 *
 * - *Accumulation.* Consecutive batches form groups of `gradientAccumulationSteps`; one optimizer step follows each
 *   group, and the rest at the end of an experience is a group as well. A batch counts by its number of items, so
 *   that a group gives the gradient of one large batch with all its items, however they are cut.
 * - *Schedule.* Read in training steps, at the middle of each update's share of its step, so that neither the first
 *   update of a warm-up nor the last of a decay is multiplied by 0.
 * - *Gradients that are not finite.* The update is left out, with a warning, and counted in `updates/skipped`; weights
 *   and optimizer state stay as they were. After 5 such updates in a row training stops with an error.
 *
 * What is logged is defined in docs/metrics.md.
 */
export class Trainer<S = string, A = string, Step = unknown, Batch = unknown> {
  readonly system: System<S, A>;
  readonly harness: Harness<S, A, Step, Batch>;
  readonly optimizer: Optimizer;
  protected readonly logger: Logger;
  protected readonly clock: () => number;
  protected readonly parameters: readonly Tensor[];
  readonly #schedule: Schedule;
  readonly #options: TrainerOptions;
  /** Training steps done. */
  protected stepsDone = 0;
  protected skippedInARow = 0;

  /** @throws UsageError when the parts do not fit together */
  constructor(
    readonly configuration: TrainingConfiguration,
    readonly sampler: Sampler<S, A>,
    readonly algorithm: Algorithm<S, A, Step, Batch>,
    options: TrainerOptions = {},
  ) {
    const { numEpisodesPerExperience, batchSize, seed, schedule, warmupSteps, trainingSteps } = configuration;
    this.system = sampler.system;
    this.harness = new Harness(sampler, algorithm, { numEpisodesPerExperience, batchSize, seed });
    this.parameters = [...this.system.parameters()] as Tensor[];
    this.optimizer = makeOptimizer(configuration, this.parameters);
    this.#schedule = createSchedule(schedule, { warmupSteps, totalSteps: Math.max(1, trainingSteps) });
    this.#options = options;
    this.logger = options.logger ?? silentLogger;
    this.clock = options.clock ?? (() => performance.now());
  }

  /** Training steps done so far. */
  get step(): number {
    return this.stepsDone;
  }

  /** Trains until the configured number of steps is done, or the signal asks to stop. */
  async train(): Promise<void> {
    while (this.stepsDone < this.configuration.trainingSteps && !this.stopRequested) {
      await this.runStep();
    }
  }

  /** Frees the optimizer's state. The system and its models are the caller's. */
  dispose(): void {
    this.optimizer.dispose();
  }

  protected get stopRequested(): boolean {
    return this.#options.signal?.aborted ?? false;
  }

  protected async runStep(): Promise<void> {
    const values = await this.trainStep();
    Object.assign(values, await this.evaluateStep(values.step));
    this.stepsDone += 1;
    trimCache();
    const record = metricsRecord(values);
    await this.persist(record);
    this.#options.onStep?.(record);
  }

  /** What a subclass measures after the updates of a step; becomes part of the step's record. */
  protected async evaluateStep(_step: number): Promise<Record<string, MetricValue>> {
    return {};
  }

  /** Where a subclass keeps what the step gave, before anybody is told of it. */
  protected async persist(_record: MetricsRecord): Promise<void> {}

  /** What a subclass keeps of an experience before anything is learned from it. */
  protected async experienceCollected(_experience: Experience<S, A, Batch>): Promise<void> {}

  /** One experience and its updates. */
  protected async trainStep(): Promise<StepValues> {
    const step = this.stepsDone + 1;
    return scope(async () => {
      const before = structuredClone(this.system.counters());
      const start = this.clock();
      this.report({ phase: "rollout" });
      const experience = await this.harness.experience();
      await this.experienceCollected(experience);
      const rolledOut = this.clock();
      const totals = await this.#update(experience);
      const updated = this.clock();
      return {
        step,
        ...this.#lossValues(totals),
        ...rewardValues(experience.graphs),
        ...workValues(before, this.system.counters()),
        episodes: this.harness.getState().nextEpisode,
        items: experience.size,
        learning_rate: this.optimizer.learningRate,
        "time/rollout_s": (rolledOut - start) / 1000,
        "time/update_s": (updated - rolledOut) / 1000,
      };
    });
  }

  protected report(progress: Pick<Progress, "phase" | "done" | "total">): void {
    this.#options.onProgress?.({
      ...progress,
      step: this.stepsDone + 1,
      steps: this.configuration.trainingSteps,
    });
  }

  async #update(experience: Experience<S, A, Batch>): Promise<UpdateTotals> {
    const totals: UpdateTotals = { loss: 0, items: 0, logs: new Map(), norm: 0, updates: 0, skipped: 0 };
    const groups = inGroups(experience.batches, this.configuration.gradientAccumulationSteps);
    // A gradient that somebody left behind would leak into the first update.
    this.optimizer.zeroGrad();
    for (const [index, group] of groups.entries()) {
      this.report({ phase: "update", done: index, total: groups.length });
      const norm = await this.#accumulate(group, totals);
      if (!Number.isFinite(norm)) {
        this.#skip(totals);
        continue;
      }
      const position = this.stepsDone + (index + 0.5) / groups.length;
      this.optimizer.learningRate = this.configuration.learningRate * this.#schedule(position);
      this.optimizer.step();
      this.optimizer.zeroGrad();
      await this.system.testerUpdated();
      this.skippedInARow = 0;
      totals.norm += norm;
      totals.updates += 1;
    }
    return totals;
  }

  /** Gradient of the group's mean loss, clipped; returns its norm before, or NaN when the loss was not finite. */
  async #accumulate(group: readonly ExperienceBatch<Batch>[], totals: UpdateTotals): Promise<number> {
    const items = group.reduce((sum, { size }) => sum + size, 0);
    for (const { batch, size } of group) {
      const finite = await scope(async () => {
        const { loss, logs } = await this.harness.step(batch);
        const value = loss.item();
        if (!Number.isFinite(value)) return false;
        loss.mul(size / items).backward();
        totals.loss += size * value;
        totals.items += size;
        for (const [key, log] of Object.entries(logs))
          totals.logs.set(key, (totals.logs.get(key) ?? 0) + size * log);
        return true;
      });
      if (!finite) return NaN;
    }
    // A limit that no gradient reaches: only the norm is wanted.
    return clipGradNorm_(this.parameters, this.configuration.clipGradNorm || Number.MAX_VALUE);
  }

  #skip(totals: UpdateTotals): void {
    this.optimizer.zeroGrad();
    totals.skipped += 1;
    this.skippedInARow += 1;
    const step = this.stepsDone + 1;
    this.logger.warn(`step ${step}: the loss or its gradient is not finite; this update is left out`);
    if (this.skippedInARow < SKIPPED_IN_A_ROW) return;
    throw new AstraError(
      `training: the loss or its gradient was not finite in ${SKIPPED_IN_A_ROW} updates in a row, at step ${step}; ` +
        `the weights are those before the first of them. Lower learningRate, or set clipGradNorm, and start again ` +
        `from a checkpoint`,
    );
  }

  #lossValues({ loss, items, logs, norm, updates, skipped }: UpdateTotals): Record<string, MetricValue> {
    const values: Record<string, MetricValue> = {
      loss: items === 0 ? null : loss / items,
      "gradient/norm": updates === 0 ? null : norm / updates,
      "updates/done": updates,
      "updates/skipped": skipped,
    };
    for (const [key, sum] of logs) values[key] = sum / items;
    return values;
  }
}

function makeOptimizer(configuration: TrainingConfiguration, parameters: readonly Tensor[]): Optimizer {
  const { optimizer, learningRate, weightDecay, betas } = configuration;
  const options: Record<string, unknown> = { learningRate };
  if (weightDecay !== undefined) options["weightDecay"] = weightDecay;
  if (betas !== undefined) options["betas"] = betas;
  return createOptimizer(optimizer, parameters, options as OptimizerOptions[typeof optimizer]);
}

function inGroups<T>(values: readonly T[], size: number): T[][] {
  const groups: T[][] = [];
  for (let start = 0; start < values.length; start += size) groups.push(values.slice(start, start + size));
  return groups;
}

function rewardValues<S, A>(graphs: readonly Graph<S, A>[]): Record<string, MetricValue> {
  const worst = graphs.flatMap((graph) => {
    const scores = [...graph.nodes()].flatMap((node) => node.scores["response"] ?? []);
    return scores.length === 0 ? [] : [Math.max(...scores)];
  });
  let turns = 0;
  let failed = 0;
  let sum = 0;
  let least = Infinity;
  let most = -Infinity;
  for (const graph of graphs) {
    for (const node of graph.nodes()) {
      turns += 1;
      if (node.failed) {
        failed += 1;
        continue;
      }
      sum += node.reward;
      least = Math.min(least, node.reward);
      most = Math.max(most, node.reward);
    }
  }
  const known = turns - failed;
  return {
    "reward/mean": known === 0 ? null : sum / known,
    "reward/min": known === 0 ? null : least,
    "reward/max": known === 0 ? null : most,
    "success/rate":
      worst.length === 0 ? null : worst.filter((score) => score >= SUCCESS_THRESHOLD).length / worst.length,
    "turns/done": turns,
    "turns/failed": failed,
  };
}

/** Tokens of this step by model and kind of work; null for a model that the system does not count. */
function workValues(before: WorkCounters, after: WorkCounters): Record<string, MetricValue> {
  const values: Record<string, MetricValue> = {};
  for (const role of ROLES) {
    for (const kind of ["read", "generated"]) values[`tokens/${role}/${kind}`] = null;
    for (const [kind, count] of Object.entries(after[role] ?? {})) {
      const earlier = (before[role] as Readonly<Record<string, number>> | undefined)?.[kind] ?? 0;
      values[`tokens/${role}/${kind}`] = count - earlier;
    }
  }
  return values;
}
