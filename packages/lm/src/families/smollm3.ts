import type { JsonFields } from "../json-fields.js";
import { attentionBiasOf, decoderFamily, slidesByLayerTypes } from "./decoder-family.js";

/** SmolLM3 (Bakouch et al. 2025, https://huggingface.co/blog/smollm3): some layers have no positions. */
export const smollm3 = decoderFamily({
  architectures: ["SmolLM3ForCausalLM"],
  modelType: "smollm3",
  defaults: { num_key_value_heads: 4, rope_theta: 2e6, tie_word_embeddings: true },
  traits: (fields) => {
    const used = fields.boolean("use_sliding_window", { fallback: false });
    const slidingWindow = used ? fields.integer("sliding_window", { fallback: null }) : null;
    const rotates = rotatesByLayer(fields);
    const isCut = (layer: number) => slidingWindow !== null && !rotates(layer);
    return {
      ...attentionBiasOf(fields),
      feedForwardBias: fields.boolean("mlp_bias", { fallback: false }),
      rotates,
      slidingWindow,
      slides: slidesByLayerTypes(fields, slidingWindow) ?? isCut,
    };
  },
});

/**
 * `no_rope_layers` has, despite its name, a 1 for each layer with rotary positions and a 0 for each without. If it is
 * absent, every `no_rope_layer_interval`-th layer has none.
 */
function rotatesByLayer(fields: JsonFields): (layer: number) => boolean {
  const interval = fields.integer("no_rope_layer_interval", { fallback: 4 });
  if (!fields.has("no_rope_layers")) return (layer) => (layer + 1) % interval !== 0;
  const flags = fields.list("no_rope_layers");
  const layers = fields.integer("num_hidden_layers");
  if (flags.length < layers || !flags.every((flag) => flag === 0 || flag === 1))
    throw fields.error(
      "invalid-layer-types",
      "no_rope_layers",
      `a list of 0 or 1 for each of ${layers} layers`,
    );
  return (layer) => flags[layer] === 1;
}
