import { UsageError, type Json } from "@astra-rl/base";
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

/** Diagnoses a run from the metrics of its steps: each problem once, at the step in which it is detected. */
export class RunDiagnosis {
  readonly #watches: readonly Watch[];
  /** Episodes of the steps so far. */
  #episodes = 0;

  /** @param steps training steps of the whole run, which determine the windows */
  constructor(steps: number) {
    this.#watches = watchesOf(steps);
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

  /** The rules that have given a warning so far. */
  get warned(): string[] {
    return this.#watches.filter(({ hasWarned }) => hasWarned).map(({ name }) => name);
  }

  getState(): Json {
    const states = this.#watches.map((watch): [string, Json] => [watch.name, watch.getState()]);
    return { episodes: this.#episodes, watches: Object.fromEntries(states) };
  }

  /** @throws UsageError for the state of something else, or of other watches */
  setState(state: Json): void {
    const { episodes = 0, watches = {} } = (state ?? {}) as {
      episodes?: number;
      watches?: Readonly<Record<string, Json>>;
    };
    const lacking = this.#watches.find(({ name }) => !Object.hasOwn(watches, name));
    if (lacking !== undefined) {
      throw new UsageError(
        "state-of-other-parts",
        `watches: the state of a run must be of all its watches, got none of "${lacking.name}"`,
      );
    }
    this.#episodes = episodes;
    for (const watch of this.#watches) watch.setState(watches[watch.name]!);
  }
}
