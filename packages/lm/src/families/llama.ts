import { attentionBiasOf, decoderFamily } from "./decoder-family.js";

/** Llama 2, 3, 3.1 and 3.2 (Touvron et al. 2023, arXiv 2307.09288; Grattafiori et al. 2024, arXiv 2407.21783). */
export const llama = decoderFamily({
  architectures: ["LlamaForCausalLM"],
  modelType: "llama",
  traits: (fields) => ({
    ...attentionBiasOf(fields),
    feedForwardBias: fields.boolean("mlp_bias", { fallback: false }),
  }),
});
