// GPT-2 (Radford et al. 2019): learned positions, norms before each block, fused query/key/value, tied
// output. Results and names follow Hugging Face's GPT2LMHeadModel.
import {
  autocastLayerNorm,
  autocastLinear,
  keep,
  noGrad,
  scope,
  type DType,
  type Tensor,
} from "@astra-rl/torch";
import type { AttentionCache, CausalLM, ForwardOptions, ModelConfig } from "../causal-lm.js";
import { JsonFields } from "../json-fields.js";
import { activate, activationOf } from "./activations.js";
import { attend, attendCached, attentionBiases } from "./attention.js";
import type { CausalFamily } from "./family.js";
import { ParameterizedModel } from "./parameterized-model.js";

export interface GPT2Config extends ModelConfig {
  readonly innerSize: number;
  /** Hugging Face's name of the activation in the feed-forward block. */
  readonly activation: string;
  readonly normEpsilon: number;
  /** Whether attention scores are divided by √E; a few checkpoints were trained without. */
  readonly scaleAttention: boolean;
  /** Whether scores of layer i are also divided by i + 1. */
  readonly scaleByLayer: boolean;
  /** Whether the output projection is the token embedding. */
  readonly tied: boolean;
}

const LAYERS_KEY = "n_layer";

function parseConfig(fields: JsonFields): GPT2Config {
  const hiddenSize = fields.integer("n_embd");
  const heads = fields.integer("n_head");
  if (hiddenSize % heads !== 0) throw fields.error("n_head", `a divisor of "n_embd" (${hiddenSize})`);
  const vocabSize = fields.integer("vocab_size");
  if (fields.boolean("add_cross_attention", { fallback: false })) {
    throw fields.error("add_cross_attention", "false: only decoders on their own are supported");
  }
  // Small checkpoints often keep 50256 from the default configuration, an id outside their vocabulary.
  const inside = (ids: number[]) => ids.filter((id) => id < vocabSize);
  return {
    architecture: "GPT2LMHeadModel",
    modelType: "gpt2",
    vocabSize,
    hiddenSize,
    layers: fields.integer(LAYERS_KEY),
    heads,
    keyValueHeads: heads,
    headDimension: hiddenSize / heads,
    contextLength: fields.integer("n_positions"),
    slidingWindow: null,
    bosId: inside(fields.ids("bos_token_id"))[0] ?? null,
    eosIds: inside(fields.ids("eos_token_id")),
    padId: inside(fields.ids("pad_token_id"))[0] ?? null,
    raw: fields.values,
    generation: null,
    innerSize: fields.integer("n_inner", { fallback: 4 * hiddenSize }),
    activation: activationOf(fields, "activation_function", "gelu_new"),
    normEpsilon: fields.positive("layer_norm_epsilon", { fallback: 1e-5 }),
    scaleAttention: fields.boolean("scale_attn_weights", { fallback: true }),
    scaleByLayer: fields.boolean("scale_attn_by_inverse_layer_idx", { fallback: false }),
    tied: fields.boolean("tie_word_embeddings", { fallback: true }),
  };
}

/** Projections are stored [in, out], in Hugging Face's checkpoints of this family only. */
function parameterShapes(config: GPT2Config): Map<string, readonly number[]> {
  const { hiddenSize: D, innerSize: I, vocabSize: V } = config;
  const shapes = new Map<string, readonly number[]>();
  shapes.set("transformer.wte.weight", [V, D]);
  shapes.set("transformer.wpe.weight", [config.contextLength, D]);
  for (let layer = 0; layer < config.layers; layer++) {
    const put = (name: string, ...shape: number[]) => shapes.set(`transformer.h.${layer}.${name}`, shape);
    put("ln_1.weight", D);
    put("ln_1.bias", D);
    put("attn.c_attn.weight", D, 3 * D);
    put("attn.c_attn.bias", 3 * D);
    put("attn.c_proj.weight", D, D);
    put("attn.c_proj.bias", D);
    put("ln_2.weight", D);
    put("ln_2.bias", D);
    put("mlp.c_fc.weight", D, I);
    put("mlp.c_fc.bias", I);
    put("mlp.c_proj.weight", I, D);
    put("mlp.c_proj.bias", D);
  }
  shapes.set("transformer.ln_f.weight", [D]);
  shapes.set("transformer.ln_f.bias", [D]);
  if (!config.tied) shapes.set("lm_head.weight", [V, D]);
  return shapes;
}

/** Checkpoints of the bare model lack the "transformer." prefix; old ones store the causal mask as a buffer. */
function parameterName(key: string, config: GPT2Config): string | null {
  if (key === "lm_head.weight") return config.tied ? null : key;
  const bare = key.startsWith("transformer.") ? key.slice("transformer.".length) : key;
  if (/^h\.\d+\.attn\.(bias|masked_bias)$/.test(bare)) return null;
  return /^(wte|wpe|ln_f|h)\./.test(bare) ? `transformer.${bare}` : key;
}

/** Normal 0.02; projections into the residual stream are divided by √(2·layers), the number of such projections. */
function initialValue(name: string, config: GPT2Config): { deviation: number } | { constant: number } {
  if (name.endsWith(".bias")) return { constant: 0 };
  if (/\.ln_\w+\.weight$/.test(name)) return { constant: 1 };
  const deviation = new JsonFields(config.raw, "config").positive("initializer_range", { fallback: 0.02 });
  return { deviation: name.endsWith("c_proj.weight") ? deviation / Math.sqrt(2 * config.layers) : deviation };
}

