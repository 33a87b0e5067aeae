import { AstraError, UsageError, type Json } from "@astra-rl/base";
import type { Message, Conversation } from "@astra-rl/lm";
import type { MetricsRecord, MetricValue } from "@astra-rl/records";
import { messageOf, type Stateful } from "../../tree/index.js";
import type { Experience, Logger, Progress } from "../index.js";

/** The metrics of a step while they are being collected. */
export type StepValues = Record<string, MetricValue> & { step: number };

/** The part of the trainer that callbacks can use. */
export interface TrainingControl {
  /** Training steps completed. */
  readonly step: number;
  /** Training steps of the whole run. */
  readonly steps: number;
  readonly logger: Logger;
  /** Ends training cleanly after the current step. */
  stop(reason: string): void;
  /** Updates the progress display. */
  report(progress: Pick<Progress, "phase" | "done" | "total">): void;
  /** Milliseconds from an arbitrary origin; use it to measure durations. */
  clock(): number;
}

/**
 * A hook into training. Callbacks run in the order given; an error in one ends training and is reported with the
 * callback's name.
 *
 * Checkpoints include the state of every callback with `getState` and `setState`, under its name.
 */
export interface TrainingCallback<S = Conversation, A = Message> extends Partial<Stateful> {
  /** Unique; used in messages and as the key of its state in checkpoints. */
  readonly name: string;
  /** Before the first step, or the first step after resuming. */
  onTrainBegin?(control: TrainingControl): void | Promise<void>;
  /** After the rollouts of a step, before its updates. */
  onExperience?(experience: Experience<S, A, unknown>, control: TrainingControl): void | Promise<void>;
  /** After the updates of a step; returned metrics are added to the step's record. */
  onMeasure?(
    values: StepValues,
    control: TrainingControl,
  ): Record<string, MetricValue> | void | Promise<Record<string, MetricValue> | void>;
  /** With the complete record of a step, before it is written. */
  onStep?(record: MetricsRecord, control: TrainingControl): void | Promise<void>;
  /** After the step's record, and its checkpoint if one was due, have been written. */
  onStepKept?(record: MetricsRecord, control: TrainingControl): void | Promise<void>;
  /** After a checkpoint was written. */
  onCheckpoint?(folder: string, control: TrainingControl): void | Promise<void>;
  /** After the last step, or the step in which `stop` was called; not after an error. */
  onTrainEnd?(control: TrainingControl): void | Promise<void>;
}

export const HOOKS = [
  "onTrainBegin",
  "onExperience",
  "onMeasure",
  "onStep",
  "onStepKept",
  "onCheckpoint",
  "onTrainEnd",
] as const;

export type Hook = (typeof HOOKS)[number];

/** The callbacks of a trainer, in order: the user's first, then its own. */
export class Callbacks<S = Conversation, A = Message> {
  readonly #given: ReadonlySet<TrainingCallback<S, A>>;
  readonly #all: TrainingCallback<S, A>[] = [];

  /** @throws UsageError for two callbacks with the same name */
  constructor(given: readonly TrainingCallback<S, A>[]) {
    this.#given = new Set(given);
    for (const callback of given) this.add(callback);
  }

  /** Adds one of the trainer's own callbacks; their errors are rethrown unchanged. */
  add(callback: TrainingCallback<S, A>): void {
    if (this.#all.some(({ name }) => name === callback.name)) {
      throw new UsageError(
        "duplicate-name",
        `training: two callbacks are named ${JSON.stringify(callback.name)}; give each its own name`,
      );
    }
    this.#all.push(callback);
  }

  /**
   * @returns what the callbacks returned
   * @throws AstraError that names the failed callback
   */
  async call<H extends Hook>(
    hook: H,
    control: TrainingControl,
    ...args: Parameters<NonNullable<TrainingCallback<S, A>[H]>> extends [...infer Given, TrainingControl]
      ? Given
      : never
  ): Promise<unknown[]> {
    const results: unknown[] = [];
    for (const callback of this.#all) {
      const method = callback[hook] as ((...all: unknown[]) => unknown) | undefined;
      try {
        results.push(await method?.call(callback, ...args, control));
      } catch (cause) {
        if (!this.#given.has(callback)) throw cause;
        const message = `training: callback ${callback.name} failed in ${hook} at step ${control.step}: ${messageOf(cause)}`;
        throw cause instanceof UsageError
          ? new UsageError(cause.rule, message, { cause })
          : new AstraError(message, { cause });
      }
    }
    return results;
  }

  /** State by callback name. */
  getState(): Record<string, Json> {
    return Object.fromEntries(
      this.#all.flatMap((callback): [string, Json][] => {
        const state = callback.getState?.();
        return state === undefined ? [] : [[callback.name, state]];
      }),
    );
  }

  /**
   * Restores every callback that has saved state. Callbacks without it start fresh; state without a callback is
   * dropped.
   */
  setState(states: Readonly<Record<string, Json>>): void {
    for (const callback of this.#all) {
      if (Object.hasOwn(states, callback.name)) callback.setState?.(states[callback.name]!);
    }
  }
}
