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
  // Without top-p: products of padded rows round otherwise (within AVX2), and it would rank tokens of a random model that are
  // nearly equally likely the other way: 4 of 36 trees differ with 0.9, none with 1.
  target: { maxNewTokens: 5, topK: 0, topP: 1 },
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
    const numbers: number[] = [];
    const texts = JSON.stringify(tree, (_, value: unknown) => {
      if (typeof value !== "number") return value;
      numbers.push(value);
      return "number";
    });
    return { texts, numbers };
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
  const texts = found.trees.map((tree) => tree.texts);
  expect(texts).toEqual(expected.trees.map((tree) => tree.texts));
  expect(texts[1]).not.toBe(texts[0]);
  // Sums over the six tokens of a probe, each to 1e-6.
  const wanted = expected.trees.flatMap(({ numbers }) => numbers);
  const differences = found.trees
    .flatMap(({ numbers }) => numbers)
    .map((each, at) => Math.abs(each - wanted[at]!));
  expect(differences).toHaveLength(wanted.length);
  expect(Math.max(...differences)).toBeLessThan(1e-5);
});
