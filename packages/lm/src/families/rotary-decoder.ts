import {
  UsageError,
  dispose,
  embedding,
  keep,
  linear,
  noGrad,
  scope,
  type DType,
  type Device,
  type Tensor,
} from "@astra-rl/torch";
import type { AttentionCache, CausalLM, ForwardOptions, ModelConfig } from "../causal-lm.js";
import type { JsonFields } from "../json-fields.js";
import { attend, attentionBias } from "./attention.js";
import { parseRotarySettings, rotaryTables, rotate, type RotarySettings } from "./rotary.js";

/**
 * The decoder that Llama, Mistral and Qwen share: RMS norms before each block, rotary positions, grouped-query
 * attention and a gated feed-forward block. What sets a family apart is in its configuration.
 */
export interface RotaryDecoderConfig extends ModelConfig {
  readonly intermediateSize: number;
  readonly normEpsilon: number;
  readonly rotary: RotarySettings;
  /** The output projection is the input embedding. */
  readonly tiedEmbeddings: boolean;
  /** Biases on the query, key and value projections (Qwen2; Llama where `attention_bias`). */
  readonly queryKeyValueBias: boolean;
  /** Bias on the attention's output projection (Llama where `attention_bias`). */
  readonly outputBias: boolean;
  /** Biases in the feed-forward block (Llama where `mlp_bias`). */
  readonly feedForwardBias: boolean;
  /** RMS norm over each head of queries and keys before rotation (Qwen3). */
  readonly headNorms: boolean;
  /** Per layer: attends only to the last `slidingWindow` tokens. */
  readonly slidingLayers: readonly boolean[];
}

/** Fields that all these families spell alike. */
export function parseRotaryDecoderConfig(
  fields: JsonFields,
  traits: {
    architecture: string;
    queryKeyValueBias: boolean;
    outputBias: boolean;
    feedForwardBias: boolean;
    headNorms: boolean;
    slidingWindow: number | null;
    slidingLayers: (layers: number) => readonly boolean[];
    tiedByDefault: boolean;
  },
): RotaryDecoderConfig {
  const hiddenSize = fields.integer("hidden_size");
  const heads = fields.integer("num_attention_heads");
  const keyValueHeads = fields.integer("num_key_value_heads", { fallback: heads });
  if (heads % keyValueHeads !== 0) throw fields.error("num_key_value_heads", `a divisor of num_attention_heads (${heads})`);
  if (!fields.has("head_dim") && hiddenSize % heads !== 0) {
    throw fields.error("num_attention_heads", `a divisor of hidden_size (${hiddenSize}) where head_dim is not given`);
  }
  const headDimension = fields.integer("head_dim", { fallback: hiddenSize / heads });
  if (headDimension % 2 !== 0) throw fields.error("head_dim", "even, for rotary positions");
  const activation = fields.string("hidden_act", { fallback: "silu" });
  if (activation !== "silu") throw fields.error("hidden_act", `"silu", the only activation supported for this family`);
  const layers = fields.integer("num_hidden_layers");
  const [bosId] = fields.ids("bos_token_id");
  const [padId] = fields.ids("pad_token_id");
  return {
    architecture: traits.architecture,
    modelType: fields.string("model_type"),
    vocabSize: fields.integer("vocab_size"),
    hiddenSize,
    layers,
    heads,
    keyValueHeads,
    headDimension,
    contextLength: fields.integer("max_position_embeddings"),
    slidingWindow: traits.slidingWindow,
    bosId: bosId ?? null,
    eosIds: fields.ids("eos_token_id"),
    padId: padId ?? null,
    raw: fields.values,
    intermediateSize: fields.integer("intermediate_size"),
    normEpsilon: fields.positive("rms_norm_eps", { fallback: 1e-6 }),
    rotary: parseRotarySettings(fields),
    tiedEmbeddings: fields.boolean("tie_word_embeddings", { fallback: traits.tiedByDefault }),
    queryKeyValueBias: traits.queryKeyValueBias,
    outputBias: traits.outputBias,
    feedForwardBias: traits.feedForwardBias,
    headNorms: traits.headNorms,
    slidingLayers: traits.slidingLayers(layers),
  };
}

