import type { JsonFields } from "../json-fields.js";
import { attentionBiasOf, decoderFamily } from "./decoder-family.js";

/** Granite 3 and its dense successors (IBM 2024): Llama's decoder with additional factors (arXiv 2203.03466). */
export const granite = decoderFamily({
  architectures: ["GraniteForCausalLM"],
  modelType: "granite",
  defaults: { max_position_embeddings: 2048 },
  traits: (fields: JsonFields) => {
    const multiplier = (name: string) => fields.positive(name, { fallback: 1 });
    const scale = multiplier("attention_multiplier");
    return {
      ...attentionBiasOf(fields),
      feedForwardBias: fields.boolean("mlp_bias", { fallback: false }),
      embeddingScale: multiplier("embedding_multiplier"),
      residualScale: multiplier("residual_multiplier"),
      attentionScale: () => scale,
      logitDivisor: multiplier("logits_scaling"),
    };
  },
});
