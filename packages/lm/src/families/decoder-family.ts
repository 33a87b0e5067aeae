import { noGrad, scope, type DType, type Tensor } from "@astra-rl/torch";
import { JsonFields } from "../json-fields.js";
import { activationOf } from "./activations.js";
import { Decoder } from "./decoder.js";
import {
  parameterShapes,
  type DecoderConfig,
  type DecoderModules,
  type LayerModules,
} from "./decoder-config.js";
import { parseRotarySettings } from "./rotary.js";

const LAYERS_KEY = "num_hidden_layers";

/** Differences of a family from Llama. */
export type DecoderTraits = Partial<Omit<DecoderConfig, "architecture">>;

/** The tensors of a checkpoint, by their keys. */
export interface StoredTensors {
  keys(): Iterable<string>;
  read(key: string): Tensor;
}

/** A model family: reads its configuration and weights, and creates the model. */
export type CausalFamily = ReturnType<typeof decoderFamily>;

export function decoderFamily(options: {
  /** Class names in Hugging Face's `architectures` that this family reads; models are saved as the first. */
  architectures: readonly [string, ...string[]];
  /** Hugging Face's `model_type`, which decides if config.json has no `architectures`. */
  modelType: string;
  /** The key of config.json that gives the number of layers. Default "num_hidden_layers". */
  layersKey?: string;
  /** transformers' defaults for keys missing in config.json, if they differ from Llama's. */
  defaults?: Readonly<Record<string, unknown>>;
  /** Throws UsageError, naming the field, for anything missing, malformed or unsupported. */
  traits: (fields: JsonFields) => DecoderTraits;
  /**
   * The name of the parameter that a checkpoint key maps to; null for stored buffers. Default: old ones are skipped.
   */
  rename?: (key: string) => string | null;
}) {
  const { architectures, modelType, layersKey = LAYERS_KEY, defaults = {}, traits } = options;
  // Old checkpoints store the rotary frequencies as a buffer.
  const { rename = (key) => (key.endsWith("rotary_emb.inv_freq") ? null : key) } = options;
  return {
    architectures: architectures as readonly string[],
    modelType,
    layersKey,
    parseConfig: ({ values, where }: JsonFields): DecoderConfig => {
      const fields = new JsonFields({ ...defaults, ...values }, where);
      return { ...completed(fields, traits(fields)), architecture: architectures[0], raw: values };
    },
    parameterShapes,
    /**
     * The parameter that a checkpoint key maps to; null for keys to skip (stored buffers, the second name of
     * tied weights). A name that is not in `parameterShapes` is a tensor that this model does not use.
     */
    parameterName: (key: string, { modules, tiedEmbeddings }: DecoderConfig): string | null => {
      const name = rename(key);
      return tiedEmbeddings && name === `${modules.output}.weight` ? null : name;
    },
    /**
     * As in Python, a separate output projection of a checkpoint is kept if its values differ from the embedding,
     * although `tie_word_embeddings` declares them tied.
     */
    settled(config: DecoderConfig, stored: StoredTensors): DecoderConfig {
      if (!config.tiedEmbeddings) return config;
      const untied = { ...config, tiedEmbeddings: false };
      const { embedding, output } = config.modules;
      const keys = [embedding, output].map((module) =>
        [...stored.keys()].find((key) => this.parameterName(key, untied) === `${module}.weight`),
      );
      if (keys.includes(undefined)) return config;
      const areEqual = noGrad(() =>
        scope(() => {
          const [one, other] = keys.map((key) => stored.read(key!)) as [Tensor, Tensor];
          return one.shape.join() === other.shape.join() && one.equal(other.to(one.dtype));
        }),
      );
      return areEqual ? config : untied;
    },
    /** Creates a model from the parameters, which it then owns. */
    create: (config: DecoderConfig, parameters: Map<string, Tensor>, computeDtype: DType) =>
      new Decoder(config, parameters, computeDtype),
  };
}

