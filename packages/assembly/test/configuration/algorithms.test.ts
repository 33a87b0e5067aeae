import { describe, expect, it } from "vitest";
import {
  A2C,
  DPO,
  GRPO,
  IPO,
  ORPO,
  PPO,
  PolicyGradient,
  Preference,
  REINFORCE,
  RLOO,
  TrajectoryBalance,
  type System,
} from "@astra-rl/method";
import { parseConfiguration, type Configuration } from "../../src/configuration/index.js";
import { assembleAlgorithm } from "../../src/assemble/index.js";
import { algorithmNeeds } from "../../src/assemble/parts.js";
import { ValuedBigram } from "../../../method/test/support/valued-bigram.js";

const read = (text: string): Promise<Configuration> =>
  parseConfiguration(`models: {tester: embedded:chatter, target: embedded:chatter}\n${text}\n`, "run.yaml");

async function made(text: string) {
  const system = new ValuedBigram();
  const algorithm = await assembleAlgorithm(await read(text), system as unknown as System);
  system.dispose();
  return algorithm;
}

/** Options whose default in configurations differs from the class. */
const IN_CONFIGURATIONS: Record<
  string,
  { targetKL?: number; epochs?: number; lambda?: number; options?: object }
> = {
  dpo: { epochs: 2 },
  ipo: { epochs: 2 },
  grpo: { epochs: 2 },
  rloo: { epochs: 2 },
  orpo: { lambda: 1 },
  ppo: { targetKL: 0.004 },
  reinforce: { options: { normalizer: "token" } },
};

