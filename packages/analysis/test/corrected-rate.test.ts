import { describe, expect, it } from "vitest";
import * as statistics from "@astra-rl/analysis/statistics";
import { breaking } from "../../base/test/support/breaking.js";
import { SeededStream } from "../../base/test/support/seeded-stream.js";

const { predictionPoweredRate, roganGladenRate } = statistics;

/** Of 10 that the judge says yes to, 8 are right; of 40 that it says no to, 4 are wrong. */
const sample = { truePositives: 8, falsePositives: 2, falseNegatives: 4, trueNegatives: 36 };

describe("rates corrected by human labels", () => {
  it("agree with the definitions, by hand", () => {
    // 100 of 400: 0.25 · 0.8 + 0.75 · 0.1
    expect(predictionPoweredRate({ positives: 100, total: 400 }, sample)!.estimate).toBeCloseTo(0.275, 12);
    // Sensitivity 8 / 12, specificity 36 / 38: (0.25 + 36 / 38 − 1) / (8 / 12 + 36 / 38 − 1)
    const [sens, spec] = [8 / 12, 36 / 38];
    expect(roganGladenRate({ positives: 100, total: 400 }, sample)!.estimate).toBeCloseTo(
      (0.25 + spec - 1) / (sens + spec - 1),
      12,
    );
  });

  it("equal the human rate if all items are in the sample", () => {
    const all = { positives: 10, total: 50 };
    for (const rate of [predictionPoweredRate(all, sample)!, roganGladenRate(all, sample)!]) {
      expect(rate.estimate).toBeCloseTo(12 / 50, 12);
      // About as wide as an interval of 50 items.
      const plain = statistics.wilsonInterval(12, 50)!;
      expect((rate.upper - rate.lower) / (plain.upper - plain.lower)).toBeCloseTo(1, 1);
    }
  });

  it("equal the judge's rate if it is always right, with a narrower interval than the sample alone", () => {
    const right = { truePositives: 20, falsePositives: 0, falseNegatives: 0, trueNegatives: 80 };
    for (const rate of [predictionPoweredRate, roganGladenRate]) {
      const { estimate, lower, upper } = rate({ positives: 220, total: 1000 }, right)!;
      expect(estimate).toBeCloseTo(0.22, 12);
      const alone = statistics.wilsonInterval(20, 100)!;
      expect(upper - lower).toBeLessThan(0.6 * (alone.upper - alone.lower));
    }
  });

  it("are unknown if the sample is uninformative", () => {
    const none = { truePositives: 0, falsePositives: 0, falseNegatives: 1, trueNegatives: 9 };
    expect(predictionPoweredRate({ positives: 5, total: 100 }, none)).toBeNull();
    expect(predictionPoweredRate({ positives: 0, total: 100 }, none)!.estimate).toBeCloseTo(0.1, 12);
    expect(roganGladenRate({ positives: 5, total: 100 }, { ...none, falseNegatives: 0 })).toBeNull();
    const chance = { truePositives: 5, falsePositives: 5, falseNegatives: 5, trueNegatives: 5 };
    expect(roganGladenRate({ positives: 50, total: 100 }, chance)).toBeNull();
    expect(
      predictionPoweredRate({ positives: 0, total: 0 }, { ...none, falseNegatives: 0, trueNegatives: 0 }),
    ).toBeNull();
    expect(() => predictionPoweredRate({ positives: 5, total: 4 }, none)).toThrow(
      breaking("impossible-counts"),
    );
    expect(() => roganGladenRate({ positives: 5, total: 9 }, none)).toThrow(breaking("impossible-counts"));
  });
});

/**
 * Coverage of 95 % intervals over 2,000 simulated audits each: what people would say, the judge's sensitivity and specificity,
 * items, and those in the sample. The table of docs/guides/judges.md has these figures.
 */
describe.each([
  [0.3, 0.8, 0.9, 512, 100],
  [0.1, 0.7, 0.95, 512, 150],
  [0.5, 0.6, 0.7, 256, 100],
  [0.05, 0.9, 0.9, 1000, 200],
  [0.8, 0.95, 0.6, 300, 100],
  [0.3, 0.8, 0.9, 128, 64],
])(
  "a rate of %f by a judge with sensitivity %f and specificity %f on %i items, %i in the sample",
  (...setting) => {
    const [truth, sensitivity, specificity, total, size] = setting;
    const audits = Array.from({ length: 2000 }, (_, repeat) => {
      const stream = new SeededStream(repeat, setting.join());
      const items = Array.from({ length: total }, () => {
        const isYes = stream.uniform() < truth;
        return { isYes, judged: stream.uniform() < (isYes ? sensitivity : 1 - specificity) };
      });
      const count = (yes: boolean, judged: boolean) =>
        items.slice(0, size).filter((item) => item.isYes === yes && item.judged === judged).length;
      return {
        judged: { positives: items.filter(({ judged }) => judged).length, total },
        sample: {
          truePositives: count(true, true),
          falsePositives: count(false, true),
          falseNegatives: count(true, false),
          trueNegatives: count(false, false),
        },
      };
    });

    it.each([
      ["prediction-powered inference", predictionPoweredRate],
      ["Rogan and Gladen", roganGladenRate],
    ])("%s is unbiased, and its interval covers in 93 to 97 % of audits", (_, rate) => {
      const found = audits.flatMap(({ judged, sample: of }) => rate(judged, of) ?? []);
      expect(found.length).toBeGreaterThan(0.99 * audits.length);
      const mean = found.reduce((sum, { estimate }) => sum + estimate, 0) / found.length;
      // Within three standard errors of the mean, judged by the intervals' own widths, and what cutting off at 0 and 1 does.
      const width = found.reduce((sum, { lower, upper }) => sum + upper - lower, 0) / found.length;
      expect(Math.abs(mean - truth)).toBeLessThan(
        (3 * width) / 3.92 / Math.sqrt(found.length) + 0.02 * width,
      );
      const covered =
        found.filter(({ lower, upper }) => lower <= truth && truth <= upper).length / found.length;
      expect(covered).toBeGreaterThanOrEqual(0.93);
      expect(covered).toBeLessThanOrEqual(0.97);
    });

    it("the judge's own rate is biased", () => {
      const mean = audits.reduce((sum, { judged }) => sum + judged.positives / total, 0) / audits.length;
      expect(Math.abs(mean - truth)).toBeGreaterThan(0.008);
    });
  },
);
