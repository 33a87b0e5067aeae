import { JsonFields } from "../json-fields.js";
import type { CausalFamily } from "./decoder-family.js";

/**
 * The text decoder of multimodal checkpoints, which is saved as a model of a text family.
 *
 * @param families which it may be of, by the `model_type` of `text_config`; the first if that has none
 */
export function textDecoderOf(
  named: Pick<CausalFamily, "architectures" | "modelType">,
  families: readonly [CausalFamily, ...CausalFamily[]],
): CausalFamily {
  const [usual] = families;
  const familyOf = (modelType: unknown) => families.find((family) => family.modelType === modelType);
  return {
    ...usual,
    ...named,
    parseConfig: (fields) => {
      const given: Readonly<Record<string, unknown>> = fields.object("text_config");
      const text = new JsonFields({ model_type: usual.modelType, ...given }, fields.inside("text_config"));
      const family = familyOf(text.values["model_type"]);
      if (family === undefined)
        throw text.error(
          "unsupported-model-type",
          "model_type",
          `one of ${families.map(({ modelType }) => modelType).join(", ")}`,
        );
      // Ids of special tokens and the tying of embeddings are those of the whole model.
      const whole = Object.fromEntries(
        ["bos_token_id", "eos_token_id", "pad_token_id"]
          .filter((key) => fields.has(key))
          .map((key) => [key, fields.values[key]]),
      );
      const tied = { tie_word_embeddings: fields.boolean("tie_word_embeddings", { fallback: true }) };
      return family.parseConfig(new JsonFields({ ...text.values, ...whole, ...tied }, text.where));
    },
    // Older checkpoints have the text decoder, "model." included, inside "language_model.".
    parameterName: (key, config) => {
      if (/(^|\.)(vision_tower|multi_modal_projector)\./.test(key)) return null;
      const name = key.replace(/^(model\.)?language_model\.(model\.)?/, "model.");
      return familyOf(config.modelType)!.parameterName(name.replace(/^model\.lm_head\./, "lm_head."), config);
    },
  };
}
