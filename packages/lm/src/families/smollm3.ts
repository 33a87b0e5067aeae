import type { JsonFields } from "../json-fields.js";
import { parseRotaryDecoderConfig, slidesByLayerTypes, type RotaryDecoderConfig } from "./rotary-config.js";
import { rotaryFamily } from "./rotary-decoder.js";

function parseSmolLM3Config(fields: JsonFields): RotaryDecoderConfig {
  const attentionBias = fields.boolean("attention_bias", { fallback: false });
  const used = fields.boolean("use_sliding_window", { fallback: false });
  const slidingWindow = used ? fields.integer("sliding_window", { fallback: null }) : null;
  const rotates = rotatesByLayer(fields);
  return parseRotaryDecoderConfig(fields, {
    architecture: "SmolLM3ForCausalLM",
    queryKeyValueBias: attentionBias,
    outputBias: attentionBias,
    feedForwardBias: fields.boolean("mlp_bias", { fallback: false }),
    rotates,
    slidingWindow,
    slides:
      slidesByLayerTypes(fields, slidingWindow) ?? ((layer) => slidingWindow !== null && !rotates(layer)),
  });
}

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
    throw fields.error("no_rope_layers", `a list of 0 or 1 for each of ${layers} layers`);
  return (layer) => flags[layer] === 1;
}

/** SmolLM3 (Bakouch et al. 2025, https://huggingface.co/blog/smollm3): some layers have no positions. */
export const smollm3 = rotaryFamily({
  architecture: "SmolLM3ForCausalLM",
  modelType: "smollm3",
  defaults: { num_key_value_heads: 4, rope_theta: 2e6, tie_word_embeddings: true },
  parseConfig: parseSmolLM3Config,
});
