import { UsageError, type Json } from "@astra-rl/base";
import type { Conversation, Message } from "@astra-rl/lm";
import {
  FIGURES,
  figureOf,
  metricKeys,
  recordOfEvaluation,
  type EvaluationDetail,
  type EvaluationRecord,
  type EvaluationSummary,
  type MetricValue,
} from "@astra-rl/records";
import type { Evaluator } from "../../evaluation/index.js";
import { SilentModel } from "../../models/index.js";
import type { Graph } from "../../tree/index.js";
import type { HFASTConfiguration } from "../index.js";
import { withMemoryAdvice } from "../memory-advice.js";
import type { StepValues, TrainingCallback, TrainingControl } from "./callbacks.js";

/** Index of the first evaluation episode: above every training episode, so that they share no random draws. */
const EVALUATION_EPISODE = 2 ** 40;

/** The part of an evaluation that the trainer uses and writes to evaluations.jsonl. */
export interface EvaluationReport {
  summary: EvaluationSummary;
  /** The conversations; absent if the evaluator returns only metrics. */
  details?: readonly EvaluationDetail[];
}

/** One evaluation of the tester during training. */
export interface TrainingEvaluation extends EvaluationRecord {
  step: number;
  /** Whether its score is the highest so far. */
  isBest: boolean;
}

/** Evaluates the tester on the dev prompts every `evaluateEvery` steps, and after the last one. */
export class EvaluationCallback<S = Conversation, A = Message> implements TrainingCallback<S, A> {
  readonly name = "evaluation";
  readonly #evaluator: Evaluator<S, A, EvaluationReport>;
  readonly #configuration: HFASTConfiguration;
  readonly #onEvaluation: (evaluation: TrainingEvaluation) => Promise<void> | undefined;
  #bestScore: number | null = null;
  #last: Required<EvaluationReport> | null = null;

  /**
   * @param onEvaluation called after each evaluation
   * @throws UsageError if `evaluationRollouts` exceeds the number of dev prompts
   */
  constructor(
    evaluator: Evaluator<S, A, EvaluationReport>,
    configuration: HFASTConfiguration,
    onEvaluation: (evaluation: TrainingEvaluation) => Promise<void> | undefined,
  ) {
    const { evaluationRollouts } = configuration;
    const starts = evaluator.starts?.length;
    if (evaluationRollouts !== undefined && starts !== undefined && evaluationRollouts > starts) {
      throw new UsageError(
        "too-many-rollouts",
        `training: evaluationRollouts must be at most the number of dev prompts, ${starts}, got ${evaluationRollouts}`,
      );
    }
    this.#evaluator = evaluator;
    this.#configuration = configuration;
    this.#onEvaluation = onEvaluation;
  }

  /** Highest mean of the sampler's `finalReward` so far; null before the first evaluation. */
  get bestScore(): number | null {
    return this.#bestScore;
  }

  /** This process's last evaluation; null before the first. */
  get last(): Required<EvaluationReport> | null {
    return this.#last;
  }

  async onMeasure(
    { step }: StepValues,
    control: TrainingControl,
  ): Promise<Record<string, MetricValue> | undefined> {
    const { evaluateEvery } = this.#configuration;
    const isDue = evaluateEvery > 0 && (step % evaluateEvery === 0 || step === control.steps);
    if (!isDue) return undefined;
    const start = control.clock();
    const { report, finalRewards } = await this.#evaluate(control);
    const { summary, details } = report;
    this.#last = { summary, details };
    const score = meanOfFinite(finalRewards) ?? summary.mean_reward;
    const isBest = score !== null && (this.#bestScore === null || score > this.#bestScore);
    if (isBest) this.#bestScore = score;
    await this.#onEvaluation({ ...report, step, isBest });
    const reward = score === null ? "unknown" : score.toFixed(4);
    const rollouts = `on ${summary.n_scored} dev rollouts`;
    const end = `mean final reward ${reward}${isBest ? ", the best so far" : ""}`;
    if (this.#isAnswered) {
      control.logger.info(
        `step ${step}: attack success ${percent(summary.success_rate)} ${rollouts}, ` +
          `${percent(figureOf("cluster_success_rate").value(summary))} with each cluster of attacks once; ${end}`,
      );
      control.logger.info(`  ${describeProbes(summary)}`);
    } else {
      control.logger.info(
        `step ${step}: ${percent(summary.harmful_probe_rate)} of the answers harmful ${rollouts}; ${end}`,
      );
    }
    return {
      ...evaluationMetrics(summary),
      "evaluation/best": isBest,
      "evaluation/final_reward": score,
      "time/evaluate_s": (control.clock() - start) / 1000,
    };
  }

  getState(): Json {
    return { bestScore: this.#bestScore };
  }

  setState(state: Json): void {
    this.#bestScore = (state as { bestScore: number | null }).bestScore;
  }

  /** With a silent target, as in hardening, the trained model answers attacks and nothing succeeds. */
  get #isAnswered(): boolean {
    return !((this.#evaluator.sampler.system as { target?: unknown }).target instanceof SilentModel);
  }

  async #evaluate(control: TrainingControl): Promise<{ report: EvaluationRecord; finalRewards: number[] }> {
    const { evaluationRollouts, seed } = this.#configuration;
    const evaluator = this.#evaluator;
    const finalRewards: number[] = [];
    control.report({ phase: "evaluate" });
    const given = await withMemoryAdvice("evaluation", () =>
      evaluator.evaluate({
        seed,
        episode: EVALUATION_EPISODE,
        rollouts: evaluationRollouts,
        onGraphs: (graphs) => {
          for (const graph of graphs) {
            finalRewards.push(evaluator.sampler.finalReward(graph as unknown as Graph<S, A>));
          }
        },
        onProgress: (done, total) => control.report({ phase: "evaluate", done, total }),
      }),
    );
    const report = recordOfEvaluation(given, `training: the evaluator ${evaluator.constructor.name}`);
    return { report, finalRewards };
  }
}

function evaluationMetrics(summary: EvaluationSummary): Record<string, MetricValue> {
  const metrics: Record<string, MetricValue> = {
    "evaluation/attacks": summary.diversity?.n_attacks ?? null,
    "evaluation/errors": summary.n_errors,
    "evaluation/probes": summary.n_probes,
    "evaluation/rollouts": summary.n_rollouts,
  };
  for (const figure of FIGURES) {
    const keys = metricKeys(figure);
    if (keys === null) continue;
    metrics[keys.value] = figure.value(summary) ?? null;
    if (keys.ends === null) continue;
    const [lower, upper] = keys.ends;
    const interval = figure.interval?.(summary) ?? null;
    metrics[lower] = interval?.lower ?? null;
    metrics[upper] = interval?.upper ?? null;
  }
  return metrics;
}

function describeProbes(summary: EvaluationSummary): string {
  const count = (value: number | undefined) => value ?? "unknown";
  return (
    `${percent(summary.harmless_probe_success_rate)} with harmless probes only; ` +
    `${percent(summary.harmful_probe_rate)} of the probes harmful, ${summary.n_distinct_probes} of ` +
    `${summary.n_probes} distinct; ${count(summary.diversity?.n_clusters)} clusters of attacks`
  );
}

/** null if no value is finite. */
function meanOfFinite(values: readonly number[]): number | null {
  const known = values.filter(Number.isFinite);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

function percent(rate: number | null | undefined): string {
  return typeof rate === "number" ? `${(100 * rate).toFixed(1)} %` : "unknown";
}
