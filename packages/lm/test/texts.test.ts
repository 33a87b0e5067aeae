import { noGrad, scope } from "@astra-rl/torch";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  Codec,
  generate,
  GenerationSession,
  loadCausalLM,
  tokenLogprobs,
  type CausalLM,
  type Tokenizer,
} from "../src/index.js";
import { goldenCausal } from "./golden/families.js";
import { goldenTexts, newTokens } from "./golden/texts.js";

it("the golden texts cover every causal family, with and without a beginning-of-text token", () => {
  expect(goldenTexts.map(({ name }) => name)).toEqual(["gpt2", ...goldenCausal.map(({ name }) => name)]);
  const begun = goldenTexts.filter(({ prompts }) => new Set(prompts.map(({ ids }) => ids[0])).size === 1);
  expect(begun.map(({ name }) => name)).toEqual([
    "gemma3",
    "gemma3-multimodal",
    "llama-dynamic",
    "llama-linear",
    "llama2",
    "llama3-sharded",
    "llama31-old-spelling",
    "llama32-new-spelling",
    "ministral3",
    "mistral",
    "phi3",
    "qwen2-bos",
  ]);
});

describe.each(goldenTexts)("texts, as transformers reads them with $name", ({ folder, pairs, prompts }) => {
  let model: CausalLM;
  let tokenizer: Tokenizer;
  let codec: Codec;
  beforeAll(async () => {
    ({ model, tokenizer } = await loadCausalLM(folder));
    codec = Codec.of(tokenizer);
  }, 60_000);
  afterAll(() => model.dispose());

  it("have the same ids", () => {
    for (const { context, continuation, contextIds, continuationIds } of pairs) {
      expect(codec.begin(context)).toEqual(contextIds);
      expect(tokenizer.encode(continuation)).toEqual(continuationIds);
    }
    for (const { prompt, ids } of prompts) expect(codec.begin(prompt)).toEqual(ids);
  });

  it("have the same log-probabilities, also in a session", () => {
    const rows = pairs.map(({ context, continuationIds }) => {
      return { context: codec.begin(context), continuation: continuationIds, pinned: codec.prefix.length };
    });
    const table = noGrad(() => scope(() => tokenLogprobs(model, rows).toArray())) as number[][];
    using session = GenerationSession.open(
      model,
      codec,
      rows.map(({ context }) => context),
      { pinned: codec.prefix.length },
    );
    const read = session.read(rows.map(({ continuation }) => continuation));
    pairs.forEach(({ logprobs }, row) => {
      logprobs.forEach((value, token) => {
        expect(Math.abs(table[row]![token]! - value)).toBeLessThan(2e-4);
        expect(Math.abs(read[row]![token]! - value)).toBeLessThan(2e-4);
      });
      expect(read[row]).toHaveLength(logprobs.length);
    });
  });

  it("have the same greedy continuations", () => {
    const begun = prompts.map(({ prompt }) => codec.begin(prompt));
    const { ids, text } = generate(model, codec, begun, { maxNewTokens: newTokens, greedy: true });
    expect(ids).toEqual(prompts.map(({ greedy }) => greedy));
    expect(text).toEqual(ids.map((row) => codec.decode(row)));
  });

  it("keep the prefix when they are too long", () => {
    const { contextLength } = model.config;
    const long = codec.begin("The morning train was late again. ".repeat(60));
    expect(long.length).toBeGreaterThan(contextLength);
    const pinned = codec.prefix.length;
    using session = GenerationSession.open(model, codec, [long], { pinned });
    session.generate({ maxNewTokens: 4, greedy: true });
    const [row] = session.rows();
    expect(row!.slice(0, pinned)).toEqual(codec.prefix);
    expect(row!.slice(pinned, -4)).toEqual(long.slice(-(contextLength - 4 - pinned)));
  });
});