function completed(fields: JsonFields, traits: DecoderTraits): Omit<DecoderConfig, "architecture"> {
  const heads: number = traits.heads ?? fields.integer("num_attention_heads");
  const keyValueHeads: number =
    traits.keyValueHeads ?? fields.integer("num_key_value_heads", { fallback: heads });
  if (heads % keyValueHeads !== 0)
    throw fields.error("indivisible", "num_key_value_heads", `a divisor of num_attention_heads (${heads})`);
  const headDimension = traits.headDimension ?? headDimensionOf(fields);
  const { rotary = parseRotarySettings(fields, { dimension: headDimension }) } = traits;
  const [bosId = null] = fields.ids("bos_token_id");
  const [padId = null] = fields.ids("pad_token_id");
  return {
    modelType: traits.modelType ?? fields.string("model_type"),
    vocabSize: fields.integer("vocab_size"),
    hiddenSize: traits.hiddenSize ?? fields.integer("hidden_size"),
    layers: traits.layers ?? fields.integer(LAYERS_KEY),
    heads,
    keyValueHeads,
    headDimension,
    contextLength: traits.contextLength ?? rotary!.contextLength,
    slidingWindow: null,
    bosId,
    eosIds: fields.ids("eos_token_id"),
    padId,
    raw: fields.values,
    generation: null,
    modules: llamaModules(LLAMA_LAYER),
    intermediateSize: traits.intermediateSize ?? fields.integer("intermediate_size"),
    activation: traits.activation ?? activationOf(fields, "hidden_act", "silu"),
    normEpsilon: traits.normEpsilon ?? fields.positive("rms_norm_eps", { fallback: 1e-6 }),
    normBias: false,
    unitOffsetNorms: false,
    tiedEmbeddings: fields.boolean("tie_word_embeddings", { fallback: false }),
    embeddingScale: 1,
    residualScale: 1,
    logitDivisor: 1,
    rotary,
    slidingRotary: null,
    rotates: () => true,
    slides: () => false,
    attentionScale: () => 1 / Math.sqrt(headDimension),
    queryKeyNorm: "head",
    fusion: "by part",
    parallelResidual: false,
    queryKeyValueBias: false,
    outputBias: false,
    feedForwardBias: false,
    projectionsTransposed: false,
    residualDivisor: 1,
    ...traits,
  };
}

/** Parts of the layers of Llama and its relatives, in the order of their checkpoints. */
export const ATTENTION = {
  query: "self_attn.q_proj",
  key: "self_attn.k_proj",
  value: "self_attn.v_proj",
  attentionOutput: "self_attn.o_proj",
};
export const QUERY_KEY_NORMS = { queryNorm: "self_attn.q_norm", keyNorm: "self_attn.k_norm" };
export const FEED_FORWARD = { gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj" };

/** The modules of a model that differs from Llama only in its layers. */
export const llamaModules = (layer: LayerModules): DecoderModules => ({
  embedding: "model.embed_tokens",
  layers: "model.layers",
  layer,
  norm: "model.norm",
  output: "lm_head",
});

const LLAMA_LAYER: LayerModules = {
  attentionNorm: "input_layernorm",
  ...ATTENTION,
  feedForwardNorm: "post_attention_layernorm",
  ...FEED_FORWARD,
};

/** Biases on all projections of the attention, or none, according to `attention_bias`. */
export function attentionBiasOf(fields: JsonFields, fallback = false) {
  const bias = fields.boolean("attention_bias", { fallback });
  return { queryKeyValueBias: bias, outputBias: bias };
}

/** Size of each head, even. */
export function headDimensionOf(fields: JsonFields): number {
  const hiddenSize = fields.integer("hidden_size");
  const heads = fields.integer("num_attention_heads");
  if (!fields.has("head_dim") && hiddenSize % heads !== 0) {
    throw fields.error(
      "indivisible",
      "num_attention_heads",
      `a divisor of hidden_size (${hiddenSize}) where head_dim is not given`,
    );
  }
  const headDimension = fields.integer("head_dim", { fallback: hiddenSize / heads });
  if (headDimension % 2 !== 0) throw fields.error("indivisible", "head_dim", "even, for rotary positions");
  return headDimension;
}

/** "sliding_window": null turns it off; if the key is absent, transformers uses 4096. */
export function slidingWindowOf(fields: JsonFields): number | null {
  const absent = fields.values["sliding_window"] === undefined;
  return fields.integer("sliding_window", { fallback: absent ? 4096 : null });
}

/**
 * Whether a layer has a sliding window according to `layer_types`, which has an entry for each layer; null if the
 * configuration has none.
 */
export function slidesByLayerTypes(
  fields: JsonFields,
  slidingWindow: number | null,
): ((layer: number) => boolean) | null {
  if (!fields.has("layer_types")) return null;
  const kinds = fields.values["layer_types"];
  const layers = fields.integer(LAYERS_KEY);
  // "attention" is transformers' former name of "full_attention".
  const known: readonly unknown[] = ["full_attention", "attention", "sliding_attention"];
  if (!Array.isArray(kinds) || kinds.length !== layers || !kinds.every((kind) => known.includes(kind))) {
    throw fields.error(
      "invalid-layer-types",
      "layer_types",
      `a list of ${layers} of "full_attention" or "sliding_attention"`,
    );
  }
  if (slidingWindow === null && kinds.includes("sliding_attention")) {
    throw fields.error(
      "missing-sliding-window",
      "layer_types",
      `"full_attention" in every layer where no sliding window is used`,
    );
  }
  return (layer) => kinds[layer] === "sliding_attention";
}
