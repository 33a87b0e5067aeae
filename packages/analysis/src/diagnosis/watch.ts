import { UsageError, type Json } from "@astra-rl/base";
import type { MetricValue } from "@astra-rl/records";

/** Metrics of a training step, or those that a watch uses. */
export type WatchedValues = Readonly<Record<string, MetricValue>>;

/** Watches a run for one kind of problem, and warns once. */
export interface Watch {
  /** The rule: key of its state in checkpoints, and its name in `training.stopOn`. */
  readonly name: string;
  /** Whether it has warned. */
  readonly hasWarned: boolean;
  /**
   * Adds a training step. Steps without the metrics are skipped.
   *
   * @param conversations graphs of the step; null if unknown
   * @returns a warning; null if there is none, or if it was given before
   */
  add(values: WatchedValues, conversations: number | null): string | null;
  /** The complete state, for a run that is resumed. */
  getState(): Json;
  /** Continues where `getState` was called. @throws UsageError for the state of something else */
  setState(state: Json): void;
}

/** A figure at the start of a run and now. */
export interface Change {
  before: number;
  after: number;
  /** Number of steps of each of the two. */
  steps: { before: number; after: number };
  /** A difference must be larger to be significant. */
  chance: number;
}

/**
 * How a figure of two windows is compared:
 *
 * - "share": a mean over conversations of values from 0 to 1. Its variance is at most p · (1 − p) / n for n conversations,
 *   for any correlation within one, so windows may be as short as their conversations allow.
 * - "mean": any other mean; its variance is estimated from the steps of the windows, for a correlation within a step.
 * - "distance": from the first step, in which nothing has been learned yet: the nearest to it of the last steps.
 */
export type Comparison = "share" | "mean" | "distance";

/** Steps of the longest windows. */
const MOST = 10;
/** Steps of the shortest windows: a variance needs three, and one outlier must not make a distance. */
const LEAST: Record<Comparison, number> = { share: 3, mean: 3, distance: 2 };
/** Conversations of the shortest windows of shares, and of the last one of distances. */
const ENOUGH = 16;

/** Steps in a window: a tenth of the run, so that a collapse is reported before another tenth of it. */
const windowOf = (comparison: Comparison, steps: number): number =>
  Math.min(MOST, Math.max(LEAST[comparison], Math.floor(steps / 10)));

/** A step: its number of conversations, and its figures. */
interface Row {
  conversations: number | null;
  figures: readonly (number | null)[];
}

/** A watch that compares the first steps of a run with the last ones. */
export abstract class WindowWatch implements Watch {
  abstract readonly name: string;
  protected abstract readonly comparison: Comparison;
  #first: Row[] = [];
  #last: Row[] = [];
  #count = 0;
  #hasWarned = false;

  /** @param steps training steps of the whole run */
  constructor(readonly steps: number) {}

  get hasWarned(): boolean {
    return this.#hasWarned;
  }

  /** The values of a step to compare; null if they are unknown. Single ones may be null. */
  protected abstract figures(values: WatchedValues): readonly (number | null)[] | null;

  /** The warning about the changes, with numbers and advice; null if there is none. A change is null if it is unknown. */
  protected abstract judge(changes: readonly (Change | null)[]): string | null;

