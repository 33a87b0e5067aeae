import { decoderFamily, headDimensionOf, llamaModules } from "./decoder-family.js";
import { parseRotarySettings, partialRotaryDimension } from "./rotary.js";

/**
 * Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (Abdin et al. 2024, arXiv 2404.14219 and 2412.08905): Llama's decoder with fused
 * projections.
 */
export const phi3 = decoderFamily({
  architectures: ["Phi3ForCausalLM"],
  modelType: "phi3",
  defaults: { rms_norm_eps: 1e-5, max_position_embeddings: 4096, original_max_position_embeddings: 4096 },
  traits: (fields) => {
    const slidingWindow = fields.integer("sliding_window", { fallback: null });
    const share = { key: "partial_rotary_factor", fallback: 1 };
    const dimension = partialRotaryDimension(fields, headDimensionOf(fields), share);
    return {
      modules: llamaModules({
        attentionNorm: "input_layernorm",
        queryKeyValue: "self_attn.qkv_proj",
        attentionOutput: "self_attn.o_proj",
        feedForwardNorm: "post_attention_layernorm",
        gateUp: "mlp.gate_up_proj",
        down: "mlp.down_proj",
      }),
      rotary: parseRotarySettings(fields, { dimension, former: { yarn: "longrope" } }),
      slidingWindow,
      slides: () => slidingWindow !== null,
    };
  },
});
