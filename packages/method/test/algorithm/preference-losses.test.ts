import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { liveTensors, scope, tensor, type Tensor } from "@astra-rl/torch";
import { checkGradient } from "@astra-rl/torch/testing";
import { breaking } from "../../../base/test/support/breaking.js";
import { dpoLoss, ipoLoss } from "../../src/algorithm/losses/index.js";
import { preferenceMargin, type PreferenceLogprobs } from "../../src/algorithm/preference/index.js";

interface Case {
  name: string;
  loss: "dpo" | "ipo";
  beta: number;
  labelSmoothing: number;
  lengthNormalize: boolean;
  /** Tokens of each of the 2B rows, chosen first. */
  lengths: number[];
  /** [2B, T] per-token log-probabilities. */
  tester: number[][];
  baseline: number[][];
  value: number;
  /** Of the mean loss with respect to `tester`. */
  gradient: number[][];
}

const golden = JSON.parse(
  readFileSync(new URL("golden/preference-losses.json", import.meta.url), "utf8"),
) as { cases: Case[] };
const losses = { dpo: dpoLoss, ipo: ipoLoss };
const doubles = (values: number[] | number[][]) => tensor(values, { dtype: "float64" });

/** Sums of the four log-probabilities of a single pair whose margin is what is given. */
function pairWithMargin(margin: number): PreferenceLogprobs {
  const [chosen, rejected] = [-3, -5];
  return {
    chosen: doubles([chosen]),
    rejected: doubles([rejected]),
    baselineChosen: doubles([-4]),
    // margin = (−3 + 4) − (−5 − x), so x = margin − 6
    baselineRejected: doubles([margin - 6]),
  };
}

let before = 0;
beforeEach(() => {
  before = liveTensors();
});
afterEach(() => {
  expect(liveTensors()).toBe(before);
});

describe("values by hand", () => {
  const value = (compute: () => Tensor) => scope(() => compute().item());

  it("has the margin (log π(w) − log ref(w)) − (log π(l) − log ref(l))", () => {
    // (−3 + 4) − (−5 + 7) = −1
    expect(value(() => preferenceMargin(pairWithMargin(-1)))).toBe(-1);
  });

  it("is log 2 for DPO at margin 0, and log(1 + e⁻¹) at βh = 1", () => {
    expect(value(() => dpoLoss(pairWithMargin(0)))).toBeCloseTo(Math.LN2, 15);
    expect(value(() => dpoLoss(pairWithMargin(10)))).toBeCloseTo(Math.log1p(Math.exp(-1)), 15);
    expect(value(() => dpoLoss(pairWithMargin(2), { beta: 0.5 }))).toBeCloseTo(Math.log1p(Math.exp(-1)), 15);
  });

  it("adds ε·βh for label-smoothed DPO", () => {
    // −(1−ε)·logσ(x) − ε·logσ(−x) = −logσ(x) + ε·x, since logσ(−x) = logσ(x) − x
    expect(value(() => dpoLoss(pairWithMargin(10), { labelSmoothing: 0.2 }))).toBeCloseTo(
      Math.log1p(Math.exp(-1)) + 0.2,
      15,
    );
  });

  it("is (h − 1/(2β))² for IPO: (−1 − 5)² at β 0.1, and 0 at h = 5", () => {
    expect(value(() => ipoLoss(pairWithMargin(-1)))).toBeCloseTo(36, 13);
    expect(value(() => ipoLoss(pairWithMargin(5)))).toBe(0);
    expect(value(() => ipoLoss(pairWithMargin(3), { beta: 0.25 }))).toBeCloseTo(1, 15);
  });

  it("is (1−ε)·(h − 5)² + ε·(h + 5)² for label-smoothed IPO", () => {
    // h = 3: 0.9·4 + 0.1·64 = 10
    expect(value(() => ipoLoss(pairWithMargin(3), { labelSmoothing: 0.1 }))).toBeCloseTo(10, 13);
  });

  it("divides each log-ratio by its own length if configured, an empty one by 1", () => {
    const margin = (chosenLength: number, rejectedLength: number) =>
      value(() => {
        const lengths = { chosenLengths: [chosenLength], rejectedLengths: [rejectedLength] };
        return preferenceMargin({ ...pairWithMargin(-1), ...lengths }, { lengthNormalize: true });
      });
    // Ratios 1 and 2: 1/2 − 2/4, 1/1 − 2/1, 1/4 − 2/2
    expect(margin(2, 4)).toBe(0);
    expect(margin(0, 1)).toBe(-1);
    expect(margin(4, 2)).toBe(-0.75);
  });

  it("stays finite where the sigmoid underflows", () => {
    expect(value(() => dpoLoss(pairWithMargin(-20_000)))).toBeCloseTo(2000, 9);
    expect(value(() => dpoLoss(pairWithMargin(20_000)))).toBeCloseTo(0, 15);
  });
});

