import type { JsonFields } from "../json-fields.js";
import { headDimensionOf, parseRotaryDecoderConfig, type RotaryDecoderConfig } from "./rotary-config.js";
import { rotaryFamily } from "./rotary-decoder.js";
import { parseRotarySettings, partialRotaryDimension } from "./rotary.js";

function parsePhi3Config(fields: JsonFields): RotaryDecoderConfig {
  const slidingWindow = fields.integer("sliding_window", { fallback: null });
  const share = { key: "partial_rotary_factor", fallback: 1 };
  const dimension = partialRotaryDimension(fields, headDimensionOf(fields), share);
  return parseRotaryDecoderConfig(fields, {
    architecture: "Phi3ForCausalLM",
    fusedProjections: true,
    rotary: parseRotarySettings(fields, { dimension }),
    slidingWindow,
    slides: () => slidingWindow !== null,
  });
}

/**
 * Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (Abdin et al. 2024, arXiv 2404.14219 and 2412.08905): Llama's decoder with fused
 * projections.
 */
export const phi3 = rotaryFamily({
  architecture: "Phi3ForCausalLM",
  modelType: "phi3",
  defaults: { rms_norm_eps: 1e-5, max_position_embeddings: 4096, original_max_position_embeddings: 4096 },
  parseConfig: parsePhi3Config,
});
