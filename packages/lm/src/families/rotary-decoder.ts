// The decoder that Llama and its relatives share. Results and names follow Hugging Face's LlamaForCausalLM.
import { autocastLinear, autocastRmsNorm, cast, ones, scope, type DType, type Tensor } from "@astra-rl/torch";
import type { Adapter } from "../adapter.js";
import type { AttentionCache, CausalLM, ForwardOptions } from "../causal-lm.js";
import { JsonFields } from "../json-fields.js";
import { gated } from "./activations.js";
import { attend, attendCached, attentionBias, attentionBiases } from "./attention.js";
import type { CausalFamily } from "./family.js";
import { ParameterizedModel } from "./parameterized-model.js";
import { LAYERS_KEY, type NormPlacement, type RotaryDecoderConfig } from "./rotary-config.js";
import { rotated, RotaryTables, type Rotation, type RotarySettings } from "./rotary.js";

/** Projections are stored [out, in]. */
function parameterShapes(config: RotaryDecoderConfig): Map<string, readonly number[]> {
  const { hiddenSize, headDimension, intermediateSize, vocabSize, feedForwardBias } = config;
  const queries = config.heads * headDimension;
  const keys = config.keyValueHeads * headDimension;
  const shapes = new Map<string, readonly number[]>();
  const norm = (name: string | null, size = hiddenSize) => {
    if (name !== null) shapes.set(`${name}.weight`, [size]);
  };
  const projection = (name: string, output: number, input: number, bias: boolean) => {
    shapes.set(`${name}.weight`, [output, input]);
    if (bias) shapes.set(`${name}.bias`, [output]);
  };
  shapes.set("model.embed_tokens.weight", [vocabSize, hiddenSize]);
  for (let layer = 0; layer < config.layers; layer++) {
    const names = moduleNames(layer, config.normPlacement);
    norm(names.attentionNorm);
    if (config.fusedProjections) {
      projection(names.queryKeyValue, queries + 2 * keys, hiddenSize, config.queryKeyValueBias);
    } else {
      projection(names.query, queries, hiddenSize, config.queryKeyValueBias);
      projection(names.key, keys, hiddenSize, config.queryKeyValueBias);
      projection(names.value, keys, hiddenSize, config.queryKeyValueBias);
    }
    projection(names.attentionOutput, hiddenSize, queries, config.outputBias);
    if (config.queryKeyNorm !== "none") {
      const isWide = config.queryKeyNorm === "projection";
      norm(names.queryNorm, isWide ? queries : headDimension);
      norm(names.keyNorm, isWide ? keys : headDimension);
    }
    norm(names.attentionOutputNorm);
    norm(names.feedForwardNorm);
    if (config.fusedProjections) {
      projection(names.gateUp, 2 * intermediateSize, hiddenSize, feedForwardBias);
    } else {
      projection(names.gate, intermediateSize, hiddenSize, feedForwardBias);
      projection(names.up, intermediateSize, hiddenSize, feedForwardBias);
    }
    projection(names.down, hiddenSize, intermediateSize, feedForwardBias);
    norm(names.feedForwardOutputNorm);
  }
  norm("model.norm");
  if (!config.tiedEmbeddings) shapes.set("lm_head.weight", [vocabSize, hiddenSize]);
  return shapes;
}

