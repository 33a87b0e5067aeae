import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { hasValues } from "@astra-rl/method";
import { parseConfiguration } from "../../src/configuration/index.js";
import { assembleSystem } from "../../src/assemble/index.js";
import { algorithmNeeds } from "../../src/assemble/parts.js";

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));
const configured = (algorithm: string) =>
  parseConfiguration(
    `models: {tester: ${GPT2}, target: ${GPT2}}\nscorer: {type: keyword, entries: [{term: a}]}\nalgorithm: ${algorithm}\n`,
    "run.yaml",
  );

it.each([
  ["{type: dpo}", ["baseline"]],
  ["{type: ppo}", ["values", "baseline"]],
  ["{type: ppo, klCoefficient: 0, klLossCoefficient: 0.1}", ["values", "baseline"]],
  ["{type: orpo}", []],
])(
  "an algorithm declares what it needs from the system, which is created first: %s",
  async (algorithm, needs) => {
    expect(algorithmNeeds(await configured(algorithm))).toEqual(needs);
  },
);

it("a tester has a value head exactly if the algorithm needs values", async () => {
  for (const [algorithm, expected] of [
    ["{type: a2c}", true],
    ["{type: dpo}", false],
  ] as const) {
    const { system } = await assembleSystem(await configured(algorithm));
    expect(hasValues(system)).toBe(expected);
    system.dispose();
  }
});
