import { UsageError, parseOptions, type Json } from "@astra-rl/base";
import { z } from "zod";
import type { MetricsRecord } from "@astra-rl/records";
import type { TrainingCallback, TrainingControl } from "./callbacks.js";

export const earlyStoppingOptions = z.strictObject({
  metric: z.string().min(1).describe("A key of metrics.jsonl, such as evaluation/success_rate"),
  patience: z
    .int()
    .min(1)
    .default(5)
    .describe("Consecutive measurements without an improvement after which training ends"),
  mode: z
    .enum(["max", "min"])
    .default("max")
    .describe("Whether higher (max) or lower (min) values are better"),
  minDelta: z
    .number()
    .min(0)
    .default(0)
    .describe("Threshold that a change must exceed to count as an improvement"),
});

export type EarlyStoppingOptions = z.input<typeof earlyStoppingOptions>;

/** Nested as in the training options, so that messages show the path `earlyStopping.…`. */
const inTraining = z.strictObject({ earlyStopping: earlyStoppingOptions });

/**
 * Ends training when a metric has stopped improving. Steps without the metric, or with null, do not count: for
 * evaluation metrics, patience counts evaluations.
 */
export class EarlyStopping implements TrainingCallback {
  readonly name = "earlyStopping";
  readonly #options: z.output<typeof earlyStoppingOptions>;
  #best: number | null = null;
  /** Measurements since the best. */
  #waited = 0;

  /** @throws UsageError that names the option, its rule and the value given */
  constructor(given: EarlyStoppingOptions) {
    this.#options = parseOptions("training", inTraining, { earlyStopping: given }).earlyStopping;
  }

  get metric(): string {
    return this.#options.metric;
  }

  /** A stopped run that is resumed stops again, unless its patience was increased. */
  onTrainBegin(control: Pick<TrainingControl, "stop">): void {
    this.#stopIfDue(control);
  }

  onStep(record: MetricsRecord, control: Pick<TrainingControl, "stop">): void {
    const { metric, mode, minDelta } = this.#options;
    const value = record[metric];
    if (value === undefined) this.#refuseUnknown(record);
    if (typeof value !== "number") return;
    const gain = this.#best === null ? Infinity : mode === "max" ? value - this.#best : this.#best - value;
    if (gain > minDelta) {
      this.#best = value;
      this.#waited = 0;
    } else this.#waited += 1;
    this.#stopIfDue(control);
  }

  getState(): Json {
    return { best: this.#best, waited: this.#waited };
  }

  setState(state: Json): void {
    const { best, waited } = (state ?? {}) as { best?: number | null; waited?: number };
    if (best === undefined || !Number.isSafeInteger(waited)) {
      throw new UsageError(
        "invalid-state",
        "EarlyStopping.setState: the state was not returned by getState()",
      );
    }
    this.#best = best;
    this.#waited = waited!;
  }

  #stopIfDue(control: Pick<TrainingControl, "stop">): void {
    const { metric, patience } = this.#options;
    if (this.#waited < patience) return;
    control.stop(`${metric} has not improved on ${String(this.#best)} in ${this.#waited} measurements`);
  }

  /**
   * Every step has all metrics, except those of evaluations, and those of updates if there was nothing to learn from.
   */
  #refuseUnknown(record: MetricsRecord): void {
    const { metric } = this.#options;
    const isEvaluation = metric.startsWith("evaluation/");
    const isMeasured = isEvaluation ? "evaluation/reward" in record : record["items"] !== 0;
    if (!isMeasured) return;
    const there = Object.keys(record).filter((key) => key.startsWith("evaluation/") === isEvaluation);
    throw new UsageError(
      "unknown-metric",
      `unknown metric ${JSON.stringify(metric)}; this step has ${there.join(", ")}`,
    );
  }
}
