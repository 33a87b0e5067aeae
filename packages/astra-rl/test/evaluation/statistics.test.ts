import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { statistics } from "../../src/evaluation/index.js";
import {
  bootstrapMean,
  clusteredWilsonInterval,
  cohenKappa,
  exactMcNemar,
  logGamma,
  mean,
  meanInterval,
  seedInterval,
  newcombePairedDifference,
  normalCdf,
  normalQuantile,
  pairedBootstrap,
  pairedPermutation,
  quantile,
  standardDeviation,
  studentTCdf,
  studentTQuantile,
  wilsonInterval,
} from "../../src/evaluation/statistics/index.js";

type Rows = number[][];
const golden = JSON.parse(readFileSync(new URL("golden/statistics.json", import.meta.url), "utf8")) as {
  logGamma: Rows;
  normalCdf: Rows;
  normalQuantile: Rows;
  studentTCdf: Rows;
  studentTQuantile: Rows;
  wilson: Rows;
  mcnemar: Rows;
};

function expectClose(actual: number, expected: number, tolerance = 1e-12): void {
  expect(Math.abs(actual - expected), `${actual} against ${expected}`).toBeLessThanOrEqual(
    tolerance * Math.max(1e-3, Math.abs(expected)),
  );
}

describe("a share of items that come in groups", () => {
  it("counts items that resemble each other as fewer", () => {
    // Four groups of two, all or nothing: p = ½, Σ (h − 2p)² = 4, so the share's variance is 4/3 · 4/64 = 1/12, against
    // ¼/8 = 1/32 of eight independent items: deff 8/3, as if there were 3 items.
    const groups = [2, 2, 0, 0].map((successes) => ({ successes, trials: 2 }));
    const z2 = 3.841458820694124;
    const half = (Math.sqrt(z2) * Math.sqrt(1 / 12 + z2 / 36)) / (1 + z2 / 3);
    const interval = clusteredWilsonInterval(groups)!;
    expect(interval.estimate).toBe(0.5);
    expect(interval.lower).toBeCloseTo(0.5 - half, 12);
    expect(interval.upper).toBeCloseTo(0.5 + half, 12);
  });

  it("is Wilson's where groups tell nothing, and counts groups where all items agree", () => {
    // Every group has its share of the successes: no variance between groups, deff is held at 1.
    const even = Array.from({ length: 5 }, () => ({ successes: 1, trials: 2 }));
    expect(clusteredWilsonInterval(even)).toEqual(wilsonInterval(5, 10));
    const none = Array.from({ length: 20 }, () => ({ successes: 0, trials: 3 }));
    expect(clusteredWilsonInterval(none)).toEqual(wilsonInterval(0, 20));
    expect(clusteredWilsonInterval([...none, { successes: 0, trials: 0 }])).toEqual(wilsonInterval(0, 20));
    const all = [{ successes: 3, trials: 3 }];
    expect(clusteredWilsonInterval(all)).toEqual(wilsonInterval(1, 1));
    expect(clusteredWilsonInterval([])).toBeNull();
    expect(() => clusteredWilsonInterval([{ successes: 2, trials: 1 }])).toThrow("clusteredWilsonInterval");
  });
});

describe("distributions agree with mpmath", () => {
  it.each(golden.logGamma)("log gamma of %d", (x, expected) => expectClose(logGamma(x!), expected!));
  it.each(golden.normalCdf)("normal distribution at %d", (x, expected) =>
    expectClose(normalCdf(x!), expected!),
  );
  it.each(golden.normalQuantile)("normal quantile of %d", (p, expected) =>
    expectClose(normalQuantile(p!), expected!),
  );
  it.each(golden.studentTCdf)("t distribution at %d, %d degrees", (t, degrees, expected) =>
    expectClose(studentTCdf(t!, degrees!), expected!),
  );
  it.each(golden.studentTQuantile)("t quantile of %d, %d degrees", (p, degrees, expected) =>
    expectClose(studentTQuantile(p!, degrees!), expected!),
  );

  it("has infinite quantiles at 0 and 1 and refuses anything outside", () => {
    expect(normalQuantile(0)).toBe(-Infinity);
    expect(studentTQuantile(1, 4)).toBe(Infinity);
    expect(() => normalQuantile(1.2)).toThrow("normalQuantile: p must lie in [0, 1], got 1.2");
    expect(() => studentTQuantile(0.5, 0)).toThrow("degrees of freedom must be greater than 0, got 0");
  });
});

