import { liveTensors } from "@astra-rl/torch";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { DrawKey } from "@astra-rl/base";
import {
  CacheBudget,
  GenerationSession,
  initializeCausalLM,
  type CausalLM,
  type Sampling,
  type TokenDecoder,
} from "../src/index.js";
import { SeededStream } from "../../base/test/support/seeded-stream.js";
import { referenceGenerate, referenceLogprobs } from "./reference-decoding.js";

const VOCABULARY = 211;
const WINDOW = 1280;

const sizes = { vocab_size: VOCABULARY, eos_token_id: 1, bos_token_id: 1 };
/** Untrained models whose windows are as long as real ones. */
const models: [string, Record<string, unknown>][] = [
  [
    "GPT-2",
    {
      ...sizes,
      architectures: ["GPT2LMHeadModel"],
      model_type: "gpt2",
      n_positions: WINDOW,
      n_embd: 24,
      n_layer: 2,
      n_head: 3,
    },
  ],
  [
    "Llama with grouped queries",
    {
      ...sizes,
      architectures: ["LlamaForCausalLM"],
      model_type: "llama",
      max_position_embeddings: WINDOW,
      hidden_size: 32,
      intermediate_size: 48,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
    },
  ],
  [
    "Mistral with a window of 100",
    {
      ...sizes,
      architectures: ["MistralForCausalLM"],
      model_type: "mistral",
      max_position_embeddings: WINDOW,
      sliding_window: 100,
      hidden_size: 32,
      intermediate_size: 48,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
    },
  ],
];

const decoder: TokenDecoder = { decode: (ids) => ids.map((id) => (id === 1 ? "" : `${id} `)).join("") };
const stream = new SeededStream(23, "extremes");
const randomIds = (length: number) => Array.from({ length }, () => 2 + stream.integer(VOCABULARY - 2));
const keysOf = (count: number, episode = 0): DrawKey[] =>
  Array.from({ length: count }, (_, node) => ({ seed: 9, stream: "tester", episode, node }));
const sampling: Sampling = { maxNewTokens: 32, minNewTokens: 32, topK: 50, topP: 0.9 };

function expectClose(actual: readonly number[], expected: readonly number[]): void {
  expect(actual).toHaveLength(expected.length);
  actual.forEach((value, at) => expect(Math.abs(value - expected[at]!)).toBeLessThan(2e-4));
}

describe.each(models)("%s", (_, settings) => {
  let model: CausalLM;
  let start: number;
  let before: number;
  beforeAll(() => {
    start = liveTensors();
    // Weights ten times as large as usual, so that attention to distant tokens affects every number.
    model = initializeCausalLM({ ...settings, initializer_range: 0.2 }, 5);
    referenceLogprobs(model, [1], [2]);
  });
  afterAll(() => {
    model.dispose();
    expect(liveTensors()).toBe(start);
  });
  beforeEach(() => (before = liveTensors()));
  afterEach(() => expect(liveTensors()).toBe(before));

  it("handles a conversation of more than 1,000 tokens, each prefilled once", () => {
    using session = GenerationSession.open(model, decoder, [randomIds(40)]);
    let given = 40;
    let sampled = 0;
    for (let turn = 0; session.rows()[0]!.length < 1000; turn += 1) {
      const context = session.rows()[0]!;
      const said = session.generate(sampling, keysOf(1, turn));
      expectClose(said.logprobs[0]!, referenceLogprobs(model, context, said.ids[0]!));
      const answer = randomIds(31 + turn);
      const before = session.rows()[0]!;
      expectClose(session.read([answer])[0]!, referenceLogprobs(model, before, answer));
      sampled += said.ids[0]!.length;
      given += answer.length;
    }
    expect(session.rows()[0]!.length).toBe(given + sampled);
    expect(session.counters).toMatchObject({
      tokensRead: given,
      tokensGenerated: sampled,
      tokensReread: 0,
      // The last answer's last token has no successor yet, but its hidden state is what comes next.
      tokensForwarded: given + sampled,
    });
  });

  it("handles 64 prompts of 1 to 1,200 tokens in one batch as it handles each alone, within a cache of a tenth of their size", () => {
    // Every power of two, the extremes, and random values.
    const lengths = [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1200];
    while (lengths.length < 64) lengths.push(1 + Math.floor(1200 * stream.uniform() ** 3));
    const prompts = lengths.map(randomIds);
    const few = { ...sampling, minNewTokens: 0, maxNewTokens: 6 };
    const keys = keysOf(64, 77);
    using free = GenerationSession.open(model, decoder, prompts);
    const whole = free.generate(few, keys);
    const budget = new CacheBudget(free.cacheBytes / 10);
    using tight = GenerationSession.open(model, decoder, prompts, { cacheBudget: budget });
    const parts = tight.generate(few, keys);
    expect(parts.ids).toEqual(whole.ids);
    parts.logprobs.forEach((row, at) => expectClose(row, whole.logprobs[at]!));
    expect(budget.used).toBeLessThanOrEqual(budget.limit);
    for (const row of [0, 5, 10, 12, 40]) {
      const alone = referenceGenerate(model, decoder, prompts[row]!, few, keys[row]!);
      expect(whole.ids[row]).toEqual(alone.ids);
      expectClose(whole.logprobs[row]!, alone.logprobs);
    }
    expect(free.counters.tokensRead).toBe(lengths.reduce((sum, length) => sum + length, 0));
    expect(free.counters.tokensReread).toBe(0);
  });

  it("continues a prompt of one token, up to the last position of the context window and beyond", () => {
    const messages: string[] = [];
    using session = GenerationSession.open(model, decoder, [[7]], { log: (line) => messages.push(line) });
    const long = { ...sampling, minNewTokens: WINDOW - 1, maxNewTokens: WINDOW - 1 };
    const { ids, logprobs } = session.generate(long, keysOf(1));
    expect(ids[0]).toHaveLength(WINDOW - 1);
    expect(messages).toEqual([]);
    expectClose(logprobs[0]!, referenceLogprobs(model, [7], ids[0]!));
    session.generate({ ...sampling, minNewTokens: 2, maxNewTokens: 2 }, keysOf(1, 1));
    expect(messages).toHaveLength(1);
    expect(session.rows()[0]!.length).toBeLessThanOrEqual(WINDOW);
  });
});
