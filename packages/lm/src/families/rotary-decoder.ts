// The decoder that Llama, Mistral and Qwen share. Results and names follow Hugging Face's LlamaForCausalLM.
import {
  autocastLinear,
  autocastRmsNorm,
  cast,
  dispose,
  embedding,
  keep,
  ones,
  rotaryEmbedding,
  scope,
  swiglu,
  type DType,
  type Tensor,
} from "@astra-rl/torch";
import type { Adapter } from "../adapter.js";
import type { AttentionCache, CausalLM, ForwardOptions, ModelConfig } from "../causal-lm.js";
import type { JsonFields } from "../json-fields.js";
import { attend, attendCached, attentionBias, attentionBiases } from "./attention.js";
import type { CausalFamily } from "./family.js";
import { ParameterizedModel } from "./parameterized-model.js";
import { parseRotarySettings, rotaryTables, type RotarySettings } from "./rotary.js";

/**
 * The decoder that Llama, Mistral and Qwen share: RMS norms before each block, rotary positions,
 * grouped-query attention and a gated feed-forward block. Families differ only in their configuration.
 */
export interface RotaryDecoderConfig extends ModelConfig {
  readonly intermediateSize: number;
  readonly normEpsilon: number;
  readonly rotary: RotarySettings;
  /** Whether the output projection is the input embedding. */
  readonly tiedEmbeddings: boolean;
  /** Biases on the query, key and value projections (Qwen2; Llama where `attention_bias`). */
  readonly queryKeyValueBias: boolean;
  /** Bias on the attention's output projection (Llama where `attention_bias`). */
  readonly outputBias: boolean;
  /** Biases in the feed-forward block (Llama where `mlp_bias`). */
  readonly feedForwardBias: boolean;
  /** RMS norm over each head of queries and keys before rotation (Qwen3). */
  readonly headNorms: boolean;
  /** Whether a layer attends only to the last `slidingWindow` tokens. */
  readonly slides: (layer: number) => boolean;
}

const LAYERS_KEY = "num_hidden_layers";

/**
 * The tables of cosines and sines cover the whole context window up to this size, which trained models stay
 * within. For longer ones they grow with the texts, since nothing backs such a size in config.json.
 */
const WHOLE_TABLE = 2 ** 18;

/** Parses the fields that all these families share. */
export function parseRotaryDecoderConfig(
  fields: JsonFields,
  traits: {
    architecture: string;
    queryKeyValueBias: boolean;
    outputBias: boolean;
    feedForwardBias: boolean;
    headNorms: boolean;
    slidingWindow: number | null;
    slides: (layer: number) => boolean;
    tiedByDefault: boolean;
  },
): RotaryDecoderConfig {
  const hiddenSize = fields.integer("hidden_size");
  const heads = fields.integer("num_attention_heads");
  const keyValueHeads = fields.integer("num_key_value_heads", { fallback: heads });
  if (heads % keyValueHeads !== 0)
    throw fields.error("num_key_value_heads", `a divisor of num_attention_heads (${heads})`);
  if (!fields.has("head_dim") && hiddenSize % heads !== 0) {
    throw fields.error(
      "num_attention_heads",
      `a divisor of hidden_size (${hiddenSize}) where head_dim is not given`,
    );
  }
  const headDimension = fields.integer("head_dim", { fallback: hiddenSize / heads });
  if (headDimension % 2 !== 0) throw fields.error("head_dim", "even, for rotary positions");
  const activation = fields.string("hidden_act", { fallback: "silu" });
  if (activation !== "silu")
    throw fields.error("hidden_act", `"silu", the only activation supported for this family`);
  const [bosId] = fields.ids("bos_token_id");
  const [padId] = fields.ids("pad_token_id");
  return {
    architecture: traits.architecture,
    modelType: fields.string("model_type"),
    vocabSize: fields.integer("vocab_size"),
    hiddenSize,
    layers: fields.integer(LAYERS_KEY),
    heads,
    keyValueHeads,
    headDimension,
    contextLength: fields.integer("max_position_embeddings"),
    slidingWindow: traits.slidingWindow,
    bosId: bosId ?? null,
    eosIds: fields.ids("eos_token_id"),
    padId: padId ?? null,
    raw: fields.values,
    generation: null,
    intermediateSize: fields.integer("intermediate_size"),
    normEpsilon: fields.positive("rms_norm_eps", { fallback: 1e-6 }),
    rotary: parseRotarySettings(fields),
    tiedEmbeddings: fields.boolean("tie_word_embeddings", { fallback: traits.tiedByDefault }),
    queryKeyValueBias: traits.queryKeyValueBias,
    outputBias: traits.outputBias,
    feedForwardBias: traits.feedForwardBias,
    headNorms: traits.headNorms,
    slides: traits.slides,
  };
}