/**
 * Replaces projections [in, out] by copies with output-major memory layout, which decoding reads fastest
 * (autocastLinear).
 */
function layOutByOutput(parameters: Map<string, Tensor>): Map<string, Tensor> {
  for (const [name, parameter] of parameters) {
    if (!/\.(attn|mlp)\.c_\w+\.weight$/.test(name)) continue;
    scope(() => {
      const turned = noGrad(() => parameter.t().contiguous().t());
      if (turned.sharesStorageWith(parameter)) return;
      parameters.set(name, keep(turned));
      parameter.dispose();
    });
  }
  return parameters;
}

/** The modules of one layer, collected once: names would be looked up for every token. */
function moduleNames(layer: number) {
  const prefix = `transformer.h.${layer}.`;
  return {
    prefix,
    attentionNorm: `${prefix}ln_1`,
    queryKeyValue: `${prefix}attn.c_attn`,
    attentionOutput: `${prefix}attn.c_proj`,
    feedForwardNorm: `${prefix}ln_2`,
    feedForwardInput: `${prefix}mlp.c_fc`,
    feedForwardOutput: `${prefix}mlp.c_proj`,
  };
}

/** Inputs of a layer besides the hidden states. */
interface LayerInputs {
  biases: Tensor[];
  cache: AttentionCache | undefined;
  /** Tokens that the last layer computes; undefined = all. */
  places: Tensor | undefined;
}

/**
 * No dropout, even in training: a policy's log-probabilities must be those of the policy that sampled,
 * otherwise ratios and preference margins would measure noise.
 */
class GPT2 extends ParameterizedModel {
  protected override readonly family = gpt2;
  readonly #names: readonly ReturnType<typeof moduleNames>[];

  constructor(
    override readonly config: GPT2Config,
    parameters: Map<string, Tensor>,
    computeDtype: DType,
  ) {
    super(config, parameters, computeDtype);
    this.#names = Array.from({ length: config.layers }, (_, layer) => moduleNames(layer));
  }

  forward(ids: Tensor, options: ForwardOptions): Tensor {
    const { positions, cache } = options;
    return scope(() => {
      const tokens = this.embedded("transformer.wte", ids, { isProjection: this.config.tied });
      let hidden = tokens.add(this.embedded("transformer.wpe", positions)); // [B, T, D]
      const biases = attentionBiases(options, ids.size(-1), {
        ...this.config,
        dtype: this.computeDtype,
        device: this.device,
      });
      for (let layer = 0; layer < this.config.layers; layer++) {
        const wanted = this.placesOf(layer, options);
        const inputs = [hidden, ...wanted, ...biases];
        hidden = scope(() =>
          this.layer(this.#names[layer]!.prefix, options, inputs, (input, ...seen) => {
            const [places] = seen.splice(0, wanted.length);
            return this.#block(layer, input!, { biases: seen, cache, places });
          }),
        );
      }
      return this.#norm("transformer.ln_f", hidden);
    });
  }

  logits(hidden: Tensor): Tensor {
    const { weight } = this.module(this.config.tied ? "transformer.wte" : "lm_head");
    return scope(() => autocastLinear(hidden, weight, null, { dtype: this.computeDtype }));
  }

  #block(layer: number, hidden: Tensor, { biases, cache, places }: LayerInputs): Tensor {
    const { heads: H, headDimension: E, scaleAttention, scaleByLayer } = this.config;
    const [B, T] = hidden.shape as [number, number, number];
    const names = this.#names[layer]!;

    const normed = this.#norm(names.attentionNorm, hidden);
    const projected = this.projected(names.queryKeyValue, normed).view([B, T, 3, H, E]);
    // Three of [B, H, T, E]. Without a cache each is split from [B, T, …] separately, so that gradients are
    // joined by one contiguous copy; with a cache, fewer calls are made.
    const [query, key, value] = (
      cache === undefined
        ? projected.unbind(2).map((part) => part.transpose(1, 2))
        : projected.permute([2, 0, 3, 1, 4]).unbind(0)
    ) as [Tensor, Tensor, Tensor];
    const scale = (scaleAttention ? 1 / Math.sqrt(E) : 1) / (scaleByLayer ? layer + 1 : 1);
    const attended =
      cache === undefined
        ? attend(query, key, value, biases, scale)
        : attendCached(query, cache.append(layer, key, value), scale);
    const residual = this.chosen(hidden, places);
    const middle = this.projected(names.attentionOutput, this.chosen(attended, places), residual);

    const inner = this.projected(names.feedForwardInput, this.#norm(names.feedForwardNorm, middle));
    const active = activate(this.config.activation, inner);
    return this.projected(names.feedForwardOutput, active, middle);
  }

  #norm(name: string, hidden: Tensor): Tensor {
    const { weight, bias } = this.module(name);
    return autocastLayerNorm(hidden, weight, bias!, {
      epsilon: this.config.normEpsilon,
      dtype: this.computeDtype,
    });
  }
}

export const gpt2: CausalFamily = {
  architectures: ["GPT2LMHeadModel", "GPT2Model"],
  modelType: "gpt2",
  projectionsTransposed: true,
  layersKey: LAYERS_KEY,
  parseConfig,
  parameterShapes: (config) => parameterShapes(config as GPT2Config),
  parameterName: (key, config) => parameterName(key, config as GPT2Config),
  initialValue: (name, config) => initialValue(name, config as GPT2Config),
  create: (config, parameters, computeDtype): CausalLM =>
    new GPT2(config as GPT2Config, layOutByOutput(parameters), computeDtype),
};
