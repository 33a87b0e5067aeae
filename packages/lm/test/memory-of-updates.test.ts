import {
  liveTensors,
  maxMemoryAllocated,
  memoryAllocated,
  resetPeakMemoryStats,
  scope,
} from "@astra-rl/torch";
import { expect, it } from "vitest";
import { initializeGPT2, tokenLogprobs } from "../src/index.js";
import { SeededStream } from "../../base/test/support/seeded-stream.js";

const MEGABYTE = 2 ** 20;
const LENGTH = 768;
const LAYERS = 12;
// Few, so that the layers' activations outweigh the logits, which are computed either way.
const VOCABULARY = 1000;

it("an update with gradient checkpointing has less than half of the plain one's peak memory", () => {
  const model = initializeGPT2(
    { vocabSize: VOCABULARY, contextLength: LENGTH, hiddenSize: 64, layers: LAYERS, heads: 4, eosId: 0 },
    1,
  );
  for (const parameter of model.namedParameters().values()) parameter.requiresGrad_();
  const stream = new SeededStream(5, "updates");
  const ids = (length: number) => Array.from({ length }, () => stream.integer(VOCABULARY));
  const update = (rows: { context: number[]; continuation: number[] }[], gradientCheckpointing: boolean) =>
    scope(() => tokenLogprobs(model, rows, { gradientCheckpointing }).mean().backward());
  const peakGrowth = (work: () => void) => {
    resetPeakMemoryStats();
    const before = memoryAllocated();
    work();
    return (maxMemoryAllocated() - before) / MEGABYTE;
  };
  // Gradients and one-time allocations exist before the measurement.
  update([{ context: ids(4), continuation: ids(4) }], false);
  update([{ context: ids(4), continuation: ids(4) }], true);
  const before = liveTensors();
  const rows = [{ context: ids(64), continuation: ids(LENGTH - 64) }];
  const plain = peakGrowth(() => update(rows, false));
  const checkpointed = peakGrowth(() => update(rows, true));
  expect(checkpointed, `${checkpointed.toFixed(0)} MB against ${plain.toFixed(0)} MB`).toBeLessThan(
    plain / 2,
  );
  expect(liveTensors()).toBe(before);
  model.dispose();
});
