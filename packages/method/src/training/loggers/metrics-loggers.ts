import { UsageError } from "@astra-rl/base";
import { messageOf, within } from "../../tree/index.js";
import type { LoggedRun, LoggedValues, MetricsLogger } from "./metrics-logger.js";

export interface MetricsLoggersOptions {
  warn: (message: string) => void;
  /** Timeout of a logger call in milliseconds. Default 10 000. */
  patience?: number;
}

/** Maximum number of steps to skip a logger that keeps failing. */
const LONGEST_PAUSE = 64;

interface Place {
  logger: MetricsLogger;
  isOpen: boolean;
  hasWarned: boolean;
  /** Consecutive failures. */
  failures: number;
  /** Steps left to skip. */
  pause: number;
}

/**
 * The loggers of a run. A failing logger never ends the run: its error is reported once. It is retried after 1, 2, 4,
 * … steps, so that a server may recover and a dead one costs almost no time. Skipped steps are not buffered:
 * metrics.jsonl has every step.
 */
export class MetricsLoggers {
  readonly #places: readonly Place[];
  readonly #warn: (message: string) => void;
  readonly #patience: number;
  #run: LoggedRun | null = null;

  constructor(loggers: readonly MetricsLogger[], { warn, patience = 10_000 }: MetricsLoggersOptions) {
    this.#places = loggers.map((logger) => {
      return { logger, isOpen: false, hasWarned: false, failures: 0, pause: 0 };
    });
    this.#warn = warn;
    this.#patience = patience;
  }

  /** @throws UsageError if a logger cannot work as configured */
  async open(run: LoggedRun): Promise<void> {
    this.#run = run;
    for (const place of this.#places) {
      await this.#attempt(place, run.nextStep, () => this.#open(place), { mayRefuse: true });
    }
  }

  async log(step: number, values: LoggedValues): Promise<void> {
    for (const place of this.#places) {
      if (place.pause > 0) {
        place.pause -= 1;
        continue;
      }
      await this.#attempt(place, step, async () => {
        await this.#open(place);
        await this.#inTime("log", () => place.logger.log(step, values));
      });
    }
  }

  async close(outcome: "finished" | "failed"): Promise<void> {
    for (const place of this.#places) {
      if (!place.isOpen) continue;
      place.isOpen = false;
      try {
        await this.#inTime("close", () => place.logger.close(outcome));
      } catch (error) {
        this.#warn(`logger ${place.logger.name}: could not be closed: ${messageOf(error)}`);
      }
    }
  }

  async #open(place: Place): Promise<void> {
    if (place.isOpen) return;
    await this.#inTime("open", () => place.logger.open(this.#run!));
    place.isOpen = true;
  }

  async #attempt(
    place: Place,
    step: number,
    work: () => Promise<void>,
    { mayRefuse = false } = {},
  ): Promise<void> {
    try {
      await work();
      place.failures = 0;
    } catch (error) {
      if (mayRefuse && error instanceof UsageError) throw error;
      place.pause = Math.min(LONGEST_PAUSE, 2 ** place.failures);
      place.failures += 1;
      if (place.hasWarned) return;
      place.hasWarned = true;
      this.#warn(
        `logger ${place.logger.name}: step ${step} could not be logged: ${messageOf(error)}; training ` +
          `continues, logging is retried ` +
          `at later steps, and metrics.jsonl contains every step (shown once)`,
      );
    }
  }

  #inTime(call: "open" | "log" | "close", work: () => void | Promise<void>): Promise<void> {
    return within(this.#patience, call, Promise.resolve().then(work));
  }
}
