import { activationOf } from "./activations.js";
import { attentionBiasOf, decoderFamily } from "./decoder-family.js";
import { parseRotarySettings, partialRotaryDimension } from "./rotary.js";

/**
 * GPT-NeoX (Black et al. 2022, arXiv 2204.06745), also Pythia (Biderman et al. 2023, arXiv 2304.01373): rotary positions
 * in a part of each head, attention and feed-forward block in parallel, fused query/key/value, untied output.
 */
export const gptNeoX = decoderFamily({
  architectures: ["GPTNeoXForCausalLM"],
  modelType: "gpt_neox",
  traits: (fields) => {
    const hiddenSize = fields.integer("hidden_size");
    const heads = fields.integer("num_attention_heads");
    if (hiddenSize % heads !== 0)
      throw fields.error("indivisible", "num_attention_heads", `a divisor of hidden_size (${hiddenSize})`);
    const headDimension = hiddenSize / heads;
    const share = { key: "rotary_pct", fallback: 0.25 };
    const dimension = partialRotaryDimension(fields, headDimension, share);
    return {
      ...attentionBiasOf(fields, true),
      modelType: "gpt_neox",
      modules: {
        embedding: "gpt_neox.embed_in",
        layers: "gpt_neox.layers",
        layer: {
          attentionNorm: "input_layernorm",
          feedForwardNorm: "post_attention_layernorm",
          queryKeyValue: "attention.query_key_value",
          attentionOutput: "attention.dense",
          up: "mlp.dense_h_to_4h",
          down: "mlp.dense_4h_to_h",
        },
        norm: "gpt_neox.final_layer_norm",
        output: "embed_out",
      },
      keyValueHeads: heads,
      headDimension,
      activation: activationOf(fields, "hidden_act", "gelu"),
      normEpsilon: fields.positive("layer_norm_eps", { fallback: 1e-5 }),
      normBias: true,
      rotary: parseRotarySettings(fields, { dimension, thetaKey: "rotary_emb_base" }),
      fusion: "by head",
      parallelResidual: fields.boolean("use_parallel_residual", { fallback: true }),
      feedForwardBias: true,
    };
  },
  // Old checkpoints store the causal mask and the rotary frequencies as buffers.
  rename: (key) => {
    if (key === "lm_head.weight") return "embed_out.weight";
    return /\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$/.test(key) ? null : key;
  },
});
