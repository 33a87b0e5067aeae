import { fileURLToPath } from "node:url";
import { liveTensors, scope } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { expect, it } from "vitest";
import { KeywordScorer } from "@astra-rl/scorers";
import { breaking } from "../../../base/test/support/breaking.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));

const load = (options: Partial<HFASTSystemOptions>) =>
  HFASTSystem.load({
    tester: GPT2,
    target: GPT2,
    scorer: new KeywordScorer([{ pattern: "a", weight: 0.5 }]),
    inferenceDtype: "float32",
    generation: { tester: { maxNewTokens: 5 }, target: { maxNewTokens: 5 } },
    log: () => {},
    ...options,
  });

it.each([
  ["all weights", {}],
  ["an adapter", { lora: { rank: 2, alpha: 4, targetModules: ["c_attn", "c_fc"] } }],
])("a system that trains %s gives the same gradients with gradient checkpointing", async (_, options) => {
  const before = liveTensors();
  const [plain, checkpointed] = await Promise.all(
    [false, true].map(async (gradientCheckpointing) => {
      const system = await load({ ...options, gradientCheckpointing });
      const [graph] = await new ASTSampler(system, ["Hello there. "], { width: 2, depth: 2 }).rolloutMany([
        3,
      ]);
      const nodes = [...graph!.nodes()];
      const contexts = nodes.map((node) => node.context);
      const probes = nodes.map((node) => node.probe);
      const { trained } = system.counters().tester!;
      await scope(async () => {
        const table = await system.checked.getTesterLogprobs(contexts, probes);
        table.sums().mul(0.1).sigmoid().log().mean().backward();
      });
      const gradients = [...system.parameters()].map((parameter) =>
        Array.from(parameter.grad!.toTypedArray() as Float32Array),
      );
      const counted = system.counters().tester!.trained! - trained!;
      system.dispose();
      return { probes, gradients, counted };
    }),
  );
  expect(checkpointed!.probes.map(String)).toEqual(plain!.probes.map(String));
  // Recomputation does not count: the counter counts tokens, not arithmetic.
  expect(checkpointed!.counted).toBe(plain!.counted);
  const worst = Math.max(
    ...plain!.gradients.flatMap((values, at) =>
      values.map((value, index) => Math.abs(value - checkpointed!.gradients[at]![index]!)),
    ),
  );
  expect(worst).toBeLessThan(1e-5);
  expect(plain!.gradients.flat().some((value) => Math.abs(value) > 1e-3)).toBe(true);
  expect(liveTensors()).toBe(before);
});

it("is refused on other devices than the CPU, before anything is loaded", async () => {
  const loading = load({ device: "cuda", gradientCheckpointing: true });
  await expect(loading).rejects.toBeInstanceOf(UsageError);
  await expect(loading).rejects.toThrow(breaking("cpu-only", "gradientCheckpointing"));
});