/** "sliding_window": null turns it off; if the key is absent, transformers uses 4096. */
export function slidingWindowOf(fields: JsonFields): number | null {
  const absent = fields.values["sliding_window"] === undefined;
  return fields.integer("sliding_window", { fallback: absent ? 4096 : null });
}

/** Projections are stored [out, in]. */
function parameterShapes(config: RotaryDecoderConfig): Map<string, readonly number[]> {
  const { hiddenSize, headDimension, intermediateSize, vocabSize } = config;
  const queries = config.heads * headDimension;
  const keys = config.keyValueHeads * headDimension;
  const shapes = new Map<string, readonly number[]>();
  const projection = (name: string, output: number, input: number, bias: boolean) => {
    shapes.set(`${name}.weight`, [output, input]);
    if (bias) shapes.set(`${name}.bias`, [output]);
  };
  shapes.set("model.embed_tokens.weight", [vocabSize, hiddenSize]);
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = `model.layers.${layer}.`;
    shapes.set(`${prefix}input_layernorm.weight`, [hiddenSize]);
    projection(`${prefix}self_attn.q_proj`, queries, hiddenSize, config.queryKeyValueBias);
    projection(`${prefix}self_attn.k_proj`, keys, hiddenSize, config.queryKeyValueBias);
    projection(`${prefix}self_attn.v_proj`, keys, hiddenSize, config.queryKeyValueBias);
    projection(`${prefix}self_attn.o_proj`, hiddenSize, queries, config.outputBias);
    if (config.headNorms) {
      shapes.set(`${prefix}self_attn.q_norm.weight`, [headDimension]);
      shapes.set(`${prefix}self_attn.k_norm.weight`, [headDimension]);
    }
    shapes.set(`${prefix}post_attention_layernorm.weight`, [hiddenSize]);
    projection(`${prefix}mlp.gate_proj`, intermediateSize, hiddenSize, config.feedForwardBias);
    projection(`${prefix}mlp.up_proj`, intermediateSize, hiddenSize, config.feedForwardBias);
    projection(`${prefix}mlp.down_proj`, hiddenSize, intermediateSize, config.feedForwardBias);
  }
  shapes.set("model.norm.weight", [hiddenSize]);
  if (!config.tiedEmbeddings) shapes.set("lm_head.weight", [vocabSize, hiddenSize]);
  return shapes;
}

/** Creates the family of one such architecture. */
export function rotaryFamily(options: {
  architecture: string;
  modelType: string;
  parseConfig: (fields: JsonFields) => RotaryDecoderConfig;
}): CausalFamily {
  const family: CausalFamily = {
    architectures: [options.architecture],
    modelType: options.modelType,
    projectionsTransposed: false,
    layersKey: LAYERS_KEY,
    parseConfig: options.parseConfig,
    parameterShapes: (config) => parameterShapes(config as RotaryDecoderConfig),
    parameterName: (key, config) => parameterName(key, config as RotaryDecoderConfig),
    initialValue: (name, config) => {
      if (name.endsWith(".bias")) return { constant: 0 };
      if (name.endsWith("norm.weight")) return { constant: 1 };
      const deviation = config.raw["initializer_range"];
      return { deviation: typeof deviation === "number" && deviation > 0 ? deviation : 0.02 };
    },
    create: (config, parameters, computeDtype): CausalLM =>
      new RotaryDecoder(config as RotaryDecoderConfig, parameters, computeDtype, family),
  };
  return family;
}

/** Tied checkpoints may store the output projection again; old ones store the rotary frequencies as a buffer. */
function parameterName(key: string, config: RotaryDecoderConfig): string | null {
  if (key === "lm_head.weight") return config.tiedEmbeddings ? null : key;
  return key.endsWith("rotary_emb.inv_freq") ? null : key;
}

