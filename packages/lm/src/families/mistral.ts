import type { JsonFields } from "../json-fields.js";
import { parseRotaryDecoderConfig, rotaryFamily, type RotaryDecoderConfig } from "./rotary-decoder.js";

function parseMistralConfig(fields: JsonFields): RotaryDecoderConfig {
  const slidingWindow = fields.integer("sliding_window", { fallback: null });
  return parseRotaryDecoderConfig(fields, {
    architecture: "MistralForCausalLM",
    queryKeyValueBias: false,
    outputBias: false,
    feedForwardBias: false,
    headNorms: false,
    slidingWindow,
    slidingLayers: (layers) => Array<boolean>(layers).fill(slidingWindow !== null),
    tiedByDefault: false,
  });
}

/** Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama's decoder with a sliding window in every layer. */
export const mistral = rotaryFamily({
  architecture: "MistralForCausalLM",
  modelType: "mistral",
  parseConfig: parseMistralConfig,
});
