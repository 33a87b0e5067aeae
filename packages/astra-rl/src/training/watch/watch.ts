import { UsageError } from "@astra-rl/torch";
import type { Json, Stateful } from "../../core/index.js";
import type { MetricValue } from "../../records/index.js";

/** Steps in each of the two compared windows. */
export const WINDOW = 10;

/** Mean of a metric over each window. */
export interface Change {
  before: number;
  after: number;
  /** Standard error of the difference of the means, over steps, because turns within a step are correlated. */
  standardError: number;
}

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
  /** The figures of the first and the last ten steps that have them. */
  #first: (readonly number[])[] = [];
  #last: (readonly number[])[] = [];
  #warned = false;

  /** The values of a step to compare; null if unknown. */
  protected abstract figures(values: WatchedValues): readonly number[] | null;

  /** The warning about the changes, with numbers and advice; null if there is none. */
  protected abstract judge(changes: readonly Change[]): string | null;

  /** Adds a training step. @returns a warning; null if there is none, or if it was given before */
  add(values: WatchedValues): string | null {
    const figures = this.figures(values);
    if (figures === null) return null;
    if (this.#first.length < WINDOW) {
      this.#first.push(figures);
      return null;
    }
    this.#last = [...this.#last, figures].slice(-WINDOW);
    if (this.#last.length < WINDOW || this.#warned) return null;
    const column = (rows: readonly (readonly number[])[], at: number) => rows.map((row) => row[at]!);
    const warning = this.judge(
      figures.map((_, at) => change(column(this.#first, at), column(this.#last, at))),
    );
    if (warning === null) return null;
    this.#warned = true;
    return `${warning} (said once)`;
  }

  getState(): Json {
    return { windows: { first: this.#first, last: this.#last }, warned: this.#warned };
  }

  setState(state: Json): void {
    const { windows, warned } = (state ?? {}) as {
      windows?: { first?: number[][]; last?: number[][] };
      warned?: boolean;
    };
    const { first, last } = windows ?? {};
    if (!Array.isArray(first) || !Array.isArray(last) || warned === undefined) {
      throw new UsageError(`${this.name}: this is no state of a watch that getState() returned`);
    }
    this.#first = [...first];
    this.#last = [...last];
    this.#warned = warned;
  }
}

function change(first: readonly number[], last: readonly number[]): Change {
  const [a, b] = [first, last].map((rates) => {
    const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
    const squares = rates.reduce((sum, rate) => sum + (rate - mean) ** 2, 0);
    return { mean, variance: squares / (rates.length - 1) / rates.length };
  }) as [{ mean: number; variance: number }, { mean: number; variance: number }];
  return { before: a.mean, after: b.mean, standardError: Math.sqrt(a.variance + b.variance) };
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

export const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;
