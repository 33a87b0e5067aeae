import { decoderFamily, headDimensionOf, slidingWindowOf } from "./decoder-family.js";
import { parseRotarySettings } from "./rotary.js";
import { textDecoderOf } from "./text-decoder.js";

/** Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama's decoder with a sliding window in every layer. */
export const mistral = decoderFamily({
  architectures: ["MistralForCausalLM"],
  modelType: "mistral",
  traits: (fields) => {
    const slidingWindow = slidingWindowOf(fields);
    return { slidingWindow, slides: () => slidingWindow !== null };
  },
});

/** Ministral 3 (Mistral AI 2025, https://mistral.ai/news/mistral-3): YaRN, and queries that grow with their position. */
export const ministral3 = decoderFamily({
  architectures: ["Ministral3ForCausalLM"],
  modelType: "ministral3",
  defaults: {
    num_key_value_heads: 8,
    head_dim: 128,
    rms_norm_eps: 1e-5,
    max_position_embeddings: 262144,
    rope_parameters: {
      rope_type: "yarn",
      rope_theta: 1e6,
      factor: 16,
      original_max_position_embeddings: 16384,
      mscale: 1,
      mscale_all_dim: 1,
      llama_4_scaling_beta: 0.1,
    },
  },
  traits: (fields) => {
    const slidingWindow = fields.integer("sliding_window", { fallback: null });
    return {
      rotary: parseRotarySettings(fields, { dimension: headDimensionOf(fields), growsQueries: true }),
      slidingWindow,
      slides: () => slidingWindow !== null,
    };
  },
});

/** The text decoder of a multimodal checkpoint of Mistral Small 3 or Ministral 3. */
export const mistral3Multimodal = textDecoderOf(
  { architectures: ["Mistral3ForConditionalGeneration"], modelType: "mistral3" },
  [mistral, ministral3],
);
