// GPT-NeoX (Black et al. 2022, arXiv 2204.06745), also Pythia (Biderman et al. 2023, arXiv 2304.01373): rotary positions
// in a part of each head, attention and feed-forward block in parallel, fused query/key/value, untied output. Results
// and names follow Hugging Face's GPTNeoXForCausalLM.
import { autocastLayerNorm, autocastLinear, scope, type DType, type Tensor } from "@astra-rl/torch";
import type { Adapter } from "../adapter.js";
import type { AttentionCache, CausalLM, ForwardOptions, ModelConfig } from "../causal-lm.js";
import { JsonFields } from "../json-fields.js";
import { activate, activationOf } from "./activations.js";
import { attend, attendCached, attentionBiases } from "./attention.js";
import type { CausalFamily } from "./family.js";
import { ParameterizedModel } from "./parameterized-model.js";
import {
  parseRotarySettings,
  partialRotaryDimension,
  rotated,
  RotaryTables,
  type Rotation,
  type RotarySettings,
} from "./rotary.js";

export interface GPTNeoXConfig extends ModelConfig {
  readonly intermediateSize: number;
  /** Hugging Face's name of the activation in the feed-forward block. */
  readonly activation: string;
  readonly normEpsilon: number;
  readonly rotary: RotarySettings;
  /** Whether the feed-forward block reads the layer's input rather than the sum of it and the attention. */
  readonly parallelResidual: boolean;
  /** Biases of the attention's projections. */
  readonly attentionBias: boolean;
  /** Whether the output projection is the input embedding. */
  readonly tiedEmbeddings: boolean;
}

const LAYERS_KEY = "num_hidden_layers";

function parseConfig(fields: JsonFields): GPTNeoXConfig {
  const hiddenSize = fields.integer("hidden_size");
  const heads = fields.integer("num_attention_heads");
  if (hiddenSize % heads !== 0)
    throw fields.error("num_attention_heads", `a divisor of hidden_size (${hiddenSize})`);
  const headDimension = hiddenSize / heads;
  const dimension = partialRotaryDimension(fields, headDimension, { key: "rotary_pct", fallback: 0.25 });
  const rotary = parseRotarySettings(fields, { dimension, thetaKey: "rotary_emb_base" });
  const [bosId] = fields.ids("bos_token_id");
  const [padId] = fields.ids("pad_token_id");
  return {
    architecture: "GPTNeoXForCausalLM",
    modelType: "gpt_neox",
    vocabSize: fields.integer("vocab_size"),
    hiddenSize,
    layers: fields.integer(LAYERS_KEY),
    heads,
    keyValueHeads: heads,
    headDimension,
    contextLength: rotary.contextLength,
    slidingWindow: null,
    bosId: bosId ?? null,
    eosIds: fields.ids("eos_token_id"),
    padId: padId ?? null,
    raw: fields.values,
    generation: null,
    intermediateSize: fields.integer("intermediate_size"),
    activation: activationOf(fields, "hidden_act", "gelu"),
    normEpsilon: fields.positive("layer_norm_eps", { fallback: 1e-5 }),
    rotary,
    parallelResidual: fields.boolean("use_parallel_residual", { fallback: true }),
    attentionBias: fields.boolean("attention_bias", { fallback: true }),
    tiedEmbeddings: fields.boolean("tie_word_embeddings", { fallback: false }),
  };
}

/** Projections are stored [out, in]. */
function parameterShapes(config: GPTNeoXConfig): Map<string, readonly number[]> {
  const { hiddenSize: D, intermediateSize: I, vocabSize: V, attentionBias } = config;
  const shapes = new Map<string, readonly number[]>();
  const norm = (name: string) => shapes.set(`${name}.weight`, [D]).set(`${name}.bias`, [D]);
  const projection = (name: string, output: number, input: number, bias = true) => {
    shapes.set(`${name}.weight`, [output, input]);
    if (bias) shapes.set(`${name}.bias`, [output]);
  };
  shapes.set("gpt_neox.embed_in.weight", [V, D]);
  for (let layer = 0; layer < config.layers; layer++) {
    const names = moduleNames(layer);
    norm(names.attentionNorm);
    norm(names.feedForwardNorm);
    projection(names.queryKeyValue, 3 * D, D, attentionBias);
    projection(names.attentionOutput, D, D, attentionBias);
    projection(names.feedForwardInput, I, D);
    projection(names.feedForwardOutput, D, I);
  }
  norm("gpt_neox.final_layer_norm");
  if (!config.tiedEmbeddings) shapes.set("embed_out.weight", [V, D]);
  return shapes;
}

/** Old checkpoints store the causal mask and the rotary frequencies as buffers. */
function parameterName(key: string, config: GPTNeoXConfig): string | null {
  if (key === "embed_out.weight" || key === "lm_head.weight")
    return config.tiedEmbeddings ? null : "embed_out.weight";
  return /\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$/.test(key) ? null : key;
}

function initialValue(name: string, config: GPTNeoXConfig): { deviation: number } | { constant: number } {
  if (name.endsWith(".bias")) return { constant: 0 };
  if (/layer_?norm\.weight$/.test(name)) return { constant: 1 };
  return {
    deviation: new JsonFields(config.raw, "config").positive("initializer_range", { fallback: 0.02 }),
  };
}

