import {
  ATTENTION,
  attentionBiasOf,
  decoderFamily,
  FEED_FORWARD,
  llamaModules,
  QUERY_KEY_NORMS,
} from "./decoder-family.js";

/** OLMo 2 (OLMo et al. 2024, arXiv 2501.00656): norms behind each block, and of queries and keys. */
export const olmo2 = decoderFamily({
  architectures: ["Olmo2ForCausalLM"],
  modelType: "olmo2",
  defaults: { rms_norm_eps: 1e-5, max_position_embeddings: 2048 },
  traits: (fields) => ({
    ...attentionBiasOf(fields),
    modules: llamaModules({
      ...ATTENTION,
      ...QUERY_KEY_NORMS,
      attentionOutputNorm: "post_attention_layernorm",
      ...FEED_FORWARD,
      feedForwardOutputNorm: "post_feedforward_layernorm",
    }),
    queryKeyNorm: "projection",
  }),
});
