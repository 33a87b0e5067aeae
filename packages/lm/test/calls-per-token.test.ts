/** What one more token of a generation costs in calls, by family: exact, since on a GPU the calls are the time. */
import { afterEach, expect, test, vi } from "vitest";
import { GenerationSession, loadCausalLM, type CausalLM, type Tokenizer } from "../src/index.js";
import { expectNoLeaks } from "../../torch/test/live-tensors.js";
import { goldenCausal } from "./golden/families.js";
import { testAddon } from "../../torch/test/test-addon.js";
import { answerReadbacks, countCalls, onMeta } from "./on-meta.js";

const counter = countCalls();
expectNoLeaks();
afterEach(() => {
  vi.restoreAllMocks();
});

/** Tokens between two checks of the sampled tokens on a GPU. */
const CHECKED = 8;

/** "operators + kernels, copies from the host, reads" of `CHECKED` tokens, beyond those of a shorter generation. */
function callsOf(model: CausalLM, tokenizer: Tokenizer): string {
  const readbacks = answerReadbacks();
  const generate = (maxNewTokens: number) => {
    counter.taken();
    const readBefore = readbacks.count();
    const session = GenerationSession.open(
      model,
      tokenizer,
      [
        [1, 2, 3],
        [4, 5, 6],
      ],
      { endIds: [], reserve: 24 },
    );
    const keys = [0, 1].map((node) => ({ seed: 0, stream: "tester", episode: 0, node }));
    session.generate({ maxNewTokens, topK: 4, topP: 0.9 }, keys);
    session.dispose();
    return { ...counter.taken(), reads: readbacks.count() - readBefore };
  };
  generate(CHECKED); // makes the rotary tables
  const [less, more] = [generate(2 * CHECKED), generate(3 * CHECKED)];
  const between = (name: keyof typeof more) => more[name] - less[name];
  vi.restoreAllMocks();
  return `${between("operators")} + ${between("kernels")}, ${between("copies")}, ${between("reads")}`;
}

/** Families by what eight tokens of two layers cost. */
async function table(load: (folder: string) => Promise<{ model: CausalLM; tokenizer: Tokenizer }>) {
  const families: Record<string, string[]> = {};
  for (const { name, folder } of goldenCausal) {
    const { model, tokenizer } = await load(folder);
    expect(model.config.layers).toBe(2);
    (families[callsOf(model, tokenizer)] ??= []).push(name);
    model.dispose();
  }
  return families;
}

/** Libtorch from 2.4 on computes a root-mean-square norm in one call. */
const hasNorm = testAddon().schema("aten::rms_norm") !== null;

test.runIf(hasNorm)("a norm of one operator saves five calls", async () => {
  const folder = goldenCausal.find(({ name }) => name === "llama2")!.folder;
  const { model, tokenizer } = await onMeta(folder, "bfloat16");
  const norms = 2 * model.config.layers + 1;
  expect(callsOf(model, tokenizer)).toBe(`${1290 - CHECKED * norms * 5} + 0, 1, 2`);
  model.dispose();
});

test.skipIf(hasNorm)(
  "on a GPU in bfloat16, without kernels of ours: one copy, and two reads, for eight tokens",
  async () => {
    expect(await table((folder) => onMeta(folder, "bfloat16"))).toMatchInlineSnapshot(`
    {
      "1122 + 0, 1, 2": [
        "gpt-neox",
      ],
      "1242 + 0, 1, 2": [
        "smollm3",
      ],
      "1290 + 0, 1, 2": [
        "llama-dynamic",
        "llama-linear",
        "llama2",
        "llama3-sharded",
        "llama31-old-spelling",
        "llama32-new-spelling",
        "phi3",
        "qwen2",
        "qwen2-bos",
        "seed-oss",
      ],
      "1306 + 0, 1, 2": [
        "mistral",
      ],
      "1330 + 0, 1, 2": [
        "ministral3",
      ],
      "1338 + 0, 1, 2": [
        "phi4-mini",
      ],
      "1370 + 0, 1, 2": [
        "granite",
      ],
      "1546 + 0, 1, 2": [
        "qwen3",
      ],
      "1578 + 0, 1, 2": [
        "olmo2",
      ],
      "1674 + 0, 1, 2": [
        "glm4",
      ],
      "1698 + 0, 1, 2": [
        "olmo3",
      ],
      "2002 + 0, 1, 2": [
        "gemma3",
        "gemma3-multimodal",
      ],
    }
  `);
  },
);

test("on the CPU in float32", async () => {
  expect(await table((folder) => loadCausalLM(folder))).toMatchInlineSnapshot(`
    {
      "336 + 256, 24, 16": [
        "smollm3",
      ],
      "336 + 272, 24, 16": [
        "llama-dynamic",
        "llama-linear",
        "llama2",
        "llama3-sharded",
        "llama31-old-spelling",
        "llama32-new-spelling",
        "mistral",
        "qwen2",
        "qwen2-bos",
        "seed-oss",
      ],
      "336 + 304, 24, 16": [
        "qwen3",
      ],
      "368 + 224, 24, 16": [
        "phi3",
      ],
      "368 + 304, 24, 16": [
        "olmo2",
      ],
      "376 + 272, 24, 16": [
        "ministral3",
      ],
      "384 + 304, 32, 16": [
        "olmo3",
      ],
      "416 + 272, 24, 16": [
        "granite",
      ],
      "432 + 224, 24, 16": [
        "phi4-mini",
      ],
      "456 + 168, 24, 16": [
        "gpt-neox",
      ],
      "512 + 336, 32, 16": [
        "gemma3",
        "gemma3-multimodal",
      ],
      "544 + 288, 24, 16": [
        "glm4",
      ],
    }
  `);
});
