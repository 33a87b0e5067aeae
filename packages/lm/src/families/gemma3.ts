import { activationOf } from "./activations.js";
import {
  ATTENTION,
  attentionBiasOf,
  decoderFamily,
  FEED_FORWARD,
  headDimensionOf,
  llamaModules,
  QUERY_KEY_NORMS,
  slidesByLayerTypes,
} from "./decoder-family.js";
import { parseRotarySettings } from "./rotary.js";
import { textDecoderOf } from "./text-decoder.js";

/**
 * Gemma 3 (Gemma Team 2025, arXiv 2503.19786), text only: five layers with a sliding window and rotary positions of
 * their own for each layer with full attention.
 */
export const gemma3 = decoderFamily({
  architectures: ["Gemma3ForCausalLM"],
  modelType: "gemma3_text",
  // The `text_config` of published multimodal checkpoints relies on most of these.
  defaults: {
    model_type: "gemma3_text",
    vocab_size: 262208,
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 256,
    max_position_embeddings: 131072,
    query_pre_attn_scalar: 256,
    sliding_window: 4096,
    rope_theta: 1e6,
    tie_word_embeddings: true,
  },
  traits: (fields) => {
    for (const key of ["attn_logit_softcapping", "final_logit_softcapping"])
      if (fields.has(key))
        throw fields.error("unsupported-option", key, "null: capped logits are not supported");
    if (fields.boolean("use_bidirectional_attention", { fallback: false }))
      throw fields.error(
        "unsupported-option",
        "use_bidirectional_attention",
        "false: a causal model attends to earlier tokens only",
      );
    const slidingWindow = fields.integer("sliding_window");
    // Every sixth layer has full attention if `layer_types` is absent.
    const pattern = fields.integer("sliding_window_pattern", { fallback: 6 });
    const dimension = headDimensionOf(fields);
    const parameters = fields.nested("rope_parameters");
    const local = parameters?.nested("sliding_attention") ?? null;
    const scale = 1 / Math.sqrt(fields.positive("query_pre_attn_scalar"));
    return {
      ...attentionBiasOf(fields),
      modules: llamaModules({
        attentionNorm: "input_layernorm",
        ...ATTENTION,
        ...QUERY_KEY_NORMS,
        attentionOutputNorm: "post_attention_layernorm",
        feedForwardNorm: "pre_feedforward_layernorm",
        ...FEED_FORWARD,
        feedForwardOutputNorm: "post_feedforward_layernorm",
      }),
      embeddingScale: Math.sqrt(fields.integer("hidden_size")),
      rotary: parseRotarySettings(fields, {
        dimension,
        parameters: parameters?.nested("full_attention") ?? null,
      }),
      slidingRotary: parseRotarySettings(fields, {
        dimension,
        parameters: local,
        scaling: local,
        thetaKey: "rope_local_base_freq",
      }),
      slidingWindow,
      slides: slidesByLayerTypes(fields, slidingWindow) ?? ((layer) => (layer + 1) % pattern !== 0),
      attentionScale: () => scale,
      unitOffsetNorms: true,
      activation: activationOf(fields, "hidden_activation", "gelu_pytorch_tanh"),
    };
  },
});

/** The text decoder of a multimodal checkpoint of Gemma 3; saved as a text-only one. */
export const gemma3Multimodal = textDecoderOf(
  { architectures: ["Gemma3ForConditionalGeneration"], modelType: "gemma3" },
  [gemma3],
);
