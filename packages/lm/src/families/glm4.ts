import { ATTENTION, decoderFamily, headDimensionOf, llamaModules } from "./decoder-family.js";
import { parseRotarySettings, partialRotaryDimension } from "./rotary.js";

/**
 * GLM-4-0414 (GLM Team 2024, arXiv 2406.12793), dense: norms before and behind each block, and channels of a part of each
 * head that are rotated in adjacent pairs.
 */
export const glm4 = decoderFamily({
  architectures: ["Glm4ForCausalLM"],
  modelType: "glm4",
  defaults: {
    num_key_value_heads: 2,
    head_dim: 128,
    rms_norm_eps: 1.5625e-7,
    max_position_embeddings: 131072,
    eos_token_id: [151329, 151336, 151338],
  },
  traits: (fields) => {
    const share = { key: "partial_rotary_factor", fallback: 0.5 };
    const dimension = partialRotaryDimension(fields, headDimensionOf(fields), share);
    return {
      queryKeyValueBias: fields.boolean("attention_bias", { fallback: true }),
      modules: llamaModules({
        attentionNorm: "input_layernorm",
        ...ATTENTION,
        attentionOutputNorm: "post_self_attn_layernorm",
        feedForwardNorm: "post_attention_layernorm",
        gateUp: "mlp.gate_up_proj",
        down: "mlp.down_proj",
        feedForwardOutputNorm: "post_mlp_layernorm",
      }),
      rotary: parseRotarySettings(fields, { dimension, pairs: "adjacent" }),
    };
  },
});
