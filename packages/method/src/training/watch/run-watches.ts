import { UsageError, type Json } from "@astra-rl/base";
import { warningKey, type MetricValue } from "@astra-rl/records";
import type { StepValues, TrainingCallback, TrainingControl } from "../callbacks/index.js";
import { HarmWatch } from "./harm-watch.js";
import { ProgressWatch } from "./progress-watch.js";
import { RareWatch } from "./rare-watch.js";
import { TRENDS, TrendWatch } from "./trend-watch.js";
import { numberAt, type Watch, type WatchedValues } from "./watch.js";

/** Every watch of a run. */
const watchesOf = (steps: number): Watch[] => [
  new HarmWatch(steps),
  ...TRENDS.map((trend) => new TrendWatch(trend, steps)),
  new ProgressWatch(steps),
  new RareWatch(),
];

/** The names of all watches, as `training.stopOn` takes them. */
export const WARNING_RULES: readonly string[] = watchesOf(0).map(({ name }) => name);

export interface RunWatchesOptions {
  /** Training steps of the whole run, which determine the windows. */
  steps: number;
  /** Rules whose warning ends training. */
  stopOn?: readonly string[];
}

/**
 * Warns about each unhealthy trend once per run, when it is detected, and records the warning in the step's metrics.
 * Ends training after the step if the rule is one of `stopOn`.
 */
export class RunWatches implements TrainingCallback<unknown, unknown> {
  readonly name = "watches";
  readonly #watches: readonly Watch[];
  readonly #stopOn: readonly string[];
  /** Episodes of the steps so far. */
  #episodes = 0;

  constructor({ steps, stopOn = [] }: RunWatchesOptions) {
    this.#watches = watchesOf(steps);
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
    const warnings = this.add(values);
    for (const [rule, warning] of warnings) {
      control.logger.warn(`step ${values.step}: ${warning} (${rule}; shown once)`);
    }
    this.#stopIfDue(control);
    return Object.fromEntries(warnings.map(([rule, warning]) => [warningKey(rule), warning]));
  }

  /** Adds the metrics of a step. @returns new warnings, with their rules */
  add(values: WatchedValues): [rule: string, warning: string][] {
    const episodes = numberAt(values, "episodes");
    const conversations = episodes === null ? null : episodes - this.#episodes;
    this.#episodes = episodes ?? this.#episodes;
    return this.#watches.flatMap((watch): [string, string][] => {
      const warning = watch.add(values, conversations);
      return warning === null ? [] : [[watch.name, warning]];
    });
  }

  getState(): Json {
    const states = this.#watches.map((watch): [string, Json] => [watch.name, watch.getState()]);
    return { episodes: this.#episodes, watches: Object.fromEntries(states) };
  }

  setState(state: Json): void {
    const { episodes = 0, watches = {} } = (state ?? {}) as {
      episodes?: number;
      watches?: Readonly<Record<string, Json>>;
    };
    const lacking = this.#watches.find(({ name }) => !Object.hasOwn(watches, name));
    if (lacking !== undefined) {
      throw new UsageError(
        `watches: the state of a run must be of all its watches, got none of "${lacking.name}"`,
      );
    }
    this.#episodes = episodes;
    for (const watch of this.#watches) watch.setState(watches[watch.name]!);
  }

  #stopIfDue(control: Pick<TrainingControl, "stop">): void {
    const due = this.#watches.filter(({ name, hasWarned }) => hasWarned && this.#stopOn.includes(name));
    if (due.length === 0) return;
    control.stop(`the warning ${due.map(({ name }) => name).join(", ")} is one of training.stopOn`);
  }
}
