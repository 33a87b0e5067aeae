import { UsageError } from "@astra-rl/torch";
import type { Json, Stateful } from "../../core/index.js";

/** Steps in each of the two compared windows. */
export const WINDOW = 10;

/** Mean of a metric over each window. */
export interface Change {
  before: number;
  after: number;
  /** Standard error of the difference of the means, over steps, because turns within a step are correlated. */
  standardError: number;
}

/** Metrics of the first ten and the last ten steps that have them. */
export class Windows implements Stateful {
  #first: (readonly number[])[] = [];
  #last: (readonly number[])[] = [];

  /** @returns the change of each metric, once ten steps follow the first ten; null before */
  add(figures: readonly number[]): Change[] | null {
    if (this.#first.length < WINDOW) {
      this.#first.push(figures);
      return null;
    }
    this.#last = [...this.#last, figures].slice(-WINDOW);
    if (this.#last.length < WINDOW) return null;
    return figures.map((_, column) =>
      change(
        this.#first.map((row) => row[column]!),
        this.#last.map((row) => row[column]!),
      ),
    );
  }

  getState(): Json {
    return { first: this.#first, last: this.#last };
  }

  setState(state: Json): void {
    const { first, last } = (state ?? {}) as { first?: number[][]; last?: number[][] };
    if (!Array.isArray(first) || !Array.isArray(last)) {
      throw new UsageError("Windows.setState: this is no state that getState() returned");
    }
    this.#first = [...first];
    this.#last = [...last];
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