describe("Wilson's interval", () => {
  it.each(golden.wilson)("%d of %d at %d", (k, n, confidence, lower, upper) => {
    const interval = wilsonInterval(k!, n!, confidence)!;
    expectClose(interval.lower, lower!);
    expectClose(interval.upper, upper!);
    expect(interval.estimate).toBe(k! / n!);
  });

  it("is z²/(n + z²) wide at the ends, where the usual interval has no width", () => {
    // With no success the centre is z²/2/(n + z²) and so is the half-width: z² = 3.841458820694124, n = 20.
    expectClose(wilsonInterval(0, 20)!.upper, 3.841458820694124 / (20 + 3.841458820694124));
    expect(wilsonInterval(0, 20)!.lower).toBe(0);
    expect(wilsonInterval(20, 20)!.upper).toBe(1);
  });

  it("says nothing about no trials and refuses impossible counts", () => {
    expect(wilsonInterval(0, 0)).toBeNull();
    expect(() => wilsonInterval(3, 2)).toThrow("got 3 of 2");
    expect(() => wilsonInterval(1, 2, 95)).toThrow(
      "confidence must lie between 0 and 1, such as 0.95, got 95",
    );
  });

  it("always holds its estimate and lies in [0, 1]", () => {
    fc.assert(
      fc.property(
        fc.nat(500),
        fc.nat(500),
        fc.double({ min: 0.01, max: 0.999, noNaN: true }),
        (a, b, confidence) => {
          fc.pre(a + b > 0);
          const { lower, estimate, upper } = wilsonInterval(a, a + b, confidence)!;
          expect(0 <= lower && lower <= estimate && estimate <= upper && upper <= 1).toBe(true);
        },
      ),
    );
  });
});

describe("McNemar's exact test", () => {
  it.each(golden.mcnemar)("%d against %d", (b, c, expected) =>
    expectClose(exactMcNemar(b!, c!), expected!, 1e-10),
  );

  it("is a binomial test by hand: 1 of 9 discordant pairs", () => {
    // 2·(C(9,0) + C(9,1))/2⁹ = 2·10/512
    expectClose(exactMcNemar(1, 8), 20 / 512);
    expect(exactMcNemar(0, 0)).toBe(1);
    expect(exactMcNemar(7, 2)).toBe(exactMcNemar(2, 7));
  });
});

describe("Cohen's kappa", () => {
  it("is agreement beyond chance, by hand", () => {
    // Both say yes of 20, the first alone of 5, the second alone of 10, both no of 15: 0.7 agree, 0.5 by chance.
    expectClose(cohenKappa({ both: 20, onlyFirst: 5, onlySecond: 10, neither: 15 })!, 0.4);
    // Independent raters: 0.6 and 0.5 of 100.
    expectClose(cohenKappa({ both: 30, onlyFirst: 30, onlySecond: 20, neither: 20 })!, 0);
    expect(cohenKappa({ both: 3, onlyFirst: 0, onlySecond: 0, neither: 4 })).toBe(1);
    expect(cohenKappa({ both: 0, onlyFirst: 2, onlySecond: 2, neither: 0 })).toBe(-1);
  });

  it("is unknown where chance explains all agreement", () => {
    expect(cohenKappa({ both: 5, onlyFirst: 0, onlySecond: 0, neither: 0 })).toBeNull();
    expect(cohenKappa({ both: 0, onlyFirst: 0, onlySecond: 0, neither: 5 })).toBeNull();
    expect(cohenKappa({ both: 0, onlyFirst: 0, onlySecond: 0, neither: 0 })).toBeNull();
  });
});

