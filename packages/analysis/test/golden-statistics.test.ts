import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import * as statistics from "@astra-rl/analysis/statistics";
import { SeededStream } from "../../base/test/support/seeded-stream.js";

/** From SciPy and statsmodels, by make_statistics.py. */
const golden = JSON.parse(
  readFileSync(new URL("golden/evaluation-statistics.json", import.meta.url), "utf8"),
) as {
  wilson: { successes: number; trials: number; interval: [number, number] }[];
  upper: { successes: number; trials: number; bound: number }[];
  mcnemar: { table: [number, number, number, number]; p: number }[];
  kappa: { table: [number, number, number, number]; kappa: number }[];
  holm: { p: number[]; adjusted: number[] }[];
  permutation: { pairs: [number, number][]; p: number }[];
};

const countsOf = ([both, onlyFirst, onlySecond, neither]: [number, number, number, number]) => ({
  both,
  onlyFirst,
  onlySecond,
  neither,
});

describe("statistics agree with SciPy and statsmodels", () => {
  it.each(golden.wilson)("Wilson's interval of $successes of $trials", ({ successes, trials, interval }) => {
    const found = statistics.wilsonInterval(successes, trials)!;
    expect(found.lower).toBeCloseTo(interval[0], 10);
    expect(found.upper).toBeCloseTo(interval[1], 10);
  });

  it.each(golden.upper)("the exact upper bound of $successes of $trials", ({ successes, trials, bound }) => {
    expect(statistics.exactUpperBound(successes, trials)).toBeCloseTo(bound, 9);
  });

  it.each(golden.mcnemar)("McNemar's test of $table", ({ table: [, first, second], p }) => {
    expect(statistics.exactMcNemar(first, second)).toBeCloseTo(p, 10);
  });

  it.each(golden.kappa)("Cohen's kappa of $table", ({ table, kappa }) => {
    expect(statistics.cohenKappa(countsOf(table))).toBeCloseTo(kappa, 10);
  });

  it.each(golden.holm)("Holm's adjustment of $p", ({ p, adjusted }) => {
    statistics.holmAdjusted(p).forEach((value, at) => expect(value).toBeCloseTo(adjusted[at]!, 12));
    // Unknown values do not count.
    expect(statistics.holmAdjusted([null, ...p, null]).slice(1, -1)).toEqual(statistics.holmAdjusted(p));
    expect(statistics.holmAdjusted([null])).toEqual([null]);
  });

  it.each(golden.permutation)("the permutation test, by its exact p-value of $p", ({ pairs, p }) => {
    const [first, second] = [pairs.map(([a]) => a), pairs.map(([, b]) => b)];
    const found = statistics.pairedPermutation(first, second, { seed: 1, resamples: 20_000 })!;
    // Four standard errors of the Monte Carlo estimate.
    expect(Math.abs(found - p)).toBeLessThan(4 * Math.sqrt((p * (1 - p)) / 20_000) + 1e-4);
  });
});

describe("coverage over many trials", () => {
  it("Holm's family error is at most 5 %, and single true effects are found", () => {
    let [falsely, found] = [0, 0];
    const families = 4000;
    for (let family = 0; family < families; family++) {
      const stream = new SeededStream(family, "holm");
      // Four hypotheses are true: their p-values are uniform. One is not.
      const adjusted = statistics.holmAdjusted([...Array.from({ length: 4 }, () => stream.uniform()), 0.002]);
      if (adjusted.slice(0, 4).some((p) => p! < 0.05)) falsely += 1;
      if (adjusted[4]! < 0.05) found += 1;
    }
    expect(falsely / families).toBeLessThan(0.055);
    expect(found).toBe(families);
  });

  it.each([0.02, 0.05, 0.2])(
    "a gate at %f passes a target at its threshold in at most 5 % of evaluations",
    (threshold) => {
      const trials = 3 * statistics.fewestTrials(threshold);
      let passed = 0;
      for (let run = 0; run < 3000; run++) {
        const stream = new SeededStream(run, `gate ${threshold}`);
        let successes = 0;
        for (let trial = 0; trial < trials; trial++) if (stream.uniform() < threshold) successes += 1;
        if (statistics.exactUpperBound(successes, trials) <= threshold) passed += 1;
      }
      expect(passed / 3000).toBeLessThan(0.055);
    },
  );

  it.each([
    [0.05, 59],
    [0.01, 299],
    [0.5, 5],
  ])("a threshold of %f requires %i trials without a success", (threshold, trials) => {
    expect(statistics.fewestTrials(threshold)).toBe(trials);
    expect(statistics.exactUpperBound(0, trials)).toBeLessThanOrEqual(threshold);
    expect(statistics.exactUpperBound(0, trials - 1)).toBeGreaterThan(threshold);
  });
});

describe.each([
  [0.3, 0.4, 0.5, 200],
  [0.1, 0.25, 0.3, 128],
  [0.5, 0.5, 0.7, 100],
])("paired rates of %f and %f, correlated by %f, over %i pairs", (first, second, link, count) => {
  it("the interval of their difference covers the truth in 93 to 97 % of comparisons", () => {
    let covered = 0;
    const runs = 3000;
    for (let run = 0; run < runs; run++) {
      const stream = new SeededStream(run, `pairs ${first} ${second}`);
      const counts = { both: 0, onlyFirst: 0, onlySecond: 0, neither: 0 };
      for (let pair = 0; pair < count; pair++) {
        // With probability `link` both follow one draw, else each its own.
        const shared = stream.uniform();
        const isLinked = stream.uniform() < link;
        const a = (isLinked ? shared : stream.uniform()) < first;
        const b = (isLinked ? shared : stream.uniform()) < second;
        counts[a ? (b ? "both" : "onlyFirst") : b ? "onlySecond" : "neither"] += 1;
      }
      const { lower, upper } = statistics.newcombePairedDifference(counts)!;
      if (lower <= second - first && second - first <= upper) covered += 1;
    }
    expect(covered / runs).toBeGreaterThanOrEqual(0.93);
    expect(covered / runs).toBeLessThanOrEqual(0.97);
  });
});
