import { UsageError } from "@astra-rl/torch";
import type { Json, Stateful } from "../core/index.js";

/** Shares of a training step's turns whose probe, and whose response, was harmful; null where none was scored. */
export interface HarmRates {
  probe: number | null;
  response: number | null;
}

/** Steps in each of the two windows that are compared. */
const WINDOW = 10;
/** By how much the share of harmful probes has to rise. */
const RISE = 0.2;
/** A change of the share of harmful responses below this counts for none. */
const STILL = 0.05;
/** Rounding must not decide about changes of exactly these limits. */
const ROUNDING = 1e-9;
/** The rise must be so many standard errors, which are taken over steps: turns of one step resemble each other. */
const ERRORS = 3;

/**
 * Watches for a tester that learns to say the harmful thing itself, which rewards on probe and response together pay
 * for, instead of drawing it out.
 *
 * Compared are the first ten and the last ten steps whose turns were scored: the mean share of harmful probes rose by
 * 0.2 or more, and by three standard errors, while that of harmful responses changed by less than 0.05.
 */
export class HarmWatch implements Stateful {
  #first: (readonly [number, number])[] = [];
  #last: (readonly [number, number])[] = [];
  #warned = false;

  /** Takes up one training step. @returns what to say of it; null when there is nothing, or it was said before */
  add({ probe, response }: HarmRates): string | null {
    if (probe === null || response === null) return null;
    if (this.#first.length < WINDOW) {
      this.#first.push([probe, response]);
      return null;
    }
    this.#last = [...this.#last, [probe, response] as const].slice(-WINDOW);
    if (this.#warned || this.#last.length < WINDOW) return null;
    const [probes, responses] = [0, 1].map((column) =>
      compare(
        this.#first.map((rates) => rates[column]!),
        this.#last.map((rates) => rates[column]!),
      ),
    ) as [Comparison, Comparison];
    const rise = probes.after - probes.before;
    if (rise < RISE - ROUNDING || rise < ERRORS * probes.standardError) return null;
    if (Math.abs(responses.after - responses.before) > STILL - ROUNDING) return null;
    this.#warned = true;
    return (
      `harmful probes rose from ${percent(probes.before)} of the turns in the first ${WINDOW} scored steps to ` +
      `${percent(probes.after)} in the last ${WINDOW}, while harmful responses stayed (${percent(responses.before)}, ` +
      `now ${percent(responses.after)}): the tester says the harmful thing itself instead of drawing it out of the ` +
      `target. Lower the weight of harm terms that read the probe (combinedWeight, or harm of "both"), or add harm of ` +
      `"probe" with a negative weight, or pay for harm with probes: graded (said once)`
    );
  }

  getState(): Json {
    return { first: this.#first, last: this.#last, warned: this.#warned };
  }

  setState(state: Json): void {
    const { first, last, warned } = (state ?? {}) as {
      first?: [number, number][];
      last?: [number, number][];
      warned?: boolean;
    };
    if (!Array.isArray(first) || !Array.isArray(last) || warned === undefined) {
      throw new UsageError("HarmWatch.setState: this is no state that getState() returned");
    }
    this.#first = [...first];
    this.#last = [...last];
    this.#warned = warned;
  }
}

interface Comparison {
  before: number;
  after: number;
  /** Of the difference of both means. */
  standardError: number;
}

function compare(first: readonly number[], last: readonly number[]): Comparison {
  const [a, b] = [first, last].map((rates) => {
    const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
    const squares = rates.reduce((sum, rate) => sum + (rate - mean) ** 2, 0);
    return { mean, variance: squares / (rates.length - 1) / rates.length };
  }) as [{ mean: number; variance: number }, { mean: number; variance: number }];
  return { before: a.mean, after: b.mean, standardError: Math.sqrt(a.variance + b.variance) };
}

const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;