describe("Newcombe's interval for a paired difference", () => {
  it("gives the published interval for 36, 12, 2, 0 (Newcombe 1998, table III, method 10)", () => {
    const { estimate, lower, upper } = newcombePairedDifference({
      both: 36,
      onlyFirst: 2,
      onlySecond: 12,
      neither: 0,
    })!;
    expectClose(estimate, 0.2);
    expect(lower).toBeCloseTo(0.0569, 4);
    expect(upper).toBeCloseTo(0.3404, 4);
  });

  it("turns round when the conditions change places", () => {
    const forward = newcombePairedDifference({ both: 5, onlyFirst: 1, onlySecond: 9, neither: 15 })!;
    const backward = newcombePairedDifference({ both: 5, onlyFirst: 9, onlySecond: 1, neither: 15 })!;
    expectClose(forward.lower, -backward.upper);
    expectClose(forward.upper, -backward.lower);
  });

  it("stays in [-1, 1] and around its estimate", () => {
    fc.assert(
      fc.property(fc.nat(60), fc.nat(60), fc.nat(60), fc.nat(60), (both, onlyFirst, onlySecond, neither) => {
        fc.pre(both + onlyFirst + onlySecond + neither > 0);
        const interval = newcombePairedDifference({ both, onlyFirst, onlySecond, neither })!;
        expect(interval.lower).toBeGreaterThanOrEqual(-1 - 1e-12);
        expect(interval.upper).toBeLessThanOrEqual(1 + 1e-12);
        expect(interval.lower).toBeLessThanOrEqual(interval.estimate + 1e-12);
        expect(interval.upper).toBeGreaterThanOrEqual(interval.estimate - 1e-12);
      }),
    );
  });
});

describe("means", () => {
  it("has Student's interval by hand: 1, 2, 3, 4", () => {
    // mean 2.5, s² = 5/3, t(3) at 97.5 % = 3.182446305284263, half-width t·√(5/12)
    const { estimate, lower, upper } = meanInterval([1, 2, 3, 4])!;
    expect(estimate).toBe(2.5);
    expectClose(upper - estimate, 3.182446305284263 * Math.sqrt(5 / 12));
    expectClose(estimate - lower, 3.182446305284263 * Math.sqrt(5 / 12));
    expectClose(standardDeviation([1, 2, 3, 4]), Math.sqrt(5 / 3));
  });

  it("has no interval for fewer than two values", () => {
    expect(meanInterval([3])).toBeNull();
    expect(mean([])).toBeNaN();
  });
});