/** The modules of one layer, collected once: names would be looked up for every token. */
function moduleNames(layer: number) {
  const prefix = `model.layers.${layer}.`;
  return {
    prefix,
    attentionNorm: `${prefix}input_layernorm`,
    query: `${prefix}self_attn.q_proj`,
    queryNorm: `${prefix}self_attn.q_norm`,
    key: `${prefix}self_attn.k_proj`,
    keyNorm: `${prefix}self_attn.k_norm`,
    value: `${prefix}self_attn.v_proj`,
    attentionOutput: `${prefix}self_attn.o_proj`,
    feedForwardNorm: `${prefix}post_attention_layernorm`,
    gate: `${prefix}mlp.gate_proj`,
    up: `${prefix}mlp.up_proj`,
    down: `${prefix}mlp.down_proj`,
  };
}

/** Inputs of a layer besides the hidden states. */
interface LayerInputs {
  /** [B, T, E/2] in computeDtype. */
  cosine: Tensor;
  sine: Tensor;
  biases: Tensor[];
  cache: AttentionCache | undefined;
  /** Tokens that the last layer computes; undefined = all. */
  places: Tensor | undefined;
}

class RotaryDecoder extends ParameterizedModel {
  readonly #names: readonly ReturnType<typeof moduleNames>[];
  /** Whether any layer has a sliding window. */
  readonly #slides: boolean;
  /** [rows, E/2] in computeDtype; created in the first forward pass and shared with views. */
  #tables: { made: { cosine: Tensor; sine: Tensor } | null } = { made: null };

  constructor(
    override readonly config: RotaryDecoderConfig,
    parameters: Map<string, Tensor>,
    computeDtype: DType,
    protected override readonly family: CausalFamily,
  ) {
    super(config, parameters, computeDtype);
    this.#names = Array.from({ length: config.layers }, (_, layer) => moduleNames(layer));
    this.#slides = [...Array(config.layers).keys()].some(config.slides);
  }

