import { readFileSync } from "node:fs";
import { keyedUniform } from "@astra-rl/base";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import * as statistics from "@astra-rl/analysis/statistics";
import { breaking } from "../../base/test/support/breaking.js";
import {
  bootstrapMean,
  clusteredInterval,
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
} from "../src/statistics/index.js";

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
  const of = (...successes: number[]) => successes.map((count) => ({ successes: count, trials: 8 }));

  it("equals that of single items if each group has one, for any correlation", () => {
    // The posterior is Beta(3 + 0.8, 9 + 0.8), of which the bounds are quantiles; the grid has 240 cells.
    const groups = Array.from({ length: 12 }, (_, at) => ({ successes: at < 3 ? 1 : 0, trials: 1 }));
    const { estimate, lower, upper } = clusteredInterval(groups)!;
    expect(estimate).toBe(0.25);
    expect(statistics.regularizedIncompleteBeta(lower, 3.8, 9.8)).toBeCloseTo(0.025, 3);
    expect(statistics.regularizedIncompleteBeta(upper, 3.8, 9.8)).toBeCloseTo(0.975, 3);
  });

  it("widens with the correlation within groups", () => {
    const width = (groups: ReturnType<typeof of>) => {
      const { lower, upper } = clusteredInterval(groups)!;
      return upper - lower;
    };
    const even = width(of(4, 4, 4, 4, 4, 4, 4, 4, 4, 4));
    const some = width(of(2, 6, 3, 5, 4, 4, 1, 7, 4, 4));
    const all = width(of(8, 0, 8, 0, 8, 0, 8, 0, 8, 0));
    expect(even).toBeLessThan(some);
    expect(some).toBeLessThan(all);
    // All or nothing: hardly more than ten items.
    const ten = wilsonInterval(5, 10)!;
    expect(all).toBeGreaterThan(0.9 * (ten.upper - ten.lower));
  });

  it("ends at 0 and 1 where all items agree, and does not depend on empty groups or on the order", () => {
    const none = clusteredInterval(of(0, 0, 0, 0, 0, 0, 0, 0))!;
    expect([none.estimate, none.lower]).toEqual([0, 0]);
    // Between the bounds of 64 and of 8 independent items.
    expect(none.upper).toBeGreaterThan(wilsonInterval(0, 64)!.upper);
    expect(none.upper).toBeLessThan(wilsonInterval(0, 8)!.upper + 0.1);
    const whole = clusteredInterval(of(8, 8, 8, 8, 8, 8, 8, 8))!;
    expect([whole.estimate, whole.upper]).toEqual([1, 1]);
    expect(whole.lower).toBeCloseTo(1 - none.upper, 10);
    const some = of(1, 2, 3, 4, 5, 6, 7, 0);
    const again = clusteredInterval([...some.toReversed(), { successes: 0, trials: 0 }])!;
    expect(again.lower).toBeCloseTo(clusteredInterval(some)!.lower, 12);
  });

  it("is null for fewer than 8 groups", () => {
    expect(clusteredInterval(of(1, 2, 3, 4, 5, 6, 7))).toBeNull();
    expect(clusteredInterval([])).toBeNull();
    expect(() => clusteredInterval([{ successes: 2, trials: 1 }])).toThrow(
      breaking("impossible-counts", "clusteredInterval"),
    );
  });

  it.each([
    [8, 0.05, 0.2],
    [16, 0.05, 0.5],
    [16, 0.2, 0.5],
    [32, 0.05, 0.2],
    [64, 0.05, 0.5],
  ])(
    "covers %i prompts of 8 rollouts at a rate of %d and a correlation of %d",
    (groups, rate, correlation) => {
      const size = (1 - correlation) / correlation;
      const rounds = 300;
      let covered = 0;
      for (let round = 0; round < rounds; round++) {
        const found = Array.from({ length: groups }, (_, group) => {
          // A Pólya urn draws from the beta-binomial distribution.
          let [red, white] = [rate * size, (1 - rate) * size];
          for (let draw = 0; draw < 8; draw++) {
            const key = { seed: 0, stream: "coverage", episode: round, node: group };
            if (keyedUniform(key, draw) * (red + white) < red) red++;
            else white++;
          }
          return { successes: Math.round(red - rate * size), trials: 8 };
        });
        const { lower, upper } = clusteredInterval(found)!;
        if (lower <= rate && rate <= upper) covered++;
      }
      // 95 % with a standard error of 1.3 %.
      expect(covered / rounds).toBeGreaterThan(0.915);
      expect(covered / rounds).toBeLessThanOrEqual(0.99);
    },
  );
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

  it("has infinite quantiles at 0 and 1, and refuses values outside", () => {
    expect(normalQuantile(0)).toBe(-Infinity);
    expect(studentTQuantile(1, 4)).toBe(Infinity);
    expect(() => normalQuantile(1.2)).toThrow(breaking("out-of-range", "1.2"));
    expect(() => studentTQuantile(0.5, 0)).toThrow(breaking("out-of-range", "studentTQuantile"));
  });
});

