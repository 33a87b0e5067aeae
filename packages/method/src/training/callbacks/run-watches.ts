import { RunDiagnosis } from "@astra-rl/analysis";
import type { Json } from "@astra-rl/base";
import { warningKey, type MetricValue } from "@astra-rl/records";
import type { StepValues, TrainingCallback, TrainingControl } from "./callbacks.js";

export interface RunWatchesOptions {
  /** Training steps of the whole run. */
  steps: number;
  /** Rules whose warning ends training. */
  stopOn?: readonly string[];
}

/**
 * Logs each warning of the run's diagnosis, and records it in the step's metrics. Ends training after the step if the
 * rule is one of `stopOn`.
 */
export class RunWatches implements TrainingCallback<unknown, unknown> {
  readonly name = "watches";
  readonly #diagnosis: RunDiagnosis;
  readonly #stopOn: readonly string[];

  constructor({ steps, stopOn = [] }: RunWatchesOptions) {
    this.#diagnosis = new RunDiagnosis(steps);
    this.#stopOn = stopOn;
  }

  /** A stopped run that is resumed stops again, unless the rule is no longer one of `stopOn`. */
  onTrainBegin(control: Pick<TrainingControl, "stop">): void {
    this.#stopIfDue(control);
  }

  onMeasure(
    values: StepValues,
    control: Pick<TrainingControl, "logger" | "stop">,
  ): Record<string, MetricValue> {
    const warnings = this.#diagnosis.add(values);
    for (const [rule, warning] of warnings) {
      control.logger.warn(`step ${values.step}: ${warning} (${rule}; shown once)`);
    }
    this.#stopIfDue(control);
    return Object.fromEntries(warnings.map(([rule, warning]) => [warningKey(rule), warning]));
  }

  getState(): Json {
    return this.#diagnosis.getState();
  }

  setState(state: Json): void {
    this.#diagnosis.setState(state);
  }

  #stopIfDue(control: Pick<TrainingControl, "stop">): void {
    const due = this.#diagnosis.warned.filter((rule) => this.#stopOn.includes(rule));
    if (due.length === 0) return;
    control.stop(`the warning ${due.join(", ")} is one of training.stopOn`);
  }
}
