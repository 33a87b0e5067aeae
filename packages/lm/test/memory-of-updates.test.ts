// Alone in its file: the peak of resident memory is that of the process, and each file has a process of its own.
import { liveTensors, scope } from "@astra-rl/torch";
import { expect, it, vi } from "vitest";
import { initializeGPT2, KeyedStream, tokenLogprobs } from "../src/index.js";

// Freed memory goes back at once here, rather than being kept (docs/decisions/0040): the peak then tells what was in use,
// without the holes between blocks.
vi.hoisted(() => {
  process.env["MALLOC_MMAP_MAX_"] = "65536";
});

const MEGABYTE = 2 ** 20;
const LENGTH = 768;
const LAYERS = 12;

it("an update with gradient checkpointing peaks at less than half of the plain one's memory", () => {
  const model = initializeGPT2(
    { vocabSize: 4000, contextLength: LENGTH, hiddenSize: 64, layers: LAYERS, heads: 4, eosId: 0 },
    1,
  );
  for (const parameter of model.namedParameters().values()) parameter.requiresGrad_();
  const stream = new KeyedStream(5, "updates");
  const ids = (length: number) => Array.from({ length }, () => stream.integer(4000));
  const update = (rows: { context: number[]; continuation: number[] }[], gradientCheckpointing: boolean) =>
    scope(() => tokenLogprobs(model, rows, { gradientCheckpointing }).mean().backward());
  const peakGrowth = (work: () => void) => {
    const before = process.resourceUsage().maxRSS;
    work();
    return ((process.resourceUsage().maxRSS - before) * 1024) / MEGABYTE;
  };
  // Gradients and whatever is made once are there before the measurement.
  update([{ context: ids(4), continuation: ids(4) }], false);
  update([{ context: ids(4), continuation: ids(4) }], true);
  const before = liveTensors();
  const rows = [{ context: ids(64), continuation: ids(LENGTH - 64) }];
  // The peak only rises: the smaller one first, and both are measured from where they begin.
  const checkpointed = peakGrowth(() => update(rows, true));
  const more = peakGrowth(() => update(rows, false));
  expect(more, `${checkpointed.toFixed(0)} MB, then ${more.toFixed(0)} MB more`).toBeGreaterThan(
    checkpointed,
  );
  expect(liveTensors()).toBe(before);
  model.dispose();
});
