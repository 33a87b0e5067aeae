import type { JsonFields } from "../json-fields.js";
import {
  parseRotaryDecoderConfig,
  rotaryFamily,
  slidingWindowOf,
  type RotaryDecoderConfig,
} from "./rotary-decoder.js";

function parseQwen2Config(fields: JsonFields): RotaryDecoderConfig {
  return parseRotaryDecoderConfig(fields, {
    architecture: "Qwen2ForCausalLM",
    queryKeyValueBias: true,
    outputBias: false,
    feedForwardBias: false,
    headNorms: false,
    ...slidingTraits(fields),
    tiedByDefault: false,
  });
}

function parseQwen3Config(fields: JsonFields): RotaryDecoderConfig {
  const attentionBias = fields.boolean("attention_bias", { fallback: false });
  return parseRotaryDecoderConfig(fields, {
    architecture: "Qwen3ForCausalLM",
    queryKeyValueBias: attentionBias,
    outputBias: attentionBias,
    feedForwardBias: false,
    headNorms: true,
    ...slidingTraits(fields),
    tiedByDefault: false,
  });
}

/**
 * The sliding window is off unless `use_sliding_window`. It then covers the layers listed in `layer_types`,
 * or those from `max_window_layers` on (default 28, as in transformers, so that a small model has none).
 */
function slidingTraits(fields: JsonFields) {
  const used = fields.boolean("use_sliding_window", { fallback: false });
  const slidingWindow = used ? slidingWindowOf(fields) : null;
  const first = fields.integer("max_window_layers", { minimum: 0, fallback: 28 });
  const kinds = layerTypes(fields, slidingWindow);
  return {
    slidingWindow,
    slides: (layer: number): boolean =>
      kinds === null ? slidingWindow !== null && layer >= first : kinds[layer] === "sliding_attention",
  };
}

/** `layer_types`, one per layer; null if the configuration has none. */
function layerTypes(fields: JsonFields, slidingWindow: number | null): readonly unknown[] | null {
  if (!fields.has("layer_types")) return null;
  const kinds = fields.values["layer_types"];
  const layers = fields.integer("num_hidden_layers");
  // "attention" is transformers' former name of "full_attention".
  const known: readonly unknown[] = ["full_attention", "attention", "sliding_attention"];
  if (!Array.isArray(kinds) || kinds.length !== layers || !kinds.every((kind) => known.includes(kind))) {
    throw fields.error("layer_types", `a list of ${layers} of "full_attention" or "sliding_attention"`);
  }
  if (slidingWindow === null && kinds.includes("sliding_attention")) {
    throw fields.error("layer_types", `"full_attention" in every layer where no sliding window is used`);
  }
  return kinds;
}

/** Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv 2407.10671): biases on queries, keys and values. */
export const qwen2 = rotaryFamily({
  architecture: "Qwen2ForCausalLM",
  modelType: "qwen2",
  parseConfig: parseQwen2Config,
});

/** Qwen3 (Yang et al. 2025, arXiv 2505.09388): no biases, an RMS norm over each head of queries and keys. */
export const qwen3 = rotaryFamily({
  architecture: "Qwen3ForCausalLM",
  modelType: "qwen3",
  parseConfig: parseQwen3Config,
});
