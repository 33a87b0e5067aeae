import type { ModelConfig } from "../causal-lm.js";
import type { JsonFields } from "../json-fields.js";
import { activationOf } from "./activations.js";
import { parseRotarySettings, type RotarySettings } from "./rotary.js";

/**
 * A decoder with RMS norms, rotary positions, grouped-query attention and a gated feed-forward block. Families
 * differ only in their configuration.
 */
export interface RotaryDecoderConfig extends ModelConfig {
  readonly intermediateSize: number;
  readonly normEpsilon: number;
  /** Whether the output projection is the input embedding. */
  readonly tiedEmbeddings: boolean;
  /** Factor of the token embeddings. */
  readonly embeddingScale: number;
  readonly rotary: RotarySettings;
  /** Of the layers with a sliding window, where they have their own; null = `rotary`. */
  readonly slidingRotary: RotarySettings | null;
  /** Whether a layer has rotary positions, rather than none (NoPE; Kazemnejad et al. 2023, arXiv 2305.19466). */
  readonly rotates: (layer: number) => boolean;
  /** Whether a layer attends only to the last `slidingWindow` tokens. */
  readonly slides: (layer: number) => boolean;
  /** Factor of the attention scores. */
  readonly attentionScale: number;
  /** RMS norm of queries and keys before rotation: over each head, or over all heads together. */
  readonly queryKeyNorm: "none" | "head" | "projection";
  readonly normPlacement: NormPlacement;
  /** Whether the weights of norms are stored as differences from one. */
  readonly unitOffsetNorms: boolean;
  /** Whether query, key and value are one projection, and gate and up another one. */
  readonly fusedProjections: boolean;
  /** Biases on the query, key and value projections. */
  readonly queryKeyValueBias: boolean;
  /** Bias on the attention's output projection. */
  readonly outputBias: boolean;
  /** Biases in the feed-forward block. */
  readonly feedForwardBias: boolean;
  /** Hugging Face's name of the activation in the feed-forward block. */
  readonly activation: string;
}

/**
 * Where the norms of a layer are: before attention and feed-forward block, behind them (before their outputs are added
 * to the residual stream), or both.
 */
export type NormPlacement = "pre" | "post" | "sandwich";

export const LAYERS_KEY = "num_hidden_layers";

/** What a family says about its models; what it leaves out is as in Llama. */
export type RotaryDecoderTraits = Pick<RotaryDecoderConfig, "architecture"> &
  Partial<Omit<RotaryDecoderConfig, Exclude<keyof ModelConfig, "slidingWindow">>>;

/** Parses the fields that all these families share. */
export function parseRotaryDecoderConfig(
  fields: JsonFields,
  traits: RotaryDecoderTraits,
): RotaryDecoderConfig {
  const heads = fields.integer("num_attention_heads");
  const keyValueHeads = fields.integer("num_key_value_heads", { fallback: heads });
  if (heads % keyValueHeads !== 0)
    throw fields.error("num_key_value_heads", `a divisor of num_attention_heads (${heads})`);
  const headDimension = headDimensionOf(fields);
  const { rotary = parseRotarySettings(fields, { dimension: headDimension }) } = traits;
  const [bosId] = fields.ids("bos_token_id");
  const [padId] = fields.ids("pad_token_id");
  return {
    modelType: fields.string("model_type"),
    vocabSize: fields.integer("vocab_size"),
    hiddenSize: fields.integer("hidden_size"),
    layers: fields.integer(LAYERS_KEY),
    heads,
    keyValueHeads,
    headDimension,
    contextLength: rotary.contextLength,
    slidingWindow: null,
    bosId: bosId ?? null,
    eosIds: fields.ids("eos_token_id"),
    padId: padId ?? null,
    raw: fields.values,
    generation: null,
    intermediateSize: fields.integer("intermediate_size"),
    normEpsilon: fields.positive("rms_norm_eps", { fallback: 1e-6 }),
    tiedEmbeddings: fields.boolean("tie_word_embeddings", { fallback: false }),
    embeddingScale: 1,
    rotary,
    slidingRotary: null,
    rotates: () => true,
    slides: () => false,
    attentionScale: 1 / Math.sqrt(headDimension),
    queryKeyNorm: "none",
    normPlacement: "pre",
    unitOffsetNorms: false,
    fusedProjections: false,
    queryKeyValueBias: false,
    outputBias: false,
    feedForwardBias: false,
    activation: traits.activation ?? activationOf(fields, "hidden_act", "silu"),
    ...traits,
  };
}

/** Size of each head, even. */
export function headDimensionOf(fields: JsonFields): number {
  const hiddenSize = fields.integer("hidden_size");
  const heads = fields.integer("num_attention_heads");
  if (!fields.has("head_dim") && hiddenSize % heads !== 0) {
    throw fields.error(
      "num_attention_heads",
      `a divisor of hidden_size (${hiddenSize}) where head_dim is not given`,
    );
  }
  const headDimension = fields.integer("head_dim", { fallback: hiddenSize / heads });
  if (headDimension % 2 !== 0) throw fields.error("head_dim", "even, for rotary positions");
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
    throw fields.error("layer_types", `a list of ${layers} of "full_attention" or "sliding_attention"`);
  }
  if (slidingWindow === null && kinds.includes("sliding_attention")) {
    throw fields.error("layer_types", `"full_attention" in every layer where no sliding window is used`);
  }
  return (layer) => kinds[layer] === "sliding_attention";
}
