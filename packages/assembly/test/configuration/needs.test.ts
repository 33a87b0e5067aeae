import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { UsageError } from "@astra-rl/base";
import { afterAll, expect, it } from "vitest";
import { hasValues } from "@astra-rl/method";
import { breaking } from "../../../base/test/support/breaking.js";
import { parseConfiguration } from "../../src/configuration/index.js";
import { assembleSystem } from "../../src/assemble/index.js";
import { algorithmNeeds } from "../../src/assemble/parts.js";

const folder = mkdtempSync(join(tmpdir(), "needs-"));
afterAll(() => rmSync(folder, { recursive: true }));
writeFileSync(
  join(folder, "algorithms.mjs"),
  `const make = () => ({ flatten() {}, collate() {}, step() {}, checkSampler() {} });
   export const always = { make, needs: ["values"] };
   export const perhaps = { make, needs: ({ critic }) => (critic ? ["values"] : []) };
   export class Static { static needs = ["values", "baseline"]; }
   export const plain = { make };
   export const wrong = { make, needs: ["luck"] };`,
);

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));
const configured = (algorithm: string) =>
  parseConfiguration(
    `models: {tester: ${GPT2}, target: ${GPT2}}\nscorer: {type: keyword, entries: [{term: a}]}\nalgorithm: ${algorithm}\n`,
    join(folder, "run.yaml"),
  );
const module = (name: string, options = "") => `{type: ./algorithms.mjs#${name}${options}}`;

it.each([
  ["{type: dpo}", ["baseline"]],
  [module("always"), ["values"]],
  [module("perhaps", ", critic: true"), ["values"]],
  [module("perhaps", ", critic: false"), []],
  [module("Static"), ["values", "baseline"]],
  [module("plain"), []],
])(
  "an algorithm declares what it needs from the system, which is created first: %s",
  async (algorithm, needs) => {
    expect(await algorithmNeeds(await configured(algorithm))).toEqual(needs);
  },
);

it("unknown needs are refused, with the known ones", async () => {
  const reading = configured(module("wrong"));
  await expect(reading).rejects.toBeInstanceOf(UsageError);
  await expect(reading).rejects.toThrow(breaking("invalid-needs", '["luck"]'));
});

it("a tester has a value head exactly if the algorithm needs values", async () => {
  for (const [algorithm, expected] of [
    [module("always"), true],
    ["{type: dpo}", false],
  ] as const) {
    const system = await assembleSystem(await configured(algorithm));
    expect(hasValues(system)).toBe(expected);
    system.dispose();
  }
});