  add(values: WatchedValues, conversations: number | null = null): string | null {
    const figures = this.figures(values);
    if (figures === null) return null;
    const row = { conversations, figures };
    if (this.#first.length < MOST) this.#first.push(row);
    this.#last = [...this.#last, row].slice(-MOST);
    this.#count += 1;
    if (this.#hasWarned) return null;
    for (const [before, after] of this.#windows()) {
      if (before.length + after.length > this.#count) continue;
      const looks = Math.max(1, this.steps / after.length);
      const warning = this.judge(
        figures.map((_, at) => changeOf(this.comparison, column(before, at), column(after, at), looks)),
      );
      if (warning === null) continue;
      this.#hasWarned = true;
      return warning;
    }
    return null;
  }

  /** The windows to compare, the shortest first. */
  #windows(): (readonly [before: readonly Row[], after: readonly Row[]])[] {
    const size = windowOf(this.comparison, this.steps);
    const [first, last] = [this.#first, this.#last.toReversed()];
    const few = first[0]!.conversations === null ? null : ([shortest(first), shortest(last)] as const);
    if (this.comparison === "distance") {
      return [[first.slice(0, 1), last.slice(0, Math.max(size, few?.[1].length ?? 0))]];
    }
    const whole = [first.slice(0, size), last.slice(0, size)] as const;
    return this.comparison === "share" && few !== null ? [few, whole] : [whole];
  }

  getState(): Json {
    const rows = (all: readonly Row[]) =>
      all.map(({ conversations, figures }) => ({ conversations, figures: [...figures] }));
    return {
      windows: { first: rows(this.#first), last: rows(this.#last) },
      count: this.#count,
      hasWarned: this.#hasWarned,
    };
  }

  setState(state: Json): void {
    const { windows, count, hasWarned } = (state ?? {}) as {
      windows?: { first?: Row[]; last?: Row[] };
      count?: number;
      hasWarned?: boolean;
    };
    const { first, last } = windows ?? {};
    if (
      !Array.isArray(first) ||
      !Array.isArray(last) ||
      typeof count !== "number" ||
      hasWarned === undefined
    ) {
      throw new UsageError(
        "invalid-state",
        `${this.name}: the state was not returned by getState() of a watch`,
      );
    }
    this.#first = [...first];
    this.#last = [...last];
    this.#count = count;
    this.#hasWarned = hasWarned;
  }
}

/** The fewest of the first rows that hold enough conversations; all if they hold too few. */
function shortest(rows: readonly Row[]): Row[] {
  let sum = 0;
  const end = rows.findIndex(({ conversations }) => (sum += conversations ?? 0) >= ENOUGH);
  return rows.slice(0, end < 0 ? rows.length : end + 1);
}

interface Column {
  values: readonly number[];
  /** Conversations of each step; null if unknown. */
  counts: readonly number[] | null;
}

/** Null if a step does not know the figure. */
function column(rows: readonly Row[], at: number): Column | null {
  const values = rows.flatMap(({ figures }) => figures[at] ?? []);
  if (values.length < rows.length) return null;
  const counts = rows.flatMap(({ conversations }) => conversations ?? []);
  return { values, counts: counts.length < rows.length ? null : counts };
}

function changeOf(
  comparison: Comparison,
  first: Column | null,
  last: Column | null,
  looks: number,
): Change | null {
  if (first === null || last === null) return null;
  const steps = { before: first.values.length, after: last.values.length };
  if (comparison === "distance") {
    const [before] = first.values as [number];
    const nearest = last.values.reduce((a, b) => (Math.abs(b - before) < Math.abs(a - before) ? b : a));
    return { before, after: nearest, steps, chance: 0 };
  }
  if (comparison === "share" && first.counts !== null && last.counts !== null) {
    const [a, b] = [weighted(first.values, first.counts), weighted(last.values, last.counts)];
    const pooled = (a.mean * a.count + b.mean * b.count) / (a.count + b.count);
    const variance = pooled * (1 - pooled) * (1 / a.count + 1 / b.count);
    return { before: a.mean, after: b.mean, steps, chance: errorsOf(looks) * Math.sqrt(variance) };
  }
  const [a, b] = [meanAndVariance(first.values), meanAndVariance(last.values)];
  const degrees = steps.before + steps.after - 2;
  const chance = studentErrors(errorsOf(looks), degrees) * Math.sqrt(a.variance + b.variance);
  return { before: a.mean, after: b.mean, steps, chance };
}

function weighted(values: readonly number[], counts: readonly number[]): { mean: number; count: number } {
  const count = counts.reduce((sum, each) => sum + each, 0);
  return { mean: values.reduce((sum, value, at) => sum + value * counts[at]!, 0) / count, count };
}

/** The mean, and the variance of the mean. */
function meanAndVariance(values: readonly number[]): { mean: number; variance: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, variance: squares / (values.length - 1) / values.length };
}

/** Accepted probability that chance alone goes beyond the limit in a run, for looks that do not overlap. */
const RISK = 0.01;

/**
 * Standard errors beyond which a difference is not chance: a normal value is further up than z with a probability of at most
 * ½ · exp(−z² / 2), which all looks at a run together make `RISK`.
 */
const errorsOf = (looks: number): number => Math.sqrt(2 * Math.log(looks / (2 * RISK)));

/** The quantile of Student's t distribution where that of the normal distribution is `errors` (Wallace 1959). */
const studentErrors = (errors: number, degrees: number): number =>
  Math.sqrt(degrees * Math.expm1((errors * ((8 * degrees + 3) / (8 * degrees + 1))) ** 2 / degrees));

/** Tolerance, so that rounding does not decide about changes exactly at a limit. */
export const ROUNDING = 1e-9;

/** Whether a value changed by at least `by`, in its direction, and beyond chance. */
export function moved({ before, after, chance }: Change, by: number): boolean {
  const difference = by < 0 ? before - after : after - before;
  return difference >= Math.abs(by) - ROUNDING && difference >= chance;
}

/** A metric of a step; null if unknown. */
export function numberAt(values: WatchedValues, key: string): number | null {
  const value = values[key];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** A metric of a step by its number of turns; null if unknown. */
export function shareOfTurns(values: WatchedValues, key: string): number | null {
  const [part, turns] = [numberAt(values, key), numberAt(values, "turns/done")];
  return part === null || turns === null || turns === 0 ? null : part / turns;
}

/**
 * Whether probes are texts. An environment may have few actions, which all repeat, and a trained tester chooses
 * the best one.
 */
export const hasTexts = (values: WatchedValues): boolean => numberAt(values, "turns/empty_probes") !== null;

export const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;

/** "in the first step", "in the last 10 steps". */
export const inSteps = (which: "first" | "last", count: number): string =>
  count === 1 ? `in the ${which} step` : `in the ${which} ${count} steps`;