/** Creates the family of one such architecture. */
export function rotaryFamily(options: {
  architecture: string;
  modelType: string;
  /** Values that transformers has for keys that config.json leaves out, where they differ from Llama's. */
  defaults?: Readonly<Record<string, unknown>>;
  parseConfig: (fields: JsonFields) => RotaryDecoderConfig;
}): CausalFamily {
  const { architecture, modelType, defaults = {}, parseConfig } = options;
  const family: CausalFamily = {
    architectures: [architecture],
    modelType,
    projectionsTransposed: false,
    layersKey: LAYERS_KEY,
    parseConfig: ({ values, where }) => {
      const fields = new JsonFields({ ...defaults, ...values }, where);
      return { ...parseConfig(fields), raw: values };
    },
    parameterShapes: (config) => parameterShapes(config as RotaryDecoderConfig),
    parameterName: (key, config) => parameterName(key, config as RotaryDecoderConfig),
    initialValue: (name, config) => {
      if (name.endsWith(".bias")) return { constant: 0 };
      if (name.endsWith("norm.weight"))
        return { constant: (config as RotaryDecoderConfig).unitOffsetNorms ? 0 : 1 };
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

/** The norms of a layer, by where they are; null if there is none. */
const NORMS = {
  pre: {
    attentionNorm: "input_layernorm",
    attentionOutputNorm: null,
    feedForwardNorm: "post_attention_layernorm",
    feedForwardOutputNorm: null,
  },
  post: {
    attentionNorm: null,
    attentionOutputNorm: "post_attention_layernorm",
    feedForwardNorm: null,
    feedForwardOutputNorm: "post_feedforward_layernorm",
  },
  sandwich: {
    attentionNorm: "input_layernorm",
    attentionOutputNorm: "post_attention_layernorm",
    feedForwardNorm: "pre_feedforward_layernorm",
    feedForwardOutputNorm: "post_feedforward_layernorm",
  },
} as const;

/** The modules of one layer, collected once: names would be looked up for every token. */
function moduleNames(layer: number, normPlacement: NormPlacement) {
  const prefix = `model.layers.${layer}.`;
  const norms = NORMS[normPlacement];
  const norm = (name: string | null) => name && `${prefix}${name}`;
  return {
    prefix,
    attentionNorm: norm(norms.attentionNorm),
    queryKeyValue: `${prefix}self_attn.qkv_proj`,
    query: `${prefix}self_attn.q_proj`,
    queryNorm: `${prefix}self_attn.q_norm`,
    key: `${prefix}self_attn.k_proj`,
    keyNorm: `${prefix}self_attn.k_norm`,
    value: `${prefix}self_attn.v_proj`,
    attentionOutput: `${prefix}self_attn.o_proj`,
    attentionOutputNorm: norm(norms.attentionOutputNorm),
    feedForwardNorm: norm(norms.feedForwardNorm),
    gateUp: `${prefix}mlp.gate_up_proj`,
    gate: `${prefix}mlp.gate_proj`,
    up: `${prefix}mlp.up_proj`,
    down: `${prefix}mlp.down_proj`,
    feedForwardOutputNorm: norm(norms.feedForwardOutputNorm),
  };
}

/** Inputs of a layer besides the hidden states. */
interface LayerInputs {
  /** In computeDtype; null = no rotary positions. */
  rotation: Rotation | null;
  biases: Tensor[];
  cache: AttentionCache | undefined;
  /** Tokens that the last layer computes; undefined = all. */
  places: Tensor | undefined;
}

class RotaryDecoder extends ParameterizedModel {
  readonly #names: readonly ReturnType<typeof moduleNames>[];
  /** Whether any layer has a sliding window. */
  readonly #slides: boolean;
  /** By the settings of a layer; shared with views. */
  #tables: ReadonlyMap<RotarySettings, RotaryTables>;

  constructor(
    override readonly config: RotaryDecoderConfig,
    parameters: Map<string, Tensor>,
    computeDtype: DType,
    protected override readonly family: CausalFamily,
  ) {
    super(config, parameters, computeDtype);
    const layers = Array.from({ length: config.layers }, (_, layer) => layer);
    this.#names = layers.map((layer) => moduleNames(layer, config.normPlacement));
    this.#slides = layers.some(config.slides);
    const settings = new Set(layers.flatMap((layer) => this.#rotaryOf(layer) ?? []));
    const place = { contextLength: config.contextLength, dtype: computeDtype, device: this.device };
    this.#tables = new Map([...settings].map((each) => [each, new RotaryTables(each, place)]));
  }

  forward(ids: Tensor, options: ForwardOptions): Tensor {
    const { positions, cache } = options;
    const { embeddingScale, tiedEmbeddings: isProjection } = this.config;
    return scope(() => {
      const { full, sliding } = this.#biases(ids.size(-1), options);
      const rotations = new Map([...this.#tables].map(([key, tables]) => [key, tables.at(positions)]));
      let hidden = this.embedded("model.embed_tokens", ids, { isProjection }); // [B, T, D]
      // Not rounded to the type of the weights, as transformers does, so that copies in other types agree.
      if (embeddingScale !== 1) hidden = hidden.mul(embeddingScale);
      for (let layer = 0; layer < this.config.layers; layer++) {
        const settings = this.#rotaryOf(layer);
        const rotation = settings && rotations.get(settings)!;
        const turns = rotation === null ? [] : [rotation.cosine, rotation.sine];
        const wanted = this.placesOf(layer, options);
        const inputs = [hidden, ...turns, ...wanted, ...(this.config.slides(layer) ? sliding : full)];
        hidden = scope(() =>
          this.layer(this.#names[layer]!.prefix, options, inputs, (input, ...rest) => {
            const [cosine, sine] = rest.splice(0, turns.length);
            const [places] = rest.splice(0, wanted.length);
            const given = rotation === null ? null : { cosine: cosine!, sine: sine! };
            return this.#block(layer, input!, { rotation: given, biases: rest, cache, places });
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
    for (const tables of this.#tables.values()) tables.dispose();
  }

  #rotaryOf(layer: number): RotarySettings | null {
    const { rotary, slidingRotary, rotates, slides } = this.config;
    if (!rotates(layer)) return null;
    return slidingRotary !== null && slides(layer) ? slidingRotary : rotary;
  }

  #block(layer: number, hidden: Tensor, inputs: LayerInputs): Tensor {
    const names = this.#names[layer]!;
    const { places } = inputs;
    const attended = this.#attention(layer, this.#blockInput(names.attentionNorm, hidden), inputs);
    const residual = this.chosen(hidden, places);
    const middle = this.#added(
      names.attentionOutput,
      names.attentionOutputNorm,
      this.chosen(attended, places),
      residual,
    );
    const [gate, up] = this.#gateAndUp(layer, this.#blockInput(names.feedForwardNorm, middle));
    const expanded = gated(this.config.activation, gate, up);
    return this.#added(names.down, names.feedForwardOutputNorm, expanded, middle);
  }

  /** Hidden states as the projections of a block read them. */
  #blockInput(norm: string | null, hidden: Tensor): Tensor {
    return norm === null ? cast(hidden, this.computeDtype) : this.#norm(norm, hidden);
  }

  /** The residual plus the output of a block's last projection, normed where the block has a norm behind it. */
  #added(projection: string, norm: string | null, input: Tensor, residual: Tensor): Tensor {
    if (norm === null) return this.projected(projection, input, residual);
    return residual.add(this.#norm(norm, this.projected(projection, input), this.residualDtype));
  }

  #attention(layer: number, input: Tensor, { rotation, biases, cache }: LayerInputs): Tensor {
    const { heads, keyValueHeads, headDimension: E, queryKeyNorm, attentionScale } = this.config;
    const names = this.#names[layer]!;
    const [B, T] = input.shape as [number, number, number];
    const [queries, keys, values] = this.#queryKeyValue(layer, input);
    // [B, T, H·E] → [B, T, H, E]
    const split = (states: Tensor, count: number) => states.view([B, T, count, E]);
    const placed = (states: Tensor, norm: string, count: number) => {
      const whole = queryKeyNorm === "projection" ? this.#norm(norm, states) : states;
      const parts = split(whole, count);
      const scaled = queryKeyNorm === "head" ? this.#norm(norm, parts) : parts;
      return (rotation === null ? scaled : rotated(scaled, rotation)).transpose(1, 2); // [B, H, T, E]
    };
    const query = placed(queries, names.queryNorm, heads);
    const key = placed(keys, names.keyNorm, keyValueHeads);
    const value = split(values, keyValueHeads).transpose(1, 2);
    if (cache === undefined) return attend(query, key, value, biases, attentionScale);
    const window = this.config.slides(layer) ? this.config.slidingWindow : null;
    return attendCached(query, cache.append(layer, key, value), attentionScale, window);
  }

  /** [B, T, D] → [B, T, H·E], [B, T, G·E], [B, T, G·E] */
  #queryKeyValue(layer: number, input: Tensor): [Tensor, Tensor, Tensor] {
    const { heads, keyValueHeads, headDimension, fusedProjections } = this.config;
    const names = this.#names[layer]!;
    if (fusedProjections) {
      const sizes = [heads, keyValueHeads, keyValueHeads].map((count) => count * headDimension);
      return this.projected(names.queryKeyValue, input).split(sizes, -1) as [Tensor, Tensor, Tensor];
    }
    const [query, key, value] = [names.query, names.key, names.value];
    return [this.projected(query, input), this.projected(key, input), this.projected(value, input)];
  }

  /** [B, T, D] → [B, T, I] each */
  #gateAndUp(layer: number, input: Tensor): [Tensor, Tensor] {
    const { gateUp, gate, up } = this.#names[layer]!;
    if (this.config.fusedProjections) return this.projected(gateUp, input).chunk(2, -1) as [Tensor, Tensor];
    return [this.projected(gate, input), this.projected(up, input)];
  }

  #norm(name: string, x: Tensor, dtype = this.computeDtype): Tensor {
    const { normEpsilon: epsilon, unitOffsetNorms } = this.config;
    const { weight } = this.module(name);
    // 1 + weight would be rounded in 16 bits.
    const factor = unitOffsetNorms ? cast(weight, this.residualDtype).add(1) : weight;
    return autocastRmsNorm(x, factor, { epsilon, dtype });
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
