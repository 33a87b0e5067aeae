import { join } from "node:path";
import { emptyCache, UsageError, writeFileAtomic } from "@astra-rl/torch";
import type { Algorithm, Evaluator, Sampler } from "../core/index.js";
import type { EvaluationSummary, MetricsRecord, MetricValue } from "../records/index.js";
import type { HFASTConfiguration } from "./hf-ast-configuration.js";
import { RunDirectory } from "./run-directory.js";
import {
  loadOptimizer,
  restoreTester,
  readState,
  saveState,
  saveTester,
  type TrainerState,
} from "./trainer-state.js";
import { Trainer, type TrainerOptions } from "./trainer.js";

/** Evaluation rollouts are numbered from here, far from any training episode, so that they share no draw with one. */
const EVALUATION_EPISODE = 2 ** 40;

/** Settings that a resumed run may change: they decide how long it runs and what it writes, not what a step computes. */
const FREE_SETTINGS = new Set(["trainingSteps", "evaluateEvery", "evaluationRollouts", "checkpointEvery"]);

/** What the trainer reads of an evaluation. */
export interface EvaluationReport {
  summary: EvaluationSummary;
}

export interface HFASTTrainerOptions<S = string, A = string> extends TrainerOptions {
  /** Evaluates the tester on the dev prompts; without it there are no evaluations and no `checkpoints/best`. */
  evaluator?: Evaluator<S, A, EvaluationReport>;
  /** Folder for metrics.jsonl and checkpoints; without it nothing is written. */
  runDirectory?: string;
  /** Go on from `checkpoints/last` of the run directory; starts anew where there is none. @default false */
  resume?: boolean;
}

/**
 * A trainer that evaluates on dev prompts, keeps its best and last tester, writes its metrics, and goes on exactly
 * where it was stopped.
 *
 * After each step, in this order: evaluation where it is due (and `checkpoints/best` when the mean reward is the
 * highest so far), one line of metrics.jsonl, `checkpoints/last` with everything needed to go on. A process that is
 * killed at any moment leaves a complete `last`; a resumed run cuts metrics.jsonl to what that checkpoint knows and
 * computes the rest again, with the same result, since every random draw is a function of the seed and of counters.
 *
 * A full or read-only disk ends training with an error; what was written before stays as it is.
 */
export class HFASTTrainer<S = string, A = string, Step = unknown, Batch = unknown> extends Trainer<
  S,
  A,
  Step,
  Batch
