import type { JsonFields } from "../json-fields.js";
import { parseRotaryDecoderConfig, slidingWindowOf, type RotaryDecoderConfig } from "./rotary-config.js";
import { rotaryFamily } from "./rotary-decoder.js";

function parseMistralConfig(fields: JsonFields): RotaryDecoderConfig {
  const slidingWindow = slidingWindowOf(fields);
  return parseRotaryDecoderConfig(fields, {
    architecture: "MistralForCausalLM",
    slidingWindow,
    slides: () => slidingWindow !== null,
  });
}

/** Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama's decoder with a sliding window in every layer. */
export const mistral = rotaryFamily({
  architecture: "MistralForCausalLM",
  modelType: "mistral",
  parseConfig: parseMistralConfig,
});
