import type { JsonFields } from "../json-fields.js";
import {
  ATTENTION,
  attentionBiasOf,
  decoderFamily,
  FEED_FORWARD,
  llamaModules,
  QUERY_KEY_NORMS,
  slidesByLayerTypes,
  slidingWindowOf,
} from "./decoder-family.js";

/** Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv 2407.10671): biases on queries, keys and values. */
export const qwen2 = decoderFamily({
  architectures: ["Qwen2ForCausalLM"],
  modelType: "qwen2",
  traits: (fields) => ({ queryKeyValueBias: true, ...slidingTraits(fields) }),
});

/** Qwen3 (Yang et al. 2025, arXiv 2505.09388): no biases, an RMS norm over each head of queries and keys. */
export const qwen3 = decoderFamily({
  architectures: ["Qwen3ForCausalLM"],
  modelType: "qwen3",
  traits: (fields) => ({
    ...attentionBiasOf(fields),
    modules: llamaModules({
      attentionNorm: "input_layernorm",
      ...ATTENTION,
      ...QUERY_KEY_NORMS,
      feedForwardNorm: "post_attention_layernorm",
      ...FEED_FORWARD,
    }),
    ...slidingTraits(fields),
  }),
});

/**
 * The sliding window is off unless `use_sliding_window`. It then covers the layers listed in `layer_types`,
 * or those from `max_window_layers` on (default 28, as in transformers, so that a small model has none).
 */
function slidingTraits(fields: JsonFields) {
  const used = fields.boolean("use_sliding_window", { fallback: false });
  const slidingWindow = used ? slidingWindowOf(fields) : null;
  const first = fields.integer("max_window_layers", { minimum: 0, fallback: 28 });
  const isBehind = (layer: number) => slidingWindow !== null && layer >= first;
  return { slidingWindow, slides: slidesByLayerTypes(fields, slidingWindow) ?? isBehind };
}
