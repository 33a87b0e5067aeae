import { UsageError } from "@astra-rl/torch";
import { describe, expect, it } from "vitest";
import { astReward, resolveReward } from "../../src/system/index.js";

const turn = { response: 0.8, combined: 0.6, likelihood: { nll: 2.5, total: -5, tokens: 2 } };
const silent = { response: 0.8, combined: 0.8, likelihood: { nll: null, total: 0, tokens: 0 } };

describe("astReward", () => {
  it("paper form: S(response) + 0.5·S(probe + response) − 0.1·NLL", () => {
    // 0.8 + 0.5·0.6 − 0.1·2.5 = 0.85
    expect(astReward(resolveReward(), turn)).toBeCloseTo(0.85, 12);
  });

  it("paper form: an empty probe is charged 10 nats, or what was configured", () => {
    // 0.8 + 0.5·0.8 − 0.1·10 = 0.2
    expect(astReward(resolveReward(), silent)).toBeCloseTo(0.2, 12);
    expect(astReward(resolveReward({ emptyProbeNLL: 0 }), silent)).toBeCloseTo(1.2, 12);
  });

  it("toolbox form: 0.025·exp(Σ log P) + 0.1·S(probe + response) + 0.1·S(response)", () => {
    // 0.025·e⁻⁵ + 0.06 + 0.08 = 0.14016844867...
    expect(astReward(resolveReward({ form: "toolbox" }), turn)).toBeCloseTo(0.140168448675, 11);
  });

  it("toolbox form, as published: an empty probe has likelihood 1", () => {
    // 0.025 + 0.08 + 0.08 = 0.185
    expect(astReward(resolveReward({ form: "toolbox" }), silent)).toBeCloseTo(0.185, 12);
  });

  it("takes other weights", () => {
    const options = { responseWeight: 2, combinedWeight: -1, likelihoodWeight: 0.2 };
    // 2·0.8 − 0.6 − 0.2·2.5 = 0.5
    expect(astReward(resolveReward(options), turn)).toBeCloseTo(0.5, 12);
    expect(resolveReward({ form: "toolbox", responseWeight: 3 })).toMatchObject({
      responseWeight: 3,
      combinedWeight: 0.1,
    });
  });
});

describe("resolveReward", () => {
  it.each([
    [{ form: "other" }, /form must be "paper" or "toolbox", got "other"/u],
    [{ responseWeight: NaN }, /responseWeight must be a finite number, got NaN/u],
    [{ likelihoodWeight: "1" }, /likelihoodWeight must be a finite number/u],
    [{ harm: 1 }, /there is no option "harm"/u],
  ])("refuses %j", (options, message) => {
    expect(() => resolveReward(options as never)).toThrow(message);
    expect(() => resolveReward(options as never)).toThrow(UsageError);
  });
});