describe("resampling", () => {
  const values = [0.3, 1.9, -0.4, 2.2, 0.8, 1.1, 0.1, 3.0, -1.2, 0.6];

  it("interpolates quantiles between order statistics", () => {
    expect(quantile(Float64Array.of(0, 10, 20, 30), 0.5)).toBe(15);
    expect(quantile(Float64Array.of(0, 10, 20, 30), 1)).toBe(30);
  });

  it("bootstraps close to the normal interval of the mean, and the same for the same seed", () => {
    const interval = bootstrapMean(values, { seed: 0 })!;
    expect(bootstrapMean(values, { seed: 0 })).toEqual(interval);
    expect(bootstrapMean(values, { seed: 1 })).not.toEqual(interval);
    // The bootstrap's standard error is s·√((n−1)/n)/√n = 0.3839; ±1.96 of that within its Monte-Carlo error.
    const half = 1.96 * standardDeviation(values) * Math.sqrt(0.9 / 10);
    expect(Math.abs(interval.lower - (0.84 - half))).toBeLessThan(0.06);
    expect(Math.abs(interval.upper - (0.84 + half))).toBeLessThan(0.06);
  });

  it("permutes exactly for few pairs: one of 2⁵ patterns and its mirror image", () => {
    // All five differences are positive, so only "all as they are" and "all reversed" reach the observed sum.
    expect(pairedPermutation([0, 0, 0, 0, 0], [1, 2, 3, 4, 5], { seed: 0 })).toBe(2 / 32);
    // Differences ±1: patterns with |sum| ≥ 1 are all of an odd number.
    expect(pairedPermutation([0, 0, 0], [1, 1, -1], { seed: 0 })).toBe(1);
    expect(pairedPermutation([4, 4], [4, 4], { seed: 0 })).toBe(1);
  });

  it("agrees between the exact and the sampled test", () => {
    const zeros = values.map(() => 0);
    const exact = pairedPermutation(zeros, values, { seed: 0 });
    const sampled = pairedPermutation(zeros, values, { seed: 3, resamples: 1000 });
    // 1000 < 2¹⁰, so the second one samples: standard error √(p(1−p)/1000).
    expect(Math.abs(exact - sampled)).toBeLessThan(5 * Math.sqrt((exact * (1 - exact)) / 1000));
  });

  it("never gives p = 0", () => {
    const second = Array.from({ length: 40 }, () => 1);
    expect(
      pairedPermutation(
        second.map(() => 0),
        second,
        { seed: 0, resamples: 99 },
      ),
    ).toBe(1 / 100);
  });

  it("needs as many seconds as firsts", () => {
    expect(() => pairedBootstrap([1], [1, 2], { seed: 0 })).toThrow(
      "pairs need equally many values, got 1 and 2",
    );
  });
});

describe("the interquartile mean", () => {
  it("leaves out a quarter at each end, rounded down", () => {
    expect(statistics.interquartileMean([5, 1, 100, 3])).toBe(4);
    expect(statistics.interquartileMean([1, 2, 90])).toBe(31);
    // scipy.stats.trim_mean([9, 1, 7, 3, 100, 5, 2, 8, 4], 0.25) of SciPy 1.17.1
    expect(statistics.interquartileMean([9, 1, 7, 3, 100, 5, 2, 8, 4])).toBeCloseTo(5.4, 12);
    expect(statistics.interquartileMean([])).toBeNaN();
  });

  it("has a bootstrap interval, and moves less than the mean where one value is far off", () => {
    const values = [0.5, 0.52, 0.48, 0.51, 0.49, 0.5, 0.53, 0.47];
    const off = [...values.slice(0, -1), 9];
    const options = { seed: 1, resamples: 2000 };
    const { estimate, lower, upper } = statistics.bootstrapInterquartileMean(values, options)!;
    expect([lower <= estimate && estimate <= upper, upper - lower < 0.05]).toEqual([true, true]);
    expect(statistics.interquartileMean(off) - estimate).toBeLessThan(0.02);
    expect(statistics.bootstrapMean(off, options)!.estimate).toBeGreaterThan(1.5);
    expect(statistics.bootstrapInterquartileMean([1], options)).toBeNull();
  });
});

describe("the interval over seeds", () => {
  it("is Student's t with n - 1 degrees of freedom", () => {
    // s = 1 and t(0.975, 2) = 4.30265: 2 ± 4.30265 / √3.
    const { estimate, lower, upper } = seedInterval([1, 2, 3])!;
    expect(estimate).toBe(2);
    expect(lower).toBeCloseTo(-0.484138, 6);
    expect(upper).toBeCloseTo(4.484138, 6);
    // s² = 5/3 and t(0.95, 3) = 2.35336: 2.5 ± 2.35336 · √(5/12).
    expect(seedInterval([1, 2, 3, 4], 0.9)!.upper).toBeCloseTo(2.5 + 2.353363 * Math.sqrt(5 / 12), 5);
  });

  it("is none below three values, and where they do not differ", () => {
    for (const values of [[], [1], [1, 2], [0, 0, 0], [0.5, 0.5, 0.5, 0.5]])
      expect(seedInterval(values)).toBeNull();
  });
});
