import { JsonFields } from "../json-fields.js";
import {
  ATTENTION,
  attentionBiasOf,
  decoderFamily,
  FEED_FORWARD,
  headDimensionOf,
  llamaModules,
  QUERY_KEY_NORMS,
  slidesByLayerTypes,
  slidingWindowOf,
} from "./decoder-family.js";
import { parseRotarySettings } from "./rotary.js";

const THETA = 500000;

/**
 * OLMo 3 (OLMo Team 2025, https://allenai.org/blog/olmo3): norms as in OLMo 2, a sliding window in three of four layers, and
 * context extensions only in the others.
 */
export const olmo3 = decoderFamily({
  architectures: ["Olmo3ForCausalLM"],
  modelType: "olmo3",
  defaults: { rms_norm_eps: 1e-5, max_position_embeddings: 2048 },
  traits: (fields) => {
    const slidingWindow = slidingWindowOf(fields);
    const byDefault = (layer: number) => slidingWindow !== null && (layer + 1) % 4 !== 0;
    const dimension = headDimensionOf(fields);
    const given = fields.nested("rope_parameters");
    const sliding = given?.nested("sliding_attention") ?? null;
    const scaling = fields.nested("rope_scaling");
    const inside = given?.nested("full_attention") ?? null;
    const { where } = scaling ?? inside ?? fields;
    const full = new JsonFields({ ...inside?.values, ...scaling?.values }, where);
    return {
      ...attentionBiasOf(fields),
      modules: llamaModules({
        ...ATTENTION,
        ...QUERY_KEY_NORMS,
        attentionOutputNorm: "post_attention_layernorm",
        ...FEED_FORWARD,
        feedForwardOutputNorm: "post_feedforward_layernorm",
      }),
      queryKeyNorm: "projection",
      rotary: parseRotarySettings(fields, { dimension, parameters: full, thetaDefault: THETA }),
      // As in transformers, `rope_theta` next to the objects applies only to the other layers.
      slidingRotary: parseRotarySettings(
        new JsonFields({ ...fields.values, rope_theta: THETA }, fields.where),
        {
          dimension,
          parameters: sliding,
          scaling: sliding,
        },
      ),
      slidingWindow,
      slides: slidesByLayerTypes(fields, slidingWindow) ?? byDefault,
    };
  },
});
