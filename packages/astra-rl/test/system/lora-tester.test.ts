import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { dispose, liveTensors, noGrad, scope, UsageError } from "@astra-rl/torch";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { TokenTable } from "../../src/core/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { KeywordScorer } from "../../src/scorer/keyword-scorer.js";
import { HFASTSystem, HFEvaluationSystem, type HFASTSystemOptions } from "../../src/system/index.js";
import { systemContract } from "../contract/system.contract.js";
import { probes, talks } from "../support/values.js";
import { localTarget } from "../support/local-target.js";

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));
const PROMPTS = ["Hello there. ", "How are you? "];
const common = {
  tester: GPT2,
  target: GPT2,
  scorer: new KeywordScorer([{ pattern: "e", weight: 0.5 }]),
  inferenceDtype: "float32",
  generation: {
    tester: { maxNewTokens: 6, topK: 0, topP: 1 },
    target: { maxNewTokens: 5, topK: 0, topP: 1 },
  },
} as const;
const lora = { rank: 3, alpha: 6, targetModules: ["c_attn", "c_proj"], seed: 4 };
const load = (options: Partial<HFASTSystemOptions> = {}) => HFASTSystem.load({ ...common, lora, ...options });
const grow = (system: HFASTSystem | HFEvaluationSystem) =>
  new ASTSampler(system, PROMPTS, { width: 2, depth: 2 }).rollout(5);

/** Moves every parameter, as an optimizer step would. */
async function change(system: HFASTSystem, by: number): Promise<void> {
  noGrad(() => {
    for (const parameter of system.parameters()) parameter.add_(by);
  });
  await system.testerUpdated();
}

systemContract("HFASTSystem with an adapter", {
  create: load,
  contexts: PROMPTS,
  continuations: ["I am well.", "a"],
});

describe("HFASTSystem with an adapter", () => {
  let folder: string;
  beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), "adapter-"))));
  afterAll(() => rm(folder, { recursive: true }));

  it("starts as the base, with the target's weights in memory once", async () => {
    const before = liveTensors();
    const system = await load();
    const parameters = [...system.parameters()];
    const base = localTarget(system).model.namedParameters().size;
    // Two matrices for each of the two layers' three projections, and one set of base weights.
    expect(parameters).toHaveLength(12);
    expect(liveTensors() - before).toBe(base + 12);
    const full = await HFASTSystem.load(common);
    expect(JSON.stringify(await grow(system))).toBe(JSON.stringify(await grow(full)));
    full.dispose();
    system.dispose();
    expect(liveTensors()).toBe(before);
  });

  it("sends gradients to the adapter only", async () => {
    const system = await load();
    await change(system, 0.01);
    await scope(async () => {
      const logprobs = await system.getTesterLogprobsAndValidate(talks("Hello. "), probes("I see."));
      logprobs.sums().sum().backward();
      for (const parameter of system.parameters()) {
        expect(parameter.grad!.abs().sum().item()).toBeGreaterThan(0);
      }
      for (const parameter of localTarget(system).model.namedParameters().values())
        expect(parameter.grad).toBeNull();
    });
    system.dispose();
  });

  it("moves the tester, and neither target nor baseline", async () => {
    const system = await load();
    const texts = [talks("Hello. "), probes("I see.")] as const;
    const numbers = async (table: Promise<TokenTable>) => {
      const made = await table;
      const rows = made.rows();
      made.dispose();
      return rows;
    };
    const before = await grow(system);
    const frozen = [
      await numbers(system.getBaselineLogprobs(...texts)),
      await numbers(system.getTargetLogprobs(...texts)),
    ];
    const tester = await numbers(system.getTesterLogprobs(...texts));
    expect(tester).toEqual(frozen[0]);
    await change(system, 0.2);
    expect(JSON.stringify(await grow(system))).not.toBe(JSON.stringify(before));
    expect([
      await numbers(system.getBaselineLogprobs(...texts)),
      await numbers(system.getTargetLogprobs(...texts)),
    ]).toEqual(frozen);
    expect(await numbers(system.getTesterLogprobs(...texts))).not.toEqual(tester);
    system.dispose();
  });

  it("saves the adapter in PEFT's format, restores it in place and evaluates from it", async () => {
    const before = liveTensors();
    const saved = join(folder, "saved");
    const system = await load();
    await change(system, 0.2);
    const expected = JSON.stringify(await grow(system));
    await system.saveTester(saved);
    const configuration = JSON.parse(await readFile(join(saved, "adapter_config.json"), "utf8")) as object;
    expect(configuration).toMatchObject({
      peft_type: "LORA",
      r: 3,
      lora_alpha: 6,
      base_model_name_or_path: GPT2,
    });

    const parameters = [...system.parameters()];
    await change(system, -0.3);
    expect(JSON.stringify(await grow(system))).not.toBe(expected);
    await system.restoreTester(saved);
    expect(JSON.stringify(await grow(system))).toBe(expected);
    expect([...system.parameters()]).toEqual(parameters);

    const evaluation = await HFEvaluationSystem.load({ ...common, tester: saved });
    expect(JSON.stringify(await grow(evaluation))).toBe(expected);
    evaluation.dispose();
    system.dispose();
    dispose(parameters);
    expect(liveTensors()).toBe(before);
  });

  it("refuses what does not fit, with a sentence", async () => {
    const before = liveTensors();
    const saved = join(folder, "other");
    const system = await load({ lora: { ...lora, rank: 2 } });
    await system.saveTester(saved);
    system.dispose();
    const run = await load();
    await expect(run.restoreTester(saved)).rejects.toThrow(/must have this run's rank/u);
    run.dispose();
    await expect(HFASTSystem.load({ ...common, tester: saved })).rejects.toThrow(/is an adapter/u);
    await expect(load({ lora: { ...lora, targetModules: ["q_proj"] } })).rejects.toBeInstanceOf(UsageError);
    expect(liveTensors()).toBe(before);
  });
});
