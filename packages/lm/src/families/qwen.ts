import type { JsonFields } from "../json-fields.js";
import { parseRotaryDecoderConfig, rotaryFamily, type RotaryDecoderConfig } from "./rotary-decoder.js";

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

/** The window is off unless `use_sliding_window`, and then covers the layers named in `layer_types`, or the upper ones. */
function slidingTraits(fields: JsonFields) {
  const used = fields.boolean("use_sliding_window", { fallback: false });
  const slidingWindow = used ? fields.integer("sliding_window") : null;
  return {
    slidingWindow,
    slidingLayers: (layers: number): readonly boolean[] => {
      if (slidingWindow === null) return Array<boolean>(layers).fill(false);
      const kinds = fields.values["layer_types"];
      if (kinds === undefined || kinds === null) {
        const first = fields.integer("max_window_layers", { minimum: 0, fallback: 0 });
        return Array.from({ length: layers }, (_, layer) => layer >= first);
      }
      const known = ["full_attention", "sliding_attention"];
      if (
        !Array.isArray(kinds) ||
        kinds.length !== layers ||
        !kinds.every((kind) => known.includes(kind as string))
      ) {
        throw fields.error("layer_types", `a list of ${layers} of "full_attention" or "sliding_attention"`);
      }
      return kinds.map((kind) => kind === "sliding_attention");
    },
  };
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
