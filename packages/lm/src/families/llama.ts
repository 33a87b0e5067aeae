import type { JsonFields } from "../json-fields.js";
import { parseRotaryDecoderConfig, type RotaryDecoderConfig } from "./rotary-config.js";
import { rotaryFamily } from "./rotary-decoder.js";

function parseLlamaConfig(fields: JsonFields): RotaryDecoderConfig {
  const attentionBias = fields.boolean("attention_bias", { fallback: false });
  return parseRotaryDecoderConfig(fields, {
    architecture: "LlamaForCausalLM",
    queryKeyValueBias: attentionBias,
    outputBias: attentionBias,
    feedForwardBias: fields.boolean("mlp_bias", { fallback: false }),
  });
}

/** Llama 2, 3, 3.1 and 3.2 (Touvron et al. 2023, arXiv 2307.09288; Grattafiori et al. 2024, arXiv 2407.21783). */
export const llama = rotaryFamily({
  architecture: "LlamaForCausalLM",
  modelType: "llama",
  parseConfig: parseLlamaConfig,
});