/** The modules of one layer, collected once: names would be looked up for every token. */
function moduleNames(layer: number) {
  const prefix = `gpt_neox.layers.${layer}.`;
  return {
    prefix,
    attentionNorm: `${prefix}input_layernorm`,
    feedForwardNorm: `${prefix}post_attention_layernorm`,
    queryKeyValue: `${prefix}attention.query_key_value`,
    attentionOutput: `${prefix}attention.dense`,
    feedForwardInput: `${prefix}mlp.dense_h_to_4h`,
    feedForwardOutput: `${prefix}mlp.dense_4h_to_h`,
  };
}

/** Inputs of a layer besides the hidden states. */
interface LayerInputs {
  /** In computeDtype. */
  rotation: Rotation;
  biases: Tensor[];
  cache: AttentionCache | undefined;
  /** Tokens that the last layer computes; undefined = all. */
  places: Tensor | undefined;
}

/** No dropout, even in training, as in GPT-2. */
class GPTNeoX extends ParameterizedModel {
  protected override readonly family = gptNeoX;
  readonly #names: readonly ReturnType<typeof moduleNames>[];
  /** Shared with views. */
  #tables: RotaryTables;

  constructor(
    override readonly config: GPTNeoXConfig,
    parameters: Map<string, Tensor>,
    computeDtype: DType,
  ) {
    super(config, parameters, computeDtype);
    this.#names = Array.from({ length: config.layers }, (_, layer) => moduleNames(layer));
    const { contextLength, rotary } = config;
    this.#tables = new RotaryTables(rotary, { contextLength, dtype: computeDtype, device: this.device });
  }

  forward(ids: Tensor, options: ForwardOptions): Tensor {
    const { positions, cache } = options;
    return scope(() => {
      const { cosine, sine } = this.#tables.at(positions);
      const biases = attentionBiases(options, ids.size(-1), {
        ...this.config,
        dtype: this.computeDtype,
        device: this.device,
      });
      const isProjection = this.config.tiedEmbeddings;
      let hidden = this.embedded("gpt_neox.embed_in", ids, { isProjection }); // [B, T, D]
      for (let layer = 0; layer < this.config.layers; layer++) {
        const wanted = this.placesOf(layer, options);
        const inputs = [hidden, cosine, sine, ...wanted, ...biases];
        hidden = scope(() =>
          this.layer(this.#names[layer]!.prefix, options, inputs, (input, cosines, sines, ...seen) => {
            const [places] = seen.splice(0, wanted.length);
            const rotation = { cosine: cosines!, sine: sines! };
            return this.#block(layer, input!, { rotation, biases: seen, cache, places });
          }),
        );
      }
      return this.#norm("gpt_neox.final_layer_norm", hidden);
    });
  }

  logits(hidden: Tensor): Tensor {
    const { weight } = this.module(this.config.tiedEmbeddings ? "gpt_neox.embed_in" : "embed_out");
    return scope(() => autocastLinear(hidden, weight, null, { dtype: this.computeDtype }));
  }

  override withAdapter(adapter: Adapter): CausalLM {
    const view = super.withAdapter(adapter) as GPTNeoX;
    view.#tables = this.#tables;
    return view;
  }

  override dispose(): void {
    super.dispose();
    if (this.ownsParameters) this.#tables.dispose();
  }

  #block(layer: number, hidden: Tensor, { places, ...inputs }: LayerInputs): Tensor {
    const names = this.#names[layer]!;
    const attended = this.#attention(layer, this.#norm(names.attentionNorm, hidden), inputs);
    const residual = this.chosen(hidden, places);
    const middle = this.projected(names.attentionOutput, this.chosen(attended, places), residual);
    const read = this.config.parallelResidual ? residual : middle;
    const inner = this.projected(names.feedForwardInput, this.#norm(names.feedForwardNorm, read));
    return this.projected(names.feedForwardOutput, activate(this.config.activation, inner), middle);
  }

  #attention(
    layer: number,
    normed: Tensor,
    { rotation, biases, cache }: Omit<LayerInputs, "places">,
  ): Tensor {
    const { heads: H, headDimension: E } = this.config;
    const [B, T] = normed.shape as [number, number, number];
    // Query, key and value of each head lie next to each other.
    const projected = this.projected(this.#names[layer]!.queryKeyValue, normed).view([B, T, H, 3, E]);
    const [queries, keys, values] = projected.unbind(3) as [Tensor, Tensor, Tensor]; // [B, T, H, E] each
    const query = rotated(queries, rotation).transpose(1, 2);
    const key = rotated(keys, rotation).transpose(1, 2);
    const value = values.transpose(1, 2);
    const scale = 1 / Math.sqrt(E);
    if (cache === undefined) return attend(query, key, value, biases, scale);
    return attendCached(query, cache.append(layer, key, value), scale);
  }

  #norm(name: string, hidden: Tensor): Tensor {
    const { weight, bias } = this.module(name);
    return autocastLayerNorm(hidden, weight, bias!, {
      epsilon: this.config.normEpsilon,
      dtype: this.computeDtype,
    });
  }
}

export const gptNeoX: CausalFamily = {
  architectures: ["GPTNeoXForCausalLM"],
  modelType: "gpt_neox",
  projectionsTransposed: false,
  layersKey: LAYERS_KEY,
  parseConfig,
  parameterShapes: (config) => parameterShapes(config as GPTNeoXConfig),
  parameterName: (key, config) => parameterName(key, config as GPTNeoXConfig),
  initialValue: (name, config) => initialValue(name, config as GPTNeoXConfig),
  create: (config, parameters, computeDtype): CausalLM =>
    new GPTNeoX(config as GPTNeoXConfig, parameters, computeDtype),
};
