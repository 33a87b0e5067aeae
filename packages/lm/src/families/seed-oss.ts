import { decoderFamily } from "./decoder-family.js";

/** Seed-OSS (ByteDance Seed 2025): Llama's decoder with biases on queries, keys and values. */
export const seedOss = decoderFamily({
  architectures: ["SeedOssForCausalLM"],
  modelType: "seed_oss",
  defaults: { num_key_value_heads: 8, head_dim: 128, max_position_embeddings: 524288 },
  traits: (fields) => ({
    queryKeyValueBias: fields.boolean("attention_bias", { fallback: true }),
    outputBias: fields.boolean("attention_out_bias", { fallback: false }),
    feedForwardBias: fields.boolean("mlp_bias", { fallback: false }),
  }),
});
