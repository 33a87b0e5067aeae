import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { loadCausalLM } from "@astra-rl/lm";
import { dispose, liveTensors, noGrad, scope, type Tensor } from "@astra-rl/torch";
import type { MetricsRecord } from "@astra-rl/records";
import { KeywordScorer } from "@astra-rl/scorers";
import { DPO, IPO } from "../../src/algorithm/preference/index.js";
import { RLOO } from "../../src/algorithm/policy-gradient/index.js";
import { rewardCredit } from "../../src/tree/index.js";
import type { StepResult } from "../../src/algorithm/index.js";
import { ASTEvaluator } from "../../src/evaluation/index.js";
import { entropy, Reward } from "../../src/reward/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";
import {
  Harness,
  HFASTConfiguration,
  HFASTTrainer,
  type HFASTConfigurationOptions,
  type HFASTTrainerOptions,
} from "../../src/training/index.js";
import { temporaryFolder } from "./temporary-folder.js";

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));
const SETTINGS: HFASTConfigurationOptions = {
  learningRate: 1e-3,
  batchSize: 2,
  trainingSteps: 4,
  numEpisodesPerExperience: 2,
  evaluateEvery: 2,
  schedule: "linear",
  warmupSteps: 1,
  seed: 0,
};

/** Trains tiny GPT-2 against itself; the weights and records come back, everything else is disposed of. */
async function train(
  configuration: HFASTConfigurationOptions,
  options: HFASTTrainerOptions = {},
  system: Partial<HFASTSystemOptions> = {},
  Solver: typeof DPO | typeof IPO = DPO,
): Promise<{ weights: Uint8Array[]; records: MetricsRecord[]; live: number[] }> {
  const scorer = new KeywordScorer([{ pattern: "[aeiou]", weight: 0.4 }, { pattern: "[t-z]" }]);
  const generation = { tester: { maxNewTokens: 5 }, target: { maxNewTokens: 5 } };
  const hf = await HFASTSystem.load({ tester: GPT2, target: GPT2, scorer, generation, ...system });
  const sampler = new ASTSampler(hf, ["Hello there.", "What a day", "I"], { width: 2, depth: 2 });
  const records: MetricsRecord[] = [];
  const live: number[] = [];
  const trainer = new HFASTTrainer(
    new HFASTConfiguration(configuration),
    sampler,
    new Solver(hf, { beta: 0.1 }),
    {
      evaluator: new ASTEvaluator(sampler, ["Good morning", "Well"]),
      clock: () => 0,
      runDirectory: null,
      ...options,
      callbacks: [
        {
          name: "records",
          onStep: (record) => {
            records.push(record);
            live.push(liveTensors());
          },
        },
        ...(options.callbacks ?? []),
      ],
    },
  );
  try {
    await trainer.train();
    return { weights: scope(() => [...hf.parameters()].map(bytesOf)), records, live };
  } finally {
    trainer.dispose();
    hf.dispose();
  }
}

const bytesOf = (tensor: Tensor) =>
  Uint8Array.from(tensor.detach().contiguous().view("uint8").toTypedArray() as Uint8Array);

