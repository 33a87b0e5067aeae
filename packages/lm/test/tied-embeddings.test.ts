/** A table used for lookups and for multiplication: its gradient is the sum of those of the two uses. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { arange, liveTensors, noGrad, scope, tensor, type Tensor } from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  initializeCausalLM,
  loadCausalLM,
  saveCausalLM,
  tokenLogprobs,
  type CausalLM,
  type ScoredRow,
} from "../src/index.js";
import { goldenCausal } from "./golden/families.js";
import { parseSafetensors, renderSafetensors } from "./safetensors-bytes.js";

const sizes = { vocab_size: 41, bos_token_id: 1, eos_token_id: 1, initializer_range: 0.3 };
const families = [
  {
    name: "GPT-2",
    settings: {
      ...sizes,
      architectures: ["GPT2LMHeadModel"],
      model_type: "gpt2",
      n_positions: 32,
      n_embd: 16,
      n_layer: 2,
      n_head: 4,
    },
    table: "transformer.wte.weight",
  },
  {
    name: "Qwen2",
    settings: {
      ...sizes,
      architectures: ["Qwen2ForCausalLM"],
      model_type: "qwen2",
      max_position_embeddings: 32,
      hidden_size: 16,
      intermediate_size: 24,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
    },
    table: "model.embed_tokens.weight",
  },
];
// Ids that come several times, in one row and in several.
const rows: ScoredRow[] = [
  { context: [3, 9, 27, 3, 3], continuation: [5, 15, 9] },
  { context: [3, 9, 8], continuation: [5, 16, 40, 38, 3] },
];

let before: number;
beforeEach(() => (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

describe("a checkpoint with two tables that config.json declares tied", () => {
  let folder: string;
  beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "tied-"))));
  afterEach(() => rmSync(folder, { recursive: true }));
  const setting = () =>
    (JSON.parse(readFileSync(join(folder, "saved", "config.json"), "utf8")) as Record<string, unknown>)[
      "tie_word_embeddings"
    ];

  it.each([
    ["keeps both if they differ, trains both, and records it when saved", "llama2", false],
    ["has one table if they are equal", "llama32-new-spelling", true],
  ])("%s", async (_, name, areEqual) => {
    cpSync(goldenCausal.find((family) => family.name === name)!.folder, folder, { recursive: true });
    const [weights, config] = ["model.safetensors", "config.json"].map((file) => join(folder, file)) as [
      string,
      string,
    ];
    const settings = JSON.parse(readFileSync(config, "utf8")) as object;
    writeFileSync(config, JSON.stringify({ ...settings, tie_word_embeddings: true }));
    const tensors = new Map(parseSafetensors(readFileSync(weights)));
    const table = tensors.get("model.embed_tokens.weight")!;
    if (areEqual) writeFileSync(weights, renderSafetensors(tensors.set("lm_head.weight", table)));
    const { model, tokenizer } = await loadCausalLM(folder);
    expect(model.config.tiedEmbeddings).toBe(areEqual);
    expect(model.namedParameters().has("lm_head.weight")).toBe(!areEqual);
    for (const parameter of model.namedParameters().values()) parameter.requiresGrad_();
    const logprobs = scope(() => {
      const found = tokenLogprobs(model, rows);
      found.sum().backward();
      return found.toArray();
    });
    for (const [key, { grad }] of model.namedParameters())
      expect(
        scope(() => grad!.abs().sum().item()),
        key,
      ).toBeGreaterThan(0);
    await saveCausalLM(join(folder, "saved"), model, tokenizer);
    expect(setting()).toBe(areEqual);
    model.dispose();
    const { model: again } = await loadCausalLM(join(folder, "saved"));
    expect(scope(() => noGrad(() => tokenLogprobs(again, rows).toArray()))).toEqual(logprobs);
    again.dispose();
  });
});

const numbers = (given: Tensor | null | undefined) => Array.from(given!.toTypedArray(), Number);

/** The same model with a separate projection with the same numbers. */
function apart(settings: Readonly<Record<string, unknown>>, tied: CausalLM, table: string): CausalLM {
  const model = initializeCausalLM({ ...settings, tie_word_embeddings: false }, 2);
  const sources = tied.namedParameters();
  noGrad(() => {
    for (const [name, parameter] of model.namedParameters())
      parameter.copy_(sources.get(name === "lm_head.weight" ? table : name)!);
  });
  return model;
}

const trained = (model: CausalLM) => {
  for (const parameter of model.namedParameters().values()) parameter.requiresGrad_();
  return model.namedParameters();
};

describe.each(families)("a tied table of $name", ({ settings, table }) => {
  it("gets the gradients of both uses, accumulated over backward passes", () => {
    const tied = initializeCausalLM({ ...settings, tie_word_embeddings: true }, 1);
    const other = apart(settings, tied, table);
    const [own, separate] = [trained(tied), trained(other)];
    for (let pass = 1; pass <= 2; pass += 1) {
      for (const model of [tied, other]) scope(() => tokenLogprobs(model, rows).sum().neg().backward());
      const looked = numbers(separate.get(table)!.grad);
      const projected = numbers(separate.get("lm_head.weight")!.grad);
      const got = numbers(own.get(table)!.grad);
      const largest = Math.max(...got.map(Math.abs));
      expect(largest).toBeGreaterThan(0.1);
      got.forEach((value, i) => {
        expect(Math.abs(value - (looked[i]! + projected[i]!))).toBeLessThan(2e-6 * largest);
      });
    }
    tied.dispose();
    other.dispose();
  });

  it("has a dense gradient if it is only used for lookups", () => {
    const tied = initializeCausalLM({ ...settings, tie_word_embeddings: true }, 1);
    const other = apart(settings, tied, table);
    const [own, separate] = [tied, other].map((model) => {
      const parameter = trained(model).get(table)!;
      scope(() => {
        const ids = tensor([[3, 9, 3, 40]], { dtype: "int64" });
        const positions = arange(4).view([1, 4]);
        model.forward(ids, { positions, mask: null }).select(-1, 5).sum().backward();
      });
      return numbers(parameter.grad);
    });
    // The same operators in the same order, except for the sum of repeated rows.
    expect(own!.length).toBe(41 * 16);
    own!.forEach((value, i) => expect(Math.abs(value - separate![i]!)).toBeLessThan(1e-5));
    expect(own!.slice(16 * 9, 16 * 10).some((value) => Math.abs(value) > 1e-3)).toBe(true);
    expect(own!.slice(16 * 10, 16 * 11)).toEqual(Array.from({ length: 16 }, () => 0));
    tied.dispose();
    other.dispose();
  });
});