describe("agrees with TRL", () => {
  it.each(golden.cases)(
    "$name",
    ({ loss, beta, labelSmoothing, lengthNormalize, lengths, tester, baseline, ...expected }) => {
      scope(() => {
        const pairs = tester.length / 2;
        const rows = doubles(tester).requiresGrad_();
        const sums = rows.sum([-1]);
        const baselineSums = doubles(baseline).sum([-1]);
        const value = losses[loss](
          {
            chosen: sums.narrow(0, 0, pairs),
            rejected: sums.narrow(0, pairs, pairs),
            baselineChosen: baselineSums.narrow(0, 0, pairs),
            baselineRejected: baselineSums.narrow(0, pairs, pairs),
            chosenLengths: lengths.slice(0, pairs),
            rejectedLengths: lengths.slice(pairs),
          },
          { beta, labelSmoothing, lengthNormalize },
        ).mean();
        expect(Math.abs(value.item() - expected.value)).toBeLessThan(1e-6);
        value.backward();
        const gradient = rows.grad!.toArray() as number[][];
        for (const [row, length] of lengths.entries()) {
          // Beyond a row's length TRL masks; here the zeros there are constants, whatever the gradient says.
          for (let token = 0; token < length; token++) {
            expect(Math.abs(gradient[row]![token]! - expected.gradient[row]![token]!)).toBeLessThan(1e-6);
          }
        }
      });
    },
  );
});

describe("gradients agree with finite differences", () => {
  const settings = [
    {},
    { beta: 0.7 },
    { labelSmoothing: 0.15 },
    { lengthNormalize: true },
    { beta: 2, labelSmoothing: 0.3, lengthNormalize: true },
  ];
  it.each(settings)("with %o", (options) => {
    scope(() => {
      const baselineChosen = doubles([-3.1, -2.2, -5]);
      const baselineRejected = doubles([-1.7, -6, -4.4]);
      const lengths = { chosenLengths: [2, 1, 4], rejectedLengths: [3, 5, 0] };
      for (const loss of [dpoLoss, ipoLoss]) {
        const inputs = [doubles([-2.5, -2.9, -4.6]), doubles([-2.1, -5.5, -6])];
        checkGradient(
          (chosen, rejected) =>
            loss(
              { chosen: chosen!, rejected: rejected!, baselineChosen, baselineRejected, ...lengths },
              options,
            ),
          inputs,
        );
      }
    });
  });
});

describe("refuses", () => {
  it.each([
    [{ beta: 0 }, "beta must be a finite number greater than 0, got 0"],
    [{ beta: NaN }, "beta must be a finite number greater than 0, got NaN"],
    [{ labelSmoothing: 0.5 }, "labelSmoothing must be at least 0 and less than 0.5, got 0.5"],
    [{ lengthNormalize: true }, "lengthNormalize needs chosenLengths with 1 token counts, got none"],
  ])("%o", (options, message) => {
    scope(() => {
      expect(() => dpoLoss(pairWithMargin(0), options)).toThrow(message);
      expect(() => ipoLoss(pairWithMargin(0), options)).toThrow(message);
    });
  });

  it("per-token log-probabilities instead of sums", () => {
    scope(() => {
      const logprobs = { ...pairWithMargin(0), rejected: doubles([[-1, -2]]) };
      expect(() => dpoLoss(logprobs)).toThrow(breaking("shape-mismatch", "rejected"));
    });
  });
});