describe("training a GPT-2", () => {
  it("reads each tree once if its branches share a batch, and every conversation separately otherwise", async () => {
    const before = liveTensors();
    const scorer = new KeywordScorer([{ pattern: "[aeiou]", weight: 0.4 }]);
    const generation = { tester: { maxNewTokens: 5 }, target: { maxNewTokens: 5 } };
    const system = await HFASTSystem.load({ tester: GPT2, target: GPT2, scorer, generation });
    const sampler = new ASTSampler(system, ["Hello there.", "What a day", "I"], { width: 2, depth: 2 });
    const algorithm = new RLOO(system);
    /** Tokens that the tester reads in training on these batches. */
    const trained = async <Batch>(batches: readonly Batch[], step: (batch: Batch) => Promise<StepResult>) => {
      const start = system.counters().tester!.trained!;
      for (const batch of batches) (await step(batch)).loss.dispose();
      return system.counters().tester!.trained! - start;
    };
    // 1 + 2 branches a tree.
    const read = [];
    for (const batchSize of [3, 1]) {
      const harness = new Harness(sampler, algorithm, { numEpisodesPerExperience: 4, batchSize });
      const { graphs, batches } = await harness.experience();
      expect(batches).toHaveLength((4 * 3) / batchSize);
      read.push(await trained(batches, ({ batch }) => harness.step(batch)));
      const trees = [];
      for (const graph of graphs) {
        const branches = await noGrad(() => algorithm.prepare(algorithm.flatten(graph, rewardCredit(graph))));
        trees.push(algorithm.collate(branches));
      }
      if (batchSize === 3) expect(read[0]).toBe(await trained(trees, (batch) => algorithm.step(batch)));
    }
    // Each of the two branches below reads the prompt and the first probe again.
    expect(read[1]).toBeGreaterThan(1.2 * read[0]!);
    system.dispose();
    expect(liveTensors()).toBe(before);
  });

  it("passes the tester's own log-probabilities to reward terms", async () => {
    const scorer = new KeywordScorer([{ pattern: "[aeiou]" }]);
    const reward = new Reward([{ term: entropy(), weight: 1 }], { scorer });
    const generation = {
      tester: { maxNewTokens: 5, temperature: 0.7, topK: 20 },
      target: { maxNewTokens: 3 },
    };
    const hf = await HFASTSystem.load({ tester: GPT2, target: GPT2, scorer, reward, generation });
    const graph = await new ASTSampler(hf, ["Hello there."], { width: 2, depth: 2 }).rollout(0);
    const nodes = [...graph.nodes()];
    const table = await hf.getTesterLogprobs(
      nodes.map(({ context }) => context),
      nodes.map(({ probe }) => probe),
    );
    const rows = table.rows();
    expect(rows.length).toBe(6);
    for (const [row, node] of nodes.entries()) {
      // The full distribution at temperature 1, for any sampling settings.
      const mean = rows[row]!.reduce((sum, value) => sum + value, 0) / rows[row]!.length;
      expect(node.terms["entropy"]).toBeCloseTo(-mean, 4);
      expect(node.reward).toBe(node.terms["entropy"]);
    }
    table.dispose();
    hf.dispose();
  });

  it("writes checkpoints that load with the trained weights", async () => {
    const folder = temporaryFolder();
    const { weights } = await train({ ...SETTINGS, trainingSteps: 2 }, { runDirectory: folder });
    for (const file of ["config.json", "model.safetensors", "tokenizer.json"]) {
      expect(existsSync(join(folder, "checkpoints", "best", file)), file).toBe(true);
    }
    const { model } = await loadCausalLM(join(folder, "checkpoints", "last"));
    const stored = scope(() => [...model.namedParameters().values()].map(bytesOf));
    expect(stored).toEqual(weights);
    expect(readFileSync(join(folder, "checkpoints", "last", "model.safetensors"))).not.toEqual(
      readFileSync(join(GPT2, "model.safetensors")),
    );
    dispose(model.namedParameters());
  });

  it("counts the tokens of each step", async () => {
    const { records } = await train({ ...SETTINGS, trainingSteps: 2, evaluateEvery: 1 });
    for (const record of records) {
      for (const role of ["tester", "target"]) {
        expect(record[`tokens/${role}/read`], role).toBeGreaterThan(0);
        expect(record[`tokens/${role}/generated`], role).toBeGreaterThan(0);
      }
      expect(record["tokens/baseline/generated"]).toBe(0);
      // 2 episodes of 2 + 4 turns, at most 5 tokens a probe; evaluations are not counted in.
      expect(record["tokens/tester/generated"]).toBeLessThanOrEqual(12 * 5);
    }
  });

  it("gives nearly the weights of a large batch by accumulation", async () => {
    const settings = {
      ...SETTINGS,
      trainingSteps: 1,
      optimizer: "sgd",
      learningRate: 0.1,
      clipGradNorm: 0,
    } as const;
    const large = await train({ ...settings, batchSize: 100 });
    const cut = await train({ ...settings, batchSize: 1, gradientAccumulationSteps: 100 });
    expect(cut.records[0]!["updates/done"]).toBe(1);
    expect(cut.records[0]!["gradient/norm"]).toBeCloseTo(large.records[0]!["gradient/norm"] as number, 5);
    const floats = (bytes: Uint8Array) =>
      new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
    for (const [i, weights] of cut.weights.entries()) {
      const [a, b] = [floats(weights), floats(large.weights[i]!)];
      // Sums in another order, in float32.
      for (let j = 0; j < a.length; j++) expect(Math.abs(a[j]! - b[j]!)).toBeLessThan(1e-5);
    }
  });

  it("leaks no tensors: the same number after every step, none afterwards", async () => {
    const before = liveTensors();
    const { live } = await train(
      { ...SETTINGS, trainingSteps: 4, evaluateEvery: 1 },
      { runDirectory: temporaryFolder() },
      {},
      IPO,
    );
    expect(new Set(live.slice(1)).size).toBe(1);
    expect(liveTensors()).toBe(before);
  });
});
