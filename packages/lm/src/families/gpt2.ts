import { activationOf } from "./activations.js";
import { decoderFamily } from "./decoder-family.js";

/** GPT-2 (Radford et al. 2019): learned positions, fused query/key/value, tied output. */
export const gpt2 = decoderFamily({
  architectures: ["GPT2LMHeadModel", "GPT2Model"],
  modelType: "gpt2",
  layersKey: "n_layer",
  traits: (fields) => {
    const hiddenSize = fields.integer("n_embd");
    const heads = fields.integer("n_head");
    if (hiddenSize % heads !== 0)
      throw fields.error("indivisible", "n_head", `a divisor of "n_embd" (${hiddenSize})`);
    if (fields.boolean("add_cross_attention", { fallback: false })) {
      throw fields.error(
        "unsupported-option",
        "add_cross_attention",
        "false: only decoders on their own are supported",
      );
    }
    const headDimension = hiddenSize / heads;
    const layers = fields.integer("n_layer");
    // Scores are divided by √E, which a few checkpoints were trained without.
    const scale = fields.boolean("scale_attn_weights", { fallback: true }) ? 1 / Math.sqrt(headDimension) : 1;
    const scalesByLayer = fields.boolean("scale_attn_by_inverse_layer_idx", { fallback: false });
    // Small checkpoints often keep 50256 from the default configuration, an id outside their vocabulary.
    const vocabSize = fields.integer("vocab_size");
    const inside = (key: string) => fields.ids(key).filter((id) => id < vocabSize);
    return {
      modelType: "gpt2",
      modules: {
        embedding: "transformer.wte",
        positions: "transformer.wpe",
        layers: "transformer.h",
        layer: {
          attentionNorm: "ln_1",
          queryKeyValue: "attn.c_attn",
          attentionOutput: "attn.c_proj",
          feedForwardNorm: "ln_2",
          up: "mlp.c_fc",
          down: "mlp.c_proj",
        },
        norm: "transformer.ln_f",
        output: "lm_head",
      },
      hiddenSize,
      layers,
      heads,
      keyValueHeads: heads,
      headDimension,
      contextLength: fields.integer("n_positions"),
      bosId: inside("bos_token_id")[0] ?? null,
      eosIds: inside("eos_token_id"),
      padId: inside("pad_token_id")[0] ?? null,
      intermediateSize: fields.integer("n_inner", { fallback: 4 * hiddenSize }),
      activation: activationOf(fields, "activation_function", "gelu_new"),
      normEpsilon: fields.positive("layer_norm_epsilon", { fallback: 1e-5 }),
      normBias: true,
      tiedEmbeddings: fields.boolean("tie_word_embeddings", { fallback: true }),
      rotary: null,
      attentionScale: scalesByLayer ? (layer) => scale / (layer + 1) : () => scale,
      queryKeyValueBias: true,
      outputBias: true,
      feedForwardBias: true,
      projectionsTransposed: true,
      // The number of projections into the residual stream.
      residualDivisor: Math.sqrt(2 * layers),
    };
  },
  // Checkpoints of the bare model lack the "transformer." prefix; old ones store the causal mask as a buffer.
  rename: (key) => {
    const bare = key.startsWith("transformer.") ? key.slice("transformer.".length) : key;
    if (/^h\.\d+\.attn\.(bias|masked_bias)$/.test(bare)) return null;
    return /^(wte|wpe|ln_f|h)\./.test(bare) ? `transformer.${bare}` : key;
  },
});
