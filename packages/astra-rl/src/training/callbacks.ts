import { AstraError, UsageError } from "@astra-rl/torch";
import {
  messageOf,
  type Graph,
  type Json,
  type Stateful,
  type Message,
  type Conversation,
} from "../core/index.js";
import type { MetricsRecord } from "../records/index.js";

/** What a callback may ask of the trainer that calls it. */
export interface TrainingControl {
  /** Training steps done. */
  readonly step: number;
  /** Training steps of the whole run. */
  readonly steps: number;
  /** Ends training after the step in progress, in order. */
  stop(reason: string): void;
}

/**
 * Takes part in training at its turning points. Callbacks are called one after the other, in the order in which they were
 * given; what one throws ends training with an error that names it.
 *
 * What a callback remembers is part of checkpoints where it has `getState` and `setState`, under its name.
 */
export interface TrainingCallback<S = Conversation, A = Message> extends Partial<Stateful> {
  /** Tells it from the others, in messages and in checkpoints. */
  readonly name: string;
  /** Before the first step, or before that with which a resumed run goes on. */
  onTrainBegin?(control: TrainingControl): void | Promise<void>;
  /** What was grown for a step, before anything is learned from it. */
  onExperience?(graphs: readonly Graph<S, A>[], control: TrainingControl): void | Promise<void>;
  /** What a step gave, its evaluation included, before it is kept. */
  onStep?(record: MetricsRecord, control: TrainingControl): void | Promise<void>;
  /** The step is kept, its line and its checkpoint where one is due: whoever is told of it finds it on the disk. */
  onStepKept?(record: MetricsRecord, control: TrainingControl): void | Promise<void>;
  /** A checkpoint was written. */
  onCheckpoint?(folder: string, control: TrainingControl): void | Promise<void>;
  /** Training has ended in order: all steps are done, or somebody asked it to stop. */
  onTrainEnd?(control: TrainingControl): void | Promise<void>;
}

/** When callbacks are called. */
export const HOOKS = [
  "onTrainBegin",
  "onExperience",
  "onStep",
  "onStepKept",
  "onCheckpoint",
  "onTrainEnd",
] as const;

export type Hook = (typeof HOOKS)[number];

/** The callbacks of a trainer, in their order. */
export class Callbacks<S = Conversation, A = Message> {
  readonly #all: readonly TrainingCallback<S, A>[];

  /** @throws UsageError for two of one name */
  constructor(all: readonly TrainingCallback<S, A>[]) {
    const names = all.map(({ name }) => name);
    const twice = names.find((name, at) => names.indexOf(name) !== at);
    if (twice !== undefined) {
      throw new UsageError(
        `training: two callbacks are named ${JSON.stringify(twice)}; give each its own name`,
      );
    }
    this.#all = all;
  }

  /** @throws AstraError that names the callback which failed */
  async call<H extends Hook>(
    hook: H,
    control: TrainingControl,
    ...args: Parameters<NonNullable<TrainingCallback<S, A>[H]>> extends [...infer Given, TrainingControl]
      ? Given
      : never
  ): Promise<void> {
    for (const callback of this.#all) {
      const method = callback[hook] as ((...all: unknown[]) => void | Promise<void>) | undefined;
      try {
        await method?.call(callback, ...args, control);
      } catch (cause) {
        const message = `training: callback ${callback.name} failed in ${hook} at step ${control.step}: ${messageOf(cause)}`;
        throw cause instanceof UsageError
          ? new UsageError(message, { cause })
          : new AstraError(message, { cause });
      }
    }
  }

  /** What they remember, by name. */
  getState(): Record<string, Json> {
    const states = this.#all.flatMap(({ name }, at): [string, Json][] => {
      const state = this.#all[at]!.getState?.();
      return state === undefined ? [] : [[name, state]];
    });
    return Object.fromEntries(states);
  }

  /** Gives each its own back; one that was not there starts afresh, what another left is dropped. */
  setState(states: Readonly<Record<string, Json>>): void {
    for (const callback of this.#all) {
      if (Object.hasOwn(states, callback.name)) callback.setState?.(states[callback.name]!);
    }
  }
}
