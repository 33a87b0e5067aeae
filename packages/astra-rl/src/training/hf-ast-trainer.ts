import { existsSync } from "node:fs";
import { join } from "node:path";
import { emptyCache, UsageError, writeFileAtomic } from "@astra-rl/torch";
import { z } from "zod";
import { functionOption, objectOption, parseOptions } from "../options/index.js";
import type {
  Algorithm,
  Evaluator,
  Graph,
  Json,
  Node,
  Sampler,
  Message,
  Conversation,
} from "../core/index.js";
import {
  EVALUATION_VERSION,
  stringifyGraph,
  stringifyMetrics,
  type EvaluationDetail,
  type EvaluationSummary,
  type MetricsRecord,
  type MetricValue,
  type TokensRecord,
} from "../records/index.js";
import type { Experience } from "./experience.js";
import { HFASTConfiguration } from "./hf-ast-configuration.js";
import { withMemoryAdvice } from "./memory-advice.js";
import {
  JOURNALS,
  noCheckpoint,
  readResumableState,
  RunDirectory,
  type RunLock,
  type RunSettings,
  type TrainerState,
} from "../run/index.js";
import { trainingSettings } from "./run-settings.js";
import {
  computeTypesOf,
  loadGradients,
  loadOptimizer,
  restoreTester,
  saveDigests,
  saveGradients,
  saveState,
  saveTester,
} from "./trainer-state.js";
import { requireConfiguration } from "./training-configuration.js";
import { Trainer, TRAINER_ADVICE, trainerOptions, type TrainerOptions } from "./trainer.js";

/** Evaluation rollouts are numbered from here, far from any training episode, so that they share no draw with one. */
const EVALUATION_EPISODE = 2 ** 40;

/** "auto" saves when the time since the last checkpoint is so many times what writing it took. */
const AUTO_SHARE = 20;

/** What the trainer reads of an evaluation, and keeps in evaluations.jsonl. */
export interface EvaluationReport {
  summary: EvaluationSummary;
  /** The conversations; none where the evaluator gives only numbers. */
  details?: readonly EvaluationDetail[];
}

/** What a system may offer so that training graphs are kept with their token ids (`keepTokens`). */
export interface TokenTeller<S = Conversation, A = Message> {
  /** The ids behind a turn; null for a turn that the system did not make. */
  tokensOf(node: Node<S, A>): TokensRecord | null;
}

export interface HFASTTrainerOptions<S = Conversation, A = Message> extends TrainerOptions<S, A> {
  /** Evaluates the tester on the dev prompts; without it there are no evaluations and no `checkpoints/best`. */
  evaluator?: Evaluator<S, A, EvaluationReport>;
  /** Folder for metrics.jsonl and checkpoints; without it nothing is written. */
  runDirectory?: string;
  /** Go on from `checkpoints/last` of the run directory. @default false */
  resume?: boolean;
  /** Gives the lock of the run directory where the caller holds it when training begins. Default: taken by `train`. */
  lock?: () => RunLock;
  /** What must be the same for a run to go on. Default: the training configuration. */
  settings?: RunSettings;
}

const hfASTTrainerOptions = z.strictObject({
  ...trainerOptions.shape,
  evaluator: objectOption<Evaluator<never, never, EvaluationReport>>(
    "must be an Evaluator (an object with the method evaluate)",
    "evaluate",
  ).optional(),
  runDirectory: z.string().min(1).optional(),
  resume: z.boolean().default(false),
  lock: functionOption<() => RunLock>().optional(),
  settings: objectOption<RunSettings>(
    "must be settings of a run (record, and the method changes)",
    "changes",
  ).optional(),
});

/** Names of the Python toolbox. */
const ADVICE = {
  ...TRAINER_ADVICE,
  devPrompts: "give evaluator: new ASTEvaluator(sampler, prompts)",
  evalEvery: "that is new HFASTConfiguration({ evaluateEvery })",
  evaluateEvery: "that is new HFASTConfiguration({ evaluateEvery })",
  ckptDir: "give runDirectory",
};

/**
 * A trainer that evaluates on dev prompts, keeps its best and last tester, writes its metrics, and goes on exactly
 * where it was stopped.
 *
 * After each step, in this order: evaluation where it is due (and `checkpoints/best` when the mean of the sampler's
 * `finalReward` is the highest so far), the step's graphs in graphs.jsonl, its evaluation in evaluations.jsonl, its line of metrics.jsonl,
 * and where one is due `checkpoints/last` with everything needed to go on. A process that is killed at any moment
 * leaves a complete `last`; a resumed run cuts the three files to what that checkpoint knows and computes the rest
 * again, with the same result, since every random draw is a function of the seed and of counters.
 *
 * A full or read-only disk ends training with an error; what was written before stays as it is.
 */