describe("Wilson's interval", () => {
  it.each(golden.wilson)("%d of %d at %d", (k, n, confidence, lower, upper) => {
    const interval = wilsonInterval(k!, n!, confidence)!;
    expectClose(interval.lower, lower!);
    expectClose(interval.upper, upper!);
    expect(interval.estimate).toBe(k! / n!);
  });

  it("has width z²/(n + z²) at the ends, where the usual interval has none", () => {
    // With no success the centre is z²/2/(n + z²) and so is the half-width: z² = 3.841458820694124, n = 20.
    expectClose(wilsonInterval(0, 20)!.upper, 3.841458820694124 / (20 + 3.841458820694124));
    expect(wilsonInterval(0, 20)!.lower).toBe(0);
    expect(wilsonInterval(20, 20)!.upper).toBe(1);
  });

  it("is null without trials, and refuses impossible counts", () => {
    expect(wilsonInterval(0, 0)).toBeNull();
    expect(() => wilsonInterval(3, 2)).toThrow(breaking("impossible-counts", "3 of 2"));
    expect(() => wilsonInterval(1, 2, 95)).toThrow(breaking("out-of-range", "95"));
  });

  it("always contains its estimate and lies in [0, 1]", () => {
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

  it("changes sign when the conditions are swapped", () => {
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

  it("bootstraps an interval close to the normal one, reproducible by seed", () => {
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

  it("requires equally many values in both", () => {
    expect(() => pairedBootstrap([1], [1, 2], { seed: 0 })).toThrow(breaking("unequal-counts", "1 and 2"));
  });
});

describe("figures over several seeds", () => {
  it("have the mean with Student's t interval", () => {
    // s = 2, t(2) at 0.975 = 4.30265272974946, so that the half-width is 4.3027 · 2 / √3.
    const { estimate, lower, upper } = statistics.seedInterval([1, 3, 5])!;
    expect(estimate).toBe(3);
    expect(upper).toBeCloseTo(3 + (4.30265272974946 * 2) / Math.sqrt(3), 10);
    expect(lower).toBeCloseTo(3 - (4.30265272974946 * 2) / Math.sqrt(3), 10);
  });

  it("have no interval below three seeds, or if all are equal", () => {
    expect(statistics.seedInterval([1, 3])).toBeNull();
    expect(statistics.seedInterval([0, 0, 0, 0])).toBeNull();
  });

  it.each([3, 4, 5, 7, 10])("cover the mean with %i seeds", (seeds) => {
    const rounds = 2000;
    let covered = 0;
    for (let round = 0; round < rounds; round++) {
      const values = Array.from({ length: seeds }, (_, at) =>
        statistics.normalQuantile(keyedUniform({ seed: 1, stream: "seeds", episode: round, node: 0 }, at)),
      );
      const { lower, upper } = statistics.seedInterval(values)!;
      if (lower <= 0 && 0 <= upper) covered++;
    }
    expect(covered / rounds).toBeGreaterThan(0.935);
    expect(covered / rounds).toBeLessThan(0.965);
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

  it("is null below three values, and if they are equal", () => {
    for (const values of [[], [1], [1, 2], [0, 0, 0], [0.5, 0.5, 0.5, 0.5]])
      expect(seedInterval(values)).toBeNull();
  });
});
