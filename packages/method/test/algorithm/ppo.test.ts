import { readFileSync } from "node:fs";
import { scope, tensor } from "@astra-rl/torch";
import { expect, it } from "vitest";
import { clippedSurrogateLoss, clippedValueLoss } from "../../src/algorithm/losses/index.js";
import { generalizedAdvantages, normalizeAdvantages } from "../../src/algorithm/policy-gradient/index.js";

/** One number for each token, all of them of one path. */
type Path = Record<
  "rewards" | "oldValues" | "old" | "advantages" | "returns" | "policy" | "values",
  number[]
>;

interface Case {
  name: string;
  gamma: number;
  gaeLambda: number;
  clipRange: number;
  clipRangeHigher: number;
  valueClipRange: number;
  valueCoefficient: number;
  normalize: boolean;
  paths: Path[];
  policyLoss: number;
  valueLoss: number;
  policyGradient: number[];
  valueGradient: number[];
}

const { cases } = JSON.parse(readFileSync(new URL("golden/ppo.json", import.meta.url), "utf8")) as {
  cases: Case[];
};

const expectAll = (values: readonly number[], expected: readonly number[]) => {
  expect(values).toHaveLength(expected.length);
  for (const [at, value] of values.entries()) expect(Math.abs(value - expected[at]!)).toBeLessThan(1e-10);
};

it.each(cases)("agrees with an independent implementation from rewards to gradients: $name", (given) => {
  const { paths, gamma, gaeLambda, clipRange, clipRangeHigher, valueClipRange, valueCoefficient } = given;
  // What a path's tokens earn, the last one's part as the turn's own reward.
  const turns = paths.map(({ rewards, oldValues }) => ({
    reward: rewards.at(-1)!,
    tokenRewards: [...rewards.slice(0, -1), 0],
    values: oldValues,
    children: [],
  }));
  const raw = generalizedAdvantages(turns, { gamma, gaeLambda });
  for (const [index, { advantages, returns, oldValues }] of paths.entries()) {
    expectAll(raw[index]!, advantages);
    expectAll(
      raw[index]!.map((advantage, token) => advantage + oldValues[token]!),
      returns,
    );
  }
  const advantages = (given.normalize ? normalizeAdvantages(raw) : raw).flat();
  const all = (key: keyof Path) => paths.flatMap((path) => path[key]);
  scope(() => {
    const doubles = (values: number[]) => tensor(values, { dtype: "float64" });
    const [policy, values] = [doubles(all("policy")), doubles(all("values"))].map((t) => t.requiresGrad_());
    const policyLoss = clippedSurrogateLoss(policy!, doubles(all("old")), doubles(advantages), {
      clipRange,
      clipRangeHigher,
    }).mean();
    const valueLoss = clippedValueLoss(
      values!,
      doubles(all("oldValues")),
      doubles(all("returns")),
      valueClipRange,
    ).mean();
    expectAll([policyLoss.item(), valueLoss.item()], [given.policyLoss, given.valueLoss]);
    policyLoss.add(valueLoss.mul(valueCoefficient)).backward();
    expectAll(policy!.grad!.toArray() as number[], given.policyGradient);
    expectAll(values!.grad!.toArray() as number[], given.valueGradient);
  });
});