export class HFASTTrainer<S = Conversation, A = Message, Step = unknown, Batch = unknown> extends Trainer<
  S,
  A,
  Step,
  Batch
> {
  declare readonly configuration: HFASTConfiguration;
  readonly runDirectory: RunDirectory | null;
  readonly #evaluator: Evaluator<S, A, EvaluationReport> | null;
  readonly #resume: boolean;
  readonly #lock: (() => RunLock) | null;
  #bestScore: number | null = null;
  #savedStep = 0;
  #lastEvaluation: Required<EvaluationReport> | null = null;
  readonly #settings: RunSettings;
  readonly #tokens: TokenTeller<S, A> | null;
  /** Of the step in progress: what its files get once it is done. */
  #graphLines: string[] = [];
  #evaluationLines: string[] = [];
  /** When the last checkpoint was written and how long that took, in milliseconds; null before the first. */
  #lastWrite: { at: number; took: number } | null = null;

  constructor(
    configuration: HFASTConfiguration,
    sampler: Sampler<S, A>,
    algorithm: Algorithm<S, A, Step, Batch>,
    given: HFASTTrainerOptions<S, A> = {},
  ) {
    requireConfiguration(configuration, HFASTConfiguration);
    const parsed = parseOptions("training", hfASTTrainerOptions, given, ADVICE) as HFASTTrainerOptions<S, A>;
    const { evaluator, runDirectory, resume = false, lock, settings, ...options } = parsed;
    super(configuration, sampler, algorithm, options);
    this.#evaluator = evaluator ?? null;
    this.runDirectory = runDirectory === undefined ? null : new RunDirectory(runDirectory);
    this.#resume = resume;
    this.#lock = lock ?? null;
    this.#settings = settings ?? trainingSettings(configuration);
    this.#tokens = configuration.keepTokens ? tokenTeller<S, A>(sampler.system) : null;
    const { evaluationRollouts } = configuration;
    const starts = evaluator?.starts?.length;
    if (evaluationRollouts !== undefined && starts !== undefined && evaluationRollouts > starts) {
      throw new UsageError(
        `training: evaluationRollouts must be at most the number of dev prompts, ${starts}, got ${evaluationRollouts}`,
      );
    }
    const metric = configuration.earlyStopping?.metric;
    if (metric?.startsWith("evaluation/") && (evaluator === undefined || configuration.evaluateEvery === 0)) {
      throw new UsageError(
        `training: earlyStopping.metric ${metric} is measured by evaluations, and there are none; set evaluateEvery, or ` +
          "choose a metric of the steps",
      );
    }
    if (resume && runDirectory === undefined) {
      throw new UsageError("training: resume needs the run directory to go on from");
    }
  }

  /** Best mean of the sampler's `finalReward` on the dev prompts so far; null before the first evaluation. */
  get bestScore(): number | null {
    return this.#bestScore;
  }

  /** The last evaluation on the dev prompts that this process made; null before the first. */
  get lastEvaluation(): Required<EvaluationReport> | null {
    return this.#lastEvaluation;
  }

  protected override get loggedRun(): { folder: string | null; configuration: Json } {
    const { configuration } = this.#settings.record;
    return {
      folder: this.runDirectory?.path ?? null,
      configuration: (configuration as Json | undefined) ?? super.loggedRun.configuration,
    };
  }

  override async train(): Promise<void> {
    const directory = this.runDirectory;
    if (directory === null) {
      await super.train();
      return;
    }
    if (this.#resume && !existsSync(directory.path)) throw new UsageError(noCheckpoint(directory.path));
    directory.open({
      resume: this.#resume,
      ...(this.#lock === null ? {} : { lock: this.#lock() }),
      onTakeover: (line) => this.logger.warn(line),
    });
    try {
      if (this.#resume) await this.#restore(directory);
      await super.train();
      if (this.#savedStep < this.stepsDone) await this.#saveLast(directory);
    } finally {
      directory.close();
    }
  }

  protected override async evaluateStep(step: number): Promise<Record<string, MetricValue>> {
    const { evaluateEvery, trainingSteps, evaluationRollouts, seed } = this.configuration;
    const due = evaluateEvery > 0 && (step % evaluateEvery === 0 || step === trainingSteps);
    if (this.#evaluator === null || !due) return {};
    const start = this.clock();
    this.report({ phase: "evaluate" });
    const { sampler } = this.#evaluator;
    const finals: number[] = [];
    const evaluator = this.#evaluator;
    const report = await withMemoryAdvice("evaluation", () =>
      evaluator.evaluate({
        seed,
        episode: EVALUATION_EPISODE,
        ...(evaluationRollouts === undefined ? {} : { rollouts: evaluationRollouts }),
        onGraphs: (graphs) => {
          for (const graph of graphs) finals.push(sampler.finalReward(graph as unknown as Graph<S, A>));
        },
        onProgress: (done, total) => this.report({ phase: "evaluate", done, total }),
      }),
    );
    const { summary, details = [] } = report;
    this.#lastEvaluation = { summary, details };
    this.#evaluationLines = [evaluationLine(step, report)];
    const score = meanOfFinite(finals) ?? summary.mean_reward;
    const best = score !== null && (this.#bestScore === null || score > this.#bestScore);
    if (best) {
      this.#bestScore = score;
      await this.#saveBest(step, summary);
    }
    const rate = summary.success_rate;
    const reward = score === null ? "unknown" : score.toFixed(4);
    const known = (count: number | null | undefined) => count ?? "unknown";
    this.logger.info(
      `step ${step}: attack success ${percent(rate)} on ${summary.n_scored} dev rollouts; mean final reward ${reward}` +
        (best ? ", the best so far" : ""),
    );
    this.logger.info(
      `  ${percent(summary.harmless_probe_success_rate ?? null)} with harmless probes only; ` +
        `${percent(summary.harmful_probe_rate ?? null)} of the probes harmful, ${known(summary.n_distinct_probes)} of ` +
        `${known(summary.n_probes)} distinct; ${known(summary.diversity?.n_clusters)} clusters of attacks`,
    );
    return {
      "evaluation/attack_self_bleu": summary.diversity?.self_bleu ?? null,
      "evaluation/attacks": summary.diversity?.n_attacks ?? null,
      "evaluation/best": best,
      "evaluation/cluster_success_rate": summary.diversity?.cluster_success_rate ?? null,
      "evaluation/clusters": summary.diversity?.n_clusters ?? null,
      "evaluation/distinct_probes": summary.n_distinct_probes ?? null,
      "evaluation/errors": summary.n_errors,
      "evaluation/harmful_probe_lower": summary.harmful_probe_rate_interval?.lower ?? null,
      "evaluation/harmful_probe_rate": summary.harmful_probe_rate ?? null,
      "evaluation/harmful_probe_upper": summary.harmful_probe_rate_interval?.upper ?? null,
      "evaluation/harmless_probe_success_lower": summary.harmless_probe_success_rate_interval?.lower ?? null,
      "evaluation/harmless_probe_success_rate": summary.harmless_probe_success_rate ?? null,
      "evaluation/harmless_probe_success_upper": summary.harmless_probe_success_rate_interval?.upper ?? null,
      "evaluation/probe_nll": summary.mean_probe_nll,
      "evaluation/probes": summary.n_probes ?? null,
      "evaluation/final_reward": score,
      "evaluation/reward": summary.mean_reward,
      "evaluation/rollouts": summary.n_rollouts,
      "evaluation/success_lower": summary.success_rate_interval?.lower ?? null,
      "evaluation/success_rate": rate,
      "evaluation/success_upper": summary.success_rate_interval?.upper ?? null,
      "time/evaluate_s": (this.clock() - start) / 1000,
    };
  }

  protected override async experienceCollected(experience: Experience<S, A, Batch>): Promise<void> {
    await super.experienceCollected(experience);
    if (this.runDirectory === null || !this.configuration.keepGraphs) return;
    const options = {
      step: this.stepsDone + 1,
      ...(this.#tokens === null ? {} : { tokensOf: (node: Node<S, A>) => this.#tokens!.tokensOf(node) }),
    };
    const { graphs, credits } = experience;
    // Now, since an algorithm may change nodes, and they are to be shown as they were learned from.
    this.#graphLines = graphs.map((graph, index) =>
      stringifyGraph(graph, { ...options, credit: credits[index]! }),
    );
  }

  protected override async persist(record: MetricsRecord): Promise<void> {
    const directory = this.runDirectory;
    if (directory === null) return;
    directory.check();
    directory.graphs.append(this.#graphLines);
    directory.evaluations.append(this.#evaluationLines);
    directory.metrics.append([stringifyMetrics(record)]);
    this.#graphLines = [];
    this.#evaluationLines = [];
    if (this.#checkpointIsDue()) await this.#saveLast(directory);
  }

  #checkpointIsDue(): boolean {
    const { checkpointEvery } = this.configuration;
    if (checkpointEvery !== "auto") return checkpointEvery > 0 && this.stepsDone % checkpointEvery === 0;
    if (this.#lastWrite === null) return true;
    return this.clock() - this.#lastWrite.at >= AUTO_SHARE * this.#lastWrite.took;
  }

  async #saveLast(directory: RunDirectory): Promise<void> {
    const start = this.clock();
    await directory.writeLast(this.configuration.keepCheckpoints, this.#savedStep, async (folder) => {
      const digests = new Map<string, string>();
      await saveTester(this.system, folder, digests);
      const types = computeTypesOf(this.system);
      const state = {
        step: this.stepsDone,
        bytes: {
          metrics: directory.metrics.bytes,
          graphs: directory.graphs.bytes,
          evaluations: directory.evaluations.bytes,
        },
        skippedInARow: this.skippedInARow,
        trainingSteps: this.configuration.trainingSteps,
        bestScore: this.#bestScore,
        harness: this.harness.getState(),
        pending: this.pending,
        watches: this.watches.getState(),
        callbacks: this.callbacks.getState(),
        sampler: this.sampler.getState(),
        run: this.#settings.record,
        ...(types === null ? {} : { computeTypes: { ...types } }),
      };
      saveState(folder, state, this.optimizer, digests);
      if (this.pending !== null) saveGradients(folder, this.parameters, digests);
      saveDigests(folder, digests);
    });
    // Without it a process is some percent larger after a hundred steps: writing leaves free memory in pieces.
    emptyCache();
    this.#savedStep = this.stepsDone;
    const end = this.clock();
    this.#lastWrite = { at: end, took: end - start };
    await this.callbacks.call("onCheckpoint", this.control, directory.checkpointPath("last"));
  }

  async #saveBest(step: number, summary: EvaluationSummary): Promise<void> {
    await this.runDirectory?.writeCheckpoint("best", async (folder) => {
      const digests = new Map<string, string>();
      await saveTester(this.system, folder, digests);
      saveDigests(folder, digests);
      const text = `${JSON.stringify({ step, summary, version: EVALUATION_VERSION }, null, 2)}\n`;
      writeFileAtomic(join(folder, "evaluation.json"), [text]);
    });
  }

  async #restore(directory: RunDirectory): Promise<void> {
    // Never anew in a folder that may hold the metrics of days: whoever wants that says so.
    if (!directory.hasCheckpoint("last")) throw new UsageError(noCheckpoint(directory.path));
    const folder = directory.checkpointPath("last");
    const state = readResumableState(folder, this.#settings);
    this.#checkTypes(folder, state);
    this.#warnOfSchedule(state);
    // Everything that can be refused comes before the first change.
    // Graphs are large: a run that keeps them no longer goes on where somebody has taken the file away.
    const names = JOURNALS.filter(
      (name) =>
        name !== "graphs" || this.configuration.keepGraphs || directory.graphs.bytes >= state.bytes.graphs,
    );
    for (const name of names) directory[name].checkCut(state.bytes[name]);
    for (const name of names) directory[name].cut(state.bytes[name]);
    await restoreTester(this.system, folder);
    loadOptimizer(folder, state.optimizer, this.optimizer);
    this.harness.setState(state.harness);
    this.sampler.setState(state.sampler);
    this.watches.setState(state.watches);
    this.callbacks.setState(state.callbacks ?? {});
    this.pending = state.pending;
    if (state.pending !== null) loadGradients(folder, this.parameters);
    this.stepsDone = state.step;
    this.skippedInARow = state.skippedInARow;
    this.#bestScore = state.bestScore;
    this.#savedStep = state.step;
    this.logger.info(`${directory.path}: going on after step ${state.step}`);
  }

  #checkTypes(folder: string, { computeTypes: saved }: TrainerState): void {
    const current = computeTypesOf(this.system);
    for (const [name, then] of Object.entries(current === null ? {} : (saved ?? {}))) {
      if (current![name] === then) continue;
      throw new UsageError(
        `${folder}: a run is resumed with the types it was started with, but ${name} computed in ${then} and would now in ` +
          `${current![name] ?? "nothing"}; give that type (dtype for rollouts, updateDtype for updates), or start a new run ` +
          `from these weights`,
      );
    }
  }

  #warnOfSchedule({ trainingSteps: before }: TrainerState): void {
    const { trainingSteps, schedule } = this.configuration;
    if (before === trainingSteps || schedule === "constant") return;
    this.logger.warn(
      `trainingSteps is now ${trainingSteps}, so the ${schedule} schedule goes on from another place than it would have`,
    );
  }
}

/** @throws UsageError for a system that does not tell its token ids */
function tokenTeller<S, A>(system: object): TokenTeller<S, A> {
  if (typeof (system as Partial<TokenTeller<S, A>>).tokensOf === "function")
    return system as TokenTeller<S, A>;
  throw new UsageError(
    "training: keepTokens needs a system that tells the token ids of a turn (a method tokensOf), and this one does not",
  );
}

/** Not through the schema: an evaluator of one's own may say less, and must not end the run for it. */
function evaluationLine(step: number, { summary, details = [], ...rest }: EvaluationReport): string {
  return JSON.stringify({ step, summary, details, version: EVALUATION_VERSION, ...rest });
}

/** The mean of those that are known; null where none is. */
function meanOfFinite(values: readonly number[]): number | null {
  const known = values.filter(Number.isFinite);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

function percent(rate: number | null): string {
  return rate === null ? "unknown" : `${(100 * rate).toFixed(1)} %`;
}
