import { maxMemoryAllocated, memoryAllocated, noGrad, resetPeakMemoryStats, scope } from "@astra-rl/torch";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  CacheBudget,
  GenerationSession,
  initializeGPT2,
  tokenLogprobs,
  type CausalLM,
  type TokenDecoder,
} from "../src/index.js";
import { SeededStream } from "../../base/test/support/seeded-stream.js";

const VOCABULARY = 50_257;
const ROWS = 64;
const LENGTH = 128;
/** Size of all logits of the batch in float32: 1.65 GB. */
const ALL_LOGITS = ROWS * LENGTH * VOCABULARY * 4;

const decoder: TokenDecoder = { decode: (ids) => ids.map((id) => `${id} `).join("") };
const stream = new SeededStream(3, "memory");
const randomIds = (length: number) => Array.from({ length }, () => stream.integer(VOCABULARY));
const keys = Array.from({ length: ROWS }, (_, node) => ({ seed: 1, stream: "tester", episode: 0, node }));

/** Peak memory of tensors while `work` ran, beyond that before, in bytes. */
function peakGrowth(work: () => void): number {
  resetPeakMemoryStats();
  const before = memoryAllocated();
  work();
  return maxMemoryAllocated() - before;
}

describe("a vocabulary of 50,257 with 64 rows", () => {
  let model: CausalLM;
  beforeAll(() => {
    model = initializeGPT2(
      { vocabSize: VOCABULARY, contextLength: 256, hiddenSize: 32, layers: 2, heads: 2, eosId: 50_256 },
      1,
    );
    // One-time allocations are made before the measurement.
    using session = GenerationSession.open(model, decoder, [randomIds(4)]);
    session.generate({ maxNewTokens: 2 }, keys.slice(0, 1));
    session.read([randomIds(2)]);
  });
  afterAll(() => model.dispose());

  it("scores 128 tokens per row and generates, within a cache budget and a quarter of all logits' memory", () => {
    // Keys and values of a column: 2 layers × 2 × 32 numbers; the budget holds a third of the rows.
    const columnBytes = 2 * 2 * 32 * 4;
    const budget = new CacheBudget((ROWS / 3) * (LENGTH + 40) * columnBytes);
    let held = 0;
    const grown = peakGrowth(() => {
      const prompts = Array.from({ length: ROWS }, (_, row) => randomIds(1 + (row % 16)));
      using session = GenerationSession.open(model, decoder, prompts, { cacheBudget: budget });
      const logprobs = session.read(prompts.map(() => randomIds(LENGTH)));
      held = Math.max(held, budget.used);
      for (const row of logprobs) {
        expect(row).toHaveLength(LENGTH);
        expect(row.every((value) => Number.isFinite(value) && value <= 0)).toBe(true);
      }
      for (const sampling of [
        { maxNewTokens: 4 },
        { maxNewTokens: 4, topK: 50, topP: 0.9, repetitionPenalty: 1.2 },
        { maxNewTokens: 4, topP: 0.95, recordBehaviour: true },
      ]) {
        const said = session.generate(sampling, keys);
        held = Math.max(held, budget.used);
        expect(said.ids).toHaveLength(ROWS);
        expect(said.ids.flat().every((id) => Number.isInteger(id) && id >= 0 && id < VOCABULARY)).toBe(true);
        expect(said.logprobs.flat().every((value) => Number.isFinite(value) && value <= 0)).toBe(true);
      }
    });
    expect(held).toBeLessThanOrEqual(budget.limit);
    expect(grown).toBeLessThan(ALL_LOGITS / 4);
  });

  it("scores 128 tokens per row without gradients within a quarter of all logits' memory", () => {
    const rows = Array.from({ length: ROWS }, () => ({
      context: randomIds(8),
      continuation: randomIds(LENGTH),
    }));
    const grown = peakGrowth(() => {
      const values = noGrad(() => scope(() => tokenLogprobs(model, rows).toTypedArray()));
      expect(values).toHaveLength(ROWS * LENGTH);
      expect(values.every((value) => Number.isFinite(Number(value)) && Number(value) <= 0)).toBe(true);
    });
    expect(grown).toBeLessThan(ALL_LOGITS / 4);
  });
});
