import { UsageError } from "@astra-rl/torch";
import type { Json, Stateful } from "../../core/index.js";
import type { MetricValue } from "../../records/index.js";
import { Windows, type Change } from "./windows.js";

/** Metrics of a training step, or those that a watch uses. */
export type WatchedValues = Readonly<Record<string, MetricValue>>;

/**
 * Watches a run for one kind of problem: compares its first and last ten steps, and warns once.
 *
 * Steps without the metrics are skipped.
 */
export abstract class Watch implements Stateful {
  /** Key of its state in checkpoints. */
  abstract readonly name: string;
  readonly #windows = new Windows();
  #warned = false;

  /** The values of a step to compare; null if unknown. */
  protected abstract figures(values: WatchedValues): readonly number[] | null;

  /** The warning about the changes, with numbers and advice; null if there is none. */
  protected abstract judge(changes: readonly Change[]): string | null;

  /** Adds a training step. @returns a warning; null if there is none, or if it was given before */
  add(values: WatchedValues): string | null {
    const figures = this.figures(values);
    const changes = figures === null ? null : this.#windows.add(figures);
    if (changes === null || this.#warned) return null;
    const warning = this.judge(changes);
    if (warning === null) return null;
    this.#warned = true;
    return `${warning} (said once)`;
  }

  getState(): Json {
    return { windows: this.#windows.getState(), warned: this.#warned };
  }

  setState(state: Json): void {
    const { windows, warned } = (state ?? {}) as { windows?: Json; warned?: boolean };
    if (windows === undefined || warned === undefined) {
      throw new UsageError(`${this.name}: this is no state of a watch that getState() returned`);
    }
    this.#windows.setState(windows);
    this.#warned = warned;
  }
}

/** Minimum change in standard errors; smaller ones may be chance. */
const ERRORS = 3;

/** Tolerance, so that rounding does not decide about changes exactly at a limit. */
export const ROUNDING = 1e-9;

/** Whether a value changed by at least `by`, in its direction, and beyond chance. */
export function moved({ before, after, standardError }: Change, by: number): boolean {
  const difference = by < 0 ? before - after : after - before;
  return difference >= Math.abs(by) - ROUNDING && difference >= ERRORS * standardError;
}

/** A metric of a step; null if unknown. */
export function numberAt(values: WatchedValues, key: string): number | null {
  const value = values[key];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