  forward(ids: Tensor, options: ForwardOptions): Tensor {
    const { positions, cache } = options;
    const tables = this.#tablesFor(positions);
    return scope(() => {
      const { full, sliding } = this.#biases(ids.size(-1), options);
      const cosine = embedding(tables.cosine, positions);
      const sine = embedding(tables.sine, positions);
      const isProjection = this.config.tiedEmbeddings;
      let hidden = this.embedded("model.embed_tokens", ids, { isProjection }); // [B, T, D]
      for (let layer = 0; layer < this.config.layers; layer++) {
        const wanted = this.placesOf(layer, options);
        const inputs = [hidden, cosine, sine, ...wanted, ...(this.config.slides(layer) ? sliding : full)];
        hidden = scope(() =>
          this.layer(this.#names[layer]!.prefix, options, inputs, (input, cosines, sines, ...biases) => {
            const [places] = biases.splice(0, wanted.length);
            return this.#block(layer, input!, { cosine: cosines!, sine: sines!, biases, cache, places });
          }),
        );
      }
      return this.#norm("model.norm", hidden);
    });
  }

  logits(hidden: Tensor): Tensor {
    const { weight } = this.module(this.config.tiedEmbeddings ? "model.embed_tokens" : "lm_head");
    return scope(() => autocastLinear(hidden, weight, null, { dtype: this.computeDtype }));
  }

  override withAdapter(adapter: Adapter): CausalLM {
    const view = super.withAdapter(adapter) as RotaryDecoder;
    view.#tables = this.#tables;
    return view;
  }

  override dispose(): void {
    super.dispose();
    if (!this.ownsParameters) return;
    dispose(this.#tables.made);
    this.#tables.made = null;
  }

  #block(layer: number, hidden: Tensor, inputs: LayerInputs): Tensor {
    const names = this.#names[layer]!;
    const attended = this.#attention(layer, this.#norm(names.attentionNorm, hidden), inputs);
    const residual = this.chosen(hidden, inputs.places);
    const middle = this.projected(names.attentionOutput, this.chosen(attended, inputs.places), residual);
    const normed = this.#norm(names.feedForwardNorm, middle);
    const gated = swiglu(this.projected(names.gate, normed), this.projected(names.up, normed));
    return this.projected(names.down, gated, middle);
  }

  #attention(layer: number, normed: Tensor, { cosine, sine, biases, cache }: LayerInputs): Tensor {
    const { heads, keyValueHeads, headDimension: E, headNorms } = this.config;
    const names = this.#names[layer]!;
    const [B, T] = normed.shape as [number, number, number];
    // [B, T, H·E] → [B, T, H, E]
    const split = (name: string, count: number) => this.projected(name, normed).view([B, T, count, E]);
    const placed = (name: string, norm: string, count: number) => {
      const states = split(name, count);
      const scaled = headNorms ? this.#norm(norm, states) : states;
      return rotaryEmbedding(scaled, cosine, sine).transpose(1, 2); // [B, H, T, E]
    };
    const query = placed(names.query, names.queryNorm, heads);
    const key = placed(names.key, names.keyNorm, keyValueHeads);
    const value = split(names.value, keyValueHeads).transpose(1, 2);
    const scale = 1 / Math.sqrt(E);
    if (cache === undefined) return attend(query, key, value, biases, scale);
    const window = this.config.slides(layer) ? this.config.slidingWindow : null;
    return attendCached(query, cache.append(layer, key, value), scale, window);
  }

  #norm(name: string, x: Tensor): Tensor {
    const { normEpsilon: epsilon } = this.config;
    return autocastRmsNorm(x, this.module(name).weight, { epsilon, dtype: this.computeDtype });
  }

  #tablesFor(positions: Tensor): { cosine: Tensor; sine: Tensor } {
    const { contextLength } = this.config;
    const { made } = this.#tables;
    const rows = made?.cosine.size(0) ?? 0;
    if (made !== null && rows === contextLength) return made;
    const reached = contextLength <= WHOLE_TABLE ? contextLength : scope(() => positions.max().item()) + 1;
    if (made !== null && reached <= rows) return made;
    // At least doubled, so that the tables are not rebuilt for every token of a growing text.
    const wanted = Math.min(contextLength, Math.max(reached, 2 * rows, WHOLE_TABLE));
    const tables = this.#makeTables(wanted);
    dispose(made);
    return (this.#tables.made = tables);
  }

  #makeTables(rows: number): { cosine: Tensor; sine: Tensor } {
    const { headDimension, rotary } = this.config;
    return keep(
      scope(() => {
        const { cosine, sine } = rotaryTables(rotary, { headDimension, rows, device: this.device });
        return { cosine: cast(cosine, this.computeDtype), sine: cast(sine, this.computeDtype) };
      }),
    );
  }

  /** Biases for the layers with full attention, and for those with a sliding window. */
  #biases(newTokens: number, options: ForwardOptions): { full: Tensor[]; sliding: Tensor[] } {
    const { positions, segments, cache } = options;
    const { slidingWindow } = this.config;
    const place = { ...this.config, dtype: this.computeDtype, device: this.device };
    const full = attentionBiases(options, newTokens, place);
    if (cache !== undefined || slidingWindow === null || newTokens <= slidingWindow || !this.#slides) {
      return { full, sliding: full };
    }
    const windowed = (queries: Tensor, keys: Tensor, mask: Tensor | null) => {
      const length = queries.size(-1);
      // [B, 1, T, 1] − [B or 1, 1, 1, S]: how far back each key lies.
      const distance = queries.unsqueeze(1).unsqueeze(-1).sub(keys.unsqueeze(1).unsqueeze(1));
      const near = distance.lt(slidingWindow);
      // By column, not by position: padding on the right has positions too.
      const earlier = mask ?? ones([length, length], { dtype: "bool", device: this.device }).tril();
      return attentionBias(near.logicalAnd(earlier), length, place)!;
    };
    if (segments === undefined) return { full, sliding: [windowed(positions, positions, options.mask)] };
    let start = 0;
    const sliding = segments.map(({ length, mask }, at) => {
      const own = positions.narrow(1, start, length);
      start += length;
      return length <= slidingWindow ? full[at]! : windowed(own, own, mask);
    });
    return { full, sliding };
  }
}
