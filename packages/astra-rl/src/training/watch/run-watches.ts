import { UsageError } from "@astra-rl/torch";
import type { Json } from "../../core/index.js";
import type { StepValues, TrainingCallback, TrainingControl } from "../callbacks.js";
import { HarmWatch } from "./harm-watch.js";
import { TRENDS, TrendWatch } from "./trend-watch.js";
import type { Watch, WatchedValues } from "./watch.js";

/** Warns about each unhealthy trend once per run. */
export class RunWatches implements TrainingCallback<unknown, unknown> {
  readonly name = "watches";
  readonly #watches: readonly Watch[];

  constructor(
    watches: readonly Watch[] = [new HarmWatch(), ...TRENDS.map((trend) => new TrendWatch(trend))],
  ) {
    this.#watches = watches;
  }

  onMeasure(values: StepValues, { logger }: TrainingControl): void {
    for (const warning of this.add(values)) logger.warn(`step ${values.step}: ${warning}`);
  }

  /** Adds the metrics of a step. @returns new warnings */
  add(values: WatchedValues): string[] {
    return this.#watches.flatMap((watch) => watch.add(values) ?? []);
  }

  getState(): Json {
    return Object.fromEntries(this.#watches.map((watch) => [watch.name, watch.getState()]));
  }

  setState(state: Json): void {
    const states = (state ?? {}) as Readonly<Record<string, Json>>;
    const lacking = this.#watches.find(({ name }) => !Object.hasOwn(states, name));
    if (lacking !== undefined) {
      throw new UsageError(
        `watches: the state of a run must be of all its watches, got none of "${lacking.name}"`,
      );
    }
    for (const watch of this.#watches) watch.setState(states[watch.name]!);
  }
}