/** Names and shapes of the tensors of a checkpoint; projections are [out, in]. */
export function rotaryDecoderShapes(config: RotaryDecoderConfig): Map<string, readonly number[]> {
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

export class RotaryDecoder implements CausalLM {
  readonly dtype: DType;
  readonly computeDtype: DType;
  readonly device: Device;
  /** [contextLength, E] in the compute type. */
  readonly #cosine: Tensor;
  readonly #sine: Tensor;

  /** Takes ownership of the parameters, which must be those of {@link rotaryDecoderShapes}. */
  constructor(
    readonly config: RotaryDecoderConfig,
    private readonly parameters: Map<string, Tensor>,
    options: { computeDtype?: DType } = {},
  ) {
    const first = parameters.get("model.embed_tokens.weight")!;
    this.dtype = first.dtype;
    this.device = first.device;
    this.computeDtype = options.computeDtype ?? this.dtype;
    [this.#cosine, this.#sine] = keep(
      scope(() => {
        const tables = rotaryTables(config.rotary, { ...config, device: this.device });
        return [tables.cosine.to(this.computeDtype), tables.sine.to(this.computeDtype)] as [Tensor, Tensor];
      }),
    );
  }

  namedParameters(): Map<string, Tensor> {
    return this.parameters;
  }

  forward(ids: Tensor, options: ForwardOptions): Tensor {
    const { config } = this;
    const { positions, cache } = options;
    const biases = this.#biases(ids.shape[1]!, options);
    const cosine = embedding(this.#cosine, positions).unsqueeze(1); // [B, 1, T, E]
    const sine = embedding(this.#sine, positions).unsqueeze(1);
    let hidden = this.#cast(embedding(this.parameters.get("model.embed_tokens.weight")!, ids));
    for (let layer = 0; layer < config.layers; layer++) {
      const prefix = `model.layers.${layer}.`;
      const bias = config.slidingLayers[layer] ? biases.sliding : biases.full;
      const normed = this.#norm(hidden, `${prefix}input_layernorm.weight`);
      hidden = hidden.add(this.#attention(normed, { layer, prefix, cosine, sine, bias, cache }));
      hidden = hidden.add(this.#feedForward(this.#norm(hidden, `${prefix}post_attention_layernorm.weight`), prefix));
    }
    return this.#norm(hidden, "model.norm.weight");
  }

  logits(hidden: Tensor): Tensor {
    const name = this.config.tiedEmbeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    return linear(hidden, this.#cast(this.parameters.get(name)!));
  }

  copy(dtype: DType): CausalLM {
    const parameters = noGrad(() =>
      keep(new Map([...this.parameters].map(([name, value]) => [name, value.detach().to(dtype)] as const))),
    );
    return new RotaryDecoder(this.config, parameters);
  }

  copyFrom(model: CausalLM): void {
    const source = model.namedParameters();
    noGrad(() => {
      for (const [name, value] of this.parameters) value.copy_(source.get(name)!);
    });
  }

  dispose(): void {
    dispose([...this.parameters.values(), this.#cosine, this.#sine]);
  }

  #attention(
    x: Tensor,
    place: { layer: number; prefix: string; cosine: Tensor; sine: Tensor; bias: Tensor | null; cache?: AttentionCache },
  ): Tensor {
    const { layer, prefix, cosine, sine, bias, cache } = place;
    const { heads, keyValueHeads, headDimension } = this.config;
    const [batch, length] = x.shape as [number, number, number];
    // [B, T, H·E] → [B, T, H, E]
    const split = (name: string, count: number) =>
      this.#project(x, `${prefix}self_attn.${name}`).view([batch, length, count, headDimension]);
    let query = split("q_proj", heads);
    let key = split("k_proj", keyValueHeads);
    let value = split("v_proj", keyValueHeads).transpose(1, 2);
    if (this.config.headNorms) {
      query = this.#norm(query, `${prefix}self_attn.q_norm.weight`);
      key = this.#norm(key, `${prefix}self_attn.k_norm.weight`);
    }
    // → [B, H, T, E]
    query = rotate(query.transpose(1, 2), cosine, sine);
    key = rotate(key.transpose(1, 2), cosine, sine);
    if (cache) [key, value] = cache.append(layer, key, value);
    const mixed = attend(query, key, value, bias, 1 / Math.sqrt(headDimension));
    return this.#project(mixed, `${prefix}self_attn.o_proj`);
  }

  #feedForward(x: Tensor, prefix: string): Tensor {
    const gate = this.#project(x, `${prefix}mlp.gate_proj`).silu();
    return this.#project(gate.mul(this.#project(x, `${prefix}mlp.up_proj`)), `${prefix}mlp.down_proj`);
  }

  #project(x: Tensor, name: string): Tensor {
    const bias = this.parameters.get(`${name}.bias`);
    return linear(x, this.#cast(this.parameters.get(`${name}.weight`)!), bias && this.#cast(bias));
  }

  /** x / rms(x) · weight over the last dimension (Zhang & Sennrich 2019, arXiv 1910.07467), the norm in float32. */
  #norm(x: Tensor, name: string): Tensor {
    const wide = x.dtype === "bfloat16" || x.dtype === "float16" ? x.to("float32") : x;
    const scale = wide.pow(2).mean([-1], true).add(this.config.normEpsilon).rsqrt();
    const normed = wide.mul(scale);
    return this.#cast(normed).mul(this.#cast(this.parameters.get(name)!));
  }

  /** A parameter or activation in the compute type; the same object where it already is. */
  #cast(x: Tensor): Tensor {
    return x.dtype === this.computeDtype ? x : x.to(this.computeDtype);
  }

  /** One bias for the layers that see everything and one for those with a window. */
  #biases(newTokens: number, options: ForwardOptions): { full: Tensor | null; sliding: Tensor | null } {
    const { config, computeDtype: dtype, device } = this;
    const { positions, mask, cache } = options;
    const full = attentionBias(mask, newTokens, { dtype, device });
    const window = config.slidingWindow;
    const columns = (cache?.columns ?? 0) + newTokens;
    if (window === null || columns <= window || !config.slidingLayers.includes(true)) return { full, sliding: full };
    const keyPositions = options.keyPositions ?? (cache && cache.columns > 0 ? null : positions);
    if (keyPositions === null) {
      throw new UsageError(
        `${config.architecture}.forward: a sliding window of ${window} over ${columns} columns needs keyPositions`,
      );
    }
    // [B, 1, T, 1] − [B or 1, 1, 1, S]: how far back each key lies.
    const distance = positions.unsqueeze(1).unsqueeze(-1).sub(keyPositions.unsqueeze(1).unsqueeze(1));
    let visible = distance.lt(window);
    visible = mask === null ? visible.logicalAnd(distance.ge(0)) : visible.logicalAnd(mask);
    return { full, sliding: attentionBias(visible, newTokens, { dtype, device }) };
  }
}
