/** Rollouts with static steps, on the CPU without this project's kernels: with the calls that a GPU gets, and numbers. */
import { fileURLToPath } from "node:url";
import { liveTensors, noGrad } from "@astra-rl/torch";
import { StaticStep } from "../../../lm/src/generation/static/static-step.js";
import { afterEach, expect, it, vi } from "vitest";
import { KeywordScorer } from "@astra-rl/scorers";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";

vi.mock(import("../../../torch/src/kernels/applicability.js"), async (original) => ({
  ...(await original()),
  isLoopable: () => false,
  readsSharedColumns: () => false,
}));

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));
const common: HFASTSystemOptions = {
  tester: GPT2,
  target: GPT2,
  scorer: new KeywordScorer([{ pattern: "e", weight: 0.5 }]),
  inferenceDtype: "float32",
  log: () => {},
};
const generation = {
  tester: { maxNewTokens: 6, topK: 9, topP: 1 },
  target: { maxNewTokens: 5, topK: 0, topP: 0.9 },
};

afterEach(() => {
  vi.restoreAllMocks();
});

/** Texts and rewards of rollouts before and after an update of the tester, and how many static steps they took. */
async function grown(options: Partial<HFASTSystemOptions>) {
  const run = vi.spyOn(StaticStep.prototype, "run");
  const before = liveTensors();
  const system = await HFASTSystem.load({ ...common, generation, ...options });
  const grow = async () => {
    const tree = await new ASTSampler(system, ["Hello there. ", "How? "], { width: 3, depth: 2 }).rollout(5);
    return JSON.stringify(tree, (_, value: unknown) =>
      typeof value === "number" ? Math.round(value * 1e4) / 1e4 : value,
    );
  };
  const trees = [await grow()];
  noGrad(() => {
    for (const parameter of system.parameters()) parameter.add_(0.05);
  });
  await system.testerUpdated();
  trees.push(await grow(), await grow());
  system.dispose();
  expect(liveTensors()).toBe(before);
  const steps = run.mock.calls.reduce((sum, [count]) => sum + count, 0);
  vi.restoreAllMocks();
  return { trees, steps };
}

it.each<[string, Partial<HFASTSystemOptions>]>([
  ["all weights", {}],
  ["an adapter", { lora: { rank: 2, alpha: 4, targetModules: ["c_attn"], seed: 4 } }],
])("rollouts and updates of %s are the same with graphs", async (_, options) => {
  const expected = await grown(options);
  expect(expected.steps).toBe(0);
  const found = await grown({ ...options, graphs: "auto" });
  expect(found.steps).toBeGreaterThan(0);
  expect(found.trees).toEqual(expected.trees);
  expect(found.trees[1]).not.toBe(found.trees[0]);
});