> {
  declare readonly configuration: HFASTConfiguration;
  readonly runDirectory: RunDirectory | null;
  readonly #evaluator: Evaluator<S, A, EvaluationReport> | null;
  readonly #resume: boolean;
  #bestScore: number | null = null;
  #savedStep = 0;

  constructor(
    configuration: HFASTConfiguration,
    sampler: Sampler<S, A>,
    algorithm: Algorithm<S, A, Step, Batch>,
    { evaluator, runDirectory, resume = false, ...options }: HFASTTrainerOptions<S, A> = {},
  ) {
    super(configuration, sampler, algorithm, options);
    this.#evaluator = evaluator ?? null;
    this.runDirectory = runDirectory === undefined ? null : new RunDirectory(runDirectory);
    this.#resume = resume;
    const { evaluationRollouts } = configuration;
    const starts = evaluator?.starts?.length;
    if (evaluationRollouts !== undefined && starts !== undefined && evaluationRollouts > starts) {
      throw new UsageError(
        `training: evaluationRollouts must be at most the number of dev prompts, ${starts}, got ${evaluationRollouts}`,
      );
    }
    if (resume && runDirectory === undefined) {
      throw new UsageError("training: resume needs the run directory to go on from");
    }
  }

  /** Best mean reward on the dev prompts so far; null before the first evaluation. */
  get bestScore(): number | null {
    return this.#bestScore;
  }

  override async train(): Promise<void> {
    const directory = this.runDirectory;
    if (directory === null) {
      await super.train();
      return;
    }
    directory.open({ resume: this.#resume });
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
    const { summary } = await this.#evaluator.evaluate({
      seed,
      episode: EVALUATION_EPISODE,
      ...(evaluationRollouts === undefined ? {} : { rollouts: evaluationRollouts }),
      onProgress: (done, total) => this.report({ phase: "evaluate", done, total }),
    });
    const score = summary.avg_reward;
    const best = score !== null && (this.#bestScore === null || score > this.#bestScore);
    if (best) {
      this.#bestScore = score;
      await this.#saveBest(step, summary);
    }
    const rate = summary["pct_rollouts_with_target_toxicity/attack_success_rate"];
    this.logger.info(
      `step ${step}: attack success ${percent(rate)} on ${summary.n_scored} dev rollouts, mean reward ` +
        `${score === null ? "unknown" : score.toFixed(4)}${best ? ", the best so far" : ""}`,
    );
    return {
      "evaluation/best": best,
      "evaluation/errors": summary.n_errors,
      "evaluation/probe_nll": summary.mean_probe_nll,
      "evaluation/reward": score,
      "evaluation/rollouts": summary.n_rollouts,
      "evaluation/success_lower": summary.attack_success_rate_interval?.lower ?? null,
      "evaluation/success_rate": rate,
      "evaluation/success_upper": summary.attack_success_rate_interval?.upper ?? null,
      "time/evaluate_s": (this.clock() - start) / 1000,
    };
  }

  protected override async persist(record: MetricsRecord): Promise<void> {
    const directory = this.runDirectory;
    if (directory === null) return;
    directory.appendMetrics(record);
    const { checkpointEvery } = this.configuration;
    if (checkpointEvery !== "auto" && checkpointEvery > 0 && this.stepsDone % checkpointEvery === 0)
      await this.#saveLast(directory);
  }

  async #saveLast(directory: RunDirectory): Promise<void> {
    await directory.writeCheckpoint("last", async (folder) => {
      await saveTester(this.system, folder);
      const state = {
        step: this.stepsDone,
        metricsBytes: directory.metricsBytes,
        skippedInARow: this.skippedInARow,
        bestScore: this.#bestScore,
        harness: this.harness.getState(),
        sampler: this.sampler.getState(),
        configuration: Object.fromEntries(Object.entries(this.configuration)),
      };
      saveState(folder, state, this.optimizer);
    });
    // Without it a process is some percent larger after a hundred steps: writing leaves free memory in pieces.
    emptyCache();
    this.#savedStep = this.stepsDone;
  }

  async #saveBest(step: number, summary: EvaluationSummary): Promise<void> {
    await this.runDirectory?.writeCheckpoint("best", async (folder) => {
      await saveTester(this.system, folder);
      const text = `${JSON.stringify({ step, summary, version: 1 }, null, 2)}\n`;
      writeFileAtomic(join(folder, "evaluation.json"), [text]);
    });
  }

  async #restore(directory: RunDirectory): Promise<void> {
    if (!directory.hasCheckpoint("last")) {
      directory.cutMetrics(0);
      this.logger.info(`${directory.path}: no checkpoint to go on from; starting at step 1`);
      return;
    }
    const folder = directory.checkpointPath("last");
    const state = readState(folder);
    this.#checkSettings(folder, state);
    // Everything that can be refused comes before the first change.
    directory.cutMetrics(state.metricsBytes);
    await restoreTester(this.system, folder);
    loadOptimizer(folder, state.optimizer, this.optimizer);
    this.harness.setState(state.harness);
    this.sampler.setState(state.sampler);
    this.stepsDone = state.step;
    this.skippedInARow = state.skippedInARow;
    this.#bestScore = state.bestScore;
    this.#savedStep = state.step;
    this.logger.info(`${directory.path}: going on after step ${state.step}`);
  }

  #checkSettings(folder: string, { configuration }: TrainerState): void {
    // Through JSON, as the saved ones went: settings that are not given are missing in both.
    const current = JSON.parse(JSON.stringify(this.configuration)) as Record<string, unknown>;
    for (const name of new Set([...Object.keys(current), ...Object.keys(configuration)])) {
      const [now, then] = [JSON.stringify(current[name]), JSON.stringify(configuration[name])];
      if (now === then || FREE_SETTINGS.has(name)) continue;
      throw new UsageError(
        `${folder}: a run is resumed with the settings it was started with, but ${name} was ${then} and is now ${now}; ` +
          `set it back, or start a new run from these weights`,
      );
    }
    if (current["trainingSteps"] !== configuration["trainingSteps"] && current["schedule"] !== "constant") {
      this.logger.warn(
        `trainingSteps is now ${String(current["trainingSteps"])}, so the ${String(current["schedule"])} schedule goes on ` +
          `from another place than it would have`,
      );
    }
  }
}

function percent(rate: number | null): string {
  return rate === null ? "unknown" : `${(100 * rate).toFixed(1)} %`;
}