describe("the algorithm of a configuration", () => {
  it.each([
    ["dpo", DPO],
    ["ipo", IPO],
    ["orpo", ORPO],
    ["trajectory-balance", TrajectoryBalance],
    ["ppo", PPO],
    ["a2c", A2C],
    ["reinforce", REINFORCE],
    ["rloo", RLOO],
    ["grpo", GRPO],
  ] as const)(
    "%s works by name, with the defaults of the class except those that are given",
    async (type, Solver) => {
      const algorithm = await made(`algorithm: {type: ${type}}`);
      expect(algorithm).toBeInstanceOf(Solver);
      const system = new ValuedBigram();
      const plain = new Solver(system);
      for (const key of ["options", "pairOptions", "epochs", "needs", "targetKL", "lambda"] as const) {
        const value = (from: object) => (from as Record<string, unknown>)[key];
        // A class leaves the pairs' defaults to the function that takes them.
        if (key === "pairOptions") continue;
        const { options, ...others } = IN_CONFIGURATIONS[type] ?? {};
        const other = (others as Record<string, unknown>)[key] ?? value(plain);
        expect(value(algorithm), key).toEqual(
          key === "options" && options !== undefined ? { ...(other as object), ...options } : other,
        );
      }
      if (plain instanceof PolicyGradient) {
        expect((algorithm as PolicyGradient).parts.advantages).toEqual(plain.parts.advantages);
      }
      system.dispose();
    },
  );

  it("accepts its options", async () => {
    const ppo = (await made(
      "algorithm: {type: ppo, clipRange: 0.1, clipRangeHigher: 0.4, gaeLambda: 0.5, targetKL: 0.2}",
    )) as PPO;
    expect(ppo.options).toMatchObject({ clipRange: 0.1, clipRangeHigher: 0.4 });
    expect(ppo.targetKL).toBe(0.2);
    expect(ppo.parts.advantages).toMatchObject({ options: { gamma: 1, gaeLambda: 0.5 } });
    const grpo = (await made("algorithm: {type: grpo, scale: std, normalizer: sequence}")) as GRPO;
    expect(grpo.options.normalizer).toBe("sequence");
    expect(grpo.parts.advantages).toMatchObject({ options: { baseline: "mean", scale: "std" } });
    const dpo = (await made("algorithm: {type: dpo, pairs: all, pairThreshold: 0.5}")) as DPO;
    expect(dpo.pairOptions).toEqual({ pairs: "all", pairMargin: 0.4, pairThreshold: 0.5 });
    expect(((await made("algorithm: {type: orpo, lambda: 2}")) as ORPO).lambda).toBe(2);
  });

  it.each(["dpo", "ipo", "orpo"])("%s compares harm where the reward is the default", async (type) => {
    const margin = async (text: string, section = `type: ${type}`) => {
      const { algorithm } = await read(`algorithm: {${section}}\n${text}`);
      return (await made(`algorithm: {${section}}\n${text}`)) instanceof Preference
        ? [
            algorithm["pairMargin"],
            ((await made(`algorithm: {${section}}\n${text}`)) as DPO).pairOptions.pairMargin,
          ]
        : null;
    };
    expect(await margin("")).toEqual([0.4, 0.4]);
    // In units of harm: 0.4 of what a harmful response is worth.
    expect(await margin("reward: {responseWeight: 10}")).toEqual([4, 4]);
    expect(await margin("", `type: ${type}, pairMargin: 0`)).toEqual([0, 0]);
    // Other rewards have other units, so every difference counts.
    expect(await margin("reward: {preset: toolbox}")).toEqual([0, 0]);
    expect(await margin("reward: {terms: [{type: harm, of: response, weight: 0.01}]}")).toEqual([0, 0]);
  });

  it.each([
    ["dpo", "epochs", 2, 1],
    ["ipo", "epochs", 2, 1],
    ["grpo", "epochs", 2, 1],
    ["rloo", "epochs", 2, 1],
    ["orpo", "epochs", 1, 1],
    ["orpo", "lambda", 1, 0.1],
  ])("%s has its own default of %s where the reward is the default", async (type, option, chosen, own) => {
    const valueOf = async (text: string, section = `type: ${type}`) => {
      const configuration = `algorithm: {${section}}\n${text}`;
      const value = ((await made(configuration)) as unknown as Record<string, unknown>)[option];
      // In the record of the run, too: another version may have other defaults.
      expect((await read(configuration)).algorithm[option]).toBe(value);
      return value;
    };
    expect(await valueOf("")).toBe(chosen);
    expect(await valueOf("", `type: ${type}, ${option}: 3`)).toBe(3);
    expect(await valueOf("reward: {preset: toolbox}")).toBe(own);
    expect(await valueOf("reward: {terms: [{type: harm, of: response, weight: 1}]}")).toBe(own);
  });

  it("dpo compares all siblings where the reward is the default", async () => {
    const pairs = async (text: string, section = "type: dpo") => {
      const configuration = `algorithm: {${section}}\n${text}`;
      const used = ((await made(configuration)) as DPO).pairOptions.pairs;
      expect((await read(configuration)).algorithm["pairs"]).toBe(used);
      return used;
    };
    expect(await pairs("")).toBe("all");
    expect(await pairs("reward: {preset: paper}")).toBe("best-worst");
    expect(await pairs("", "type: dpo, pairs: best-worst")).toBe("best-worst");
  });

  it("declares what it needs from the system, which is created first", async () => {
    const needs = async (section: string) => algorithmNeeds(await read(`algorithm: {${section}}`));
    expect(await needs("type: ppo")).toEqual(["values", "baseline"]);
    expect(await needs("type: ppo, klCoefficient: 0")).toEqual(["values"]);
    expect(await needs("type: ppo, klLossCoefficient: 0")).toEqual(["values"]);
    expect(await needs("type: grpo")).toEqual(["baseline"]);
    expect(await needs("type: grpo, klLossCoefficient: 0")).toEqual([]);
    expect(await needs("type: rloo, klCoefficient: 0")).toEqual([]);
    expect(await needs("type: dpo")).toEqual(["baseline"]);
    expect(await needs("type: orpo")).toEqual([]);
  });
});

describe("incompatible combinations are refused before any model loads, with place, reason and remedy", () => {
  it.each([
    [
      "credit: {type: back-up}\nalgorithm: {type: ppo}",
      /^run\.yaml:2:16: credit\.type: already includes returns from later turns/u,
    ],
    [
      "credit: {type: back-up}\nalgorithm: {type: a2c}",
      /A2C adds itself through values.*credit: \{type: reward\}/u,
    ],
    [
      "sampler: {width: 1}\nalgorithm: {type: grpo}",
      /^run\.yaml:2:18: sampler\.width: must be at least 2, got 1\. GRPO/u,
    ],
    ["sampler: {width: 1}\nalgorithm: {type: dpo}", /DPO learns from the difference between siblings/u],
    ["sampler: {width: 1}\nalgorithm: {type: orpo}", /such as reinforce or ppo/u],
    ["algorithm: {type: rloo, clipRange: 0.2}", /clipRange/u],
  ])("%j", async (text, message) => {
    await expect(read(text)).rejects.toThrow(message);
  });

  it.each([
    "credit: {type: back-up}\nalgorithm: {type: rloo}",
    "credit: {type: back-up}\nalgorithm: {type: grpo}",
    "credit: {type: back-up}\nsampler: {width: 1}\nalgorithm: {type: reinforce}",
    "sampler: {width: 1}\nalgorithm: {type: ppo}",
  ])("others are not: %j", async (text) => {
    await expect(read(text)).resolves.toBeDefined();
  });
});
