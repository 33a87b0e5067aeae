import type { JsonFields } from "../json-fields.js";
import {
  parseRotaryDecoderConfig,
  slidesByLayerTypes,
  slidingWindowOf,
  type RotaryDecoderConfig,
} from "./rotary-config.js";
import { rotaryFamily } from "./rotary-decoder.js";

function parseQwen2Config(fields: JsonFields): RotaryDecoderConfig {
  return parseRotaryDecoderConfig(fields, {
    architecture: "Qwen2ForCausalLM",
    queryKeyValueBias: true,
    ...slidingTraits(fields),
  });
}

function parseQwen3Config(fields: JsonFields): RotaryDecoderConfig {
  const attentionBias = fields.boolean("attention_bias", { fallback: false });
  return parseRotaryDecoderConfig(fields, {
    architecture: "Qwen3ForCausalLM",
    queryKeyValueBias: attentionBias,
    outputBias: attentionBias,
    queryKeyNorm: "head",
    ...slidingTraits(fields),
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
  const isBehind = (layer: number) => slidingWindow !== null && layer >= first;
  return { slidingWindow, slides: slidesByLayerTypes(fields, slidingWindow) ?? isBehind };
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
