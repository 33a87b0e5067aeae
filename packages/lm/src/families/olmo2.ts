import type { JsonFields } from "../json-fields.js";
import { parseRotaryDecoderConfig, type RotaryDecoderConfig } from "./rotary-config.js";
import { rotaryFamily } from "./rotary-decoder.js";

function parseOlmo2Config(fields: JsonFields): RotaryDecoderConfig {
  const attentionBias = fields.boolean("attention_bias", { fallback: false });
  return parseRotaryDecoderConfig(fields, {
    architecture: "Olmo2ForCausalLM",
    queryKeyValueBias: attentionBias,
    outputBias: attentionBias,
    queryKeyNorm: "projection",
    normPlacement: "post",
  });
}

/** OLMo 2 (OLMo et al. 2024, arXiv 2501.00656): norms behind each block, and of queries and keys. */
export const olmo2 = rotaryFamily({
  architecture: "Olmo2ForCausalLM",
  modelType: "olmo2",
  defaults: { rms_norm_eps: 1e-5, max_position_embeddings: 2048 },
  parseConfig: parseOlmo2Config,
});
