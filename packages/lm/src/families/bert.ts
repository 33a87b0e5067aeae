import {
  arange,
  claimThreads,
  dispose,
  embedding,
  layerNorm,
  linear,
  type DType,
  type Device,
  type Tensor,
} from "@astra-rl/torch";
import type { JsonFields } from "../json-fields.js";
import type { SequenceClassifier, SequenceClassifierConfig } from "../text-encoder.js";
import { attend, attentionBiases } from "./attention.js";

/**
 * BERT (Devlin et al. 2018, arXiv 1810.04805), RoBERTa (Liu et al. 2019, arXiv 1907.11692), XLM-RoBERTa (Conneau et al.
 * 2019, arXiv 1911.02116) and DistilBERT (Sanh et al. 2019, arXiv 1910.01108) with a head for sequence classification.
 * They differ in parameter names, in the first position, in token types (absent in DistilBERT) and in the head.
 */
export interface BertConfig extends SequenceClassifierConfig {
  readonly variant: Variant;
  /** Position of the first token: in RoBERTa, positions start after the padding id. */
  readonly firstPosition: number;
  readonly positions: number;
  readonly hiddenSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly intermediateSize: number;
  /** 0 if the model has none. */
  readonly tokenTypes: number;
  readonly normEpsilon: number;
}

/** The differences between these models. */
interface Variant {
  /** Prefix of the class names in Hugging Face's `architectures`. */
  readonly className: string;
  /** Prefix of every parameter name in the checkpoint, except in most heads. */
  readonly prefix: string;
  /** Keys of the sizes in config.json. */
  readonly keys: Readonly<
    Record<"hiddenSize" | "layers" | "heads" | "intermediateSize" | "activation", string>
  >;
  /** Parameter names in the checkpoint: of the list of layers, and within a layer. */
  readonly names: Readonly<
    Record<
      | "layers"
      | "query"
      | "key"
      | "value"
      | "attended"
      | "attendedNorm"
      | "expanded"
      | "contracted"
      | "contractedNorm",
      string
    >
  >;
  /** The head, applied to the first token's hidden state: a dense layer with this activation, then another one. */
  readonly head: {
    readonly dense: string;
    readonly activation: "tanh" | "relu";
    readonly output: string;
  };
  readonly padId: number;
  /** Whether positions start after the padding id rather than at 0. */
  readonly positionsAfterPad: boolean;
  readonly hasTokenTypes: boolean;
}

const BERT: Variant = {
  className: "Bert",
  prefix: "bert",
  keys: {
    hiddenSize: "hidden_size",
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    intermediateSize: "intermediate_size",
    activation: "hidden_act",
  },
  names: {
    layers: "encoder.layer",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    attended: "attention.output.dense",
    attendedNorm: "attention.output.LayerNorm",
    expanded: "intermediate.dense",
    contracted: "output.dense",
    contractedNorm: "output.LayerNorm",
  },
  head: { dense: "bert.pooler.dense", activation: "tanh", output: "classifier" },
  padId: 0,
  positionsAfterPad: false,
  hasTokenTypes: true,
};

const ROBERTA: Variant = {
  ...BERT,
  className: "Roberta",
  prefix: "roberta",
  head: { dense: "classifier.dense", activation: "tanh", output: "classifier.out_proj" },
  padId: 1,
  positionsAfterPad: true,
};

const DISTILBERT: Variant = {
  ...BERT,
  className: "DistilBert",
  prefix: "distilbert",
  keys: {
    hiddenSize: "dim",
    layers: "n_layers",
    heads: "n_heads",
    intermediateSize: "hidden_dim",
    activation: "activation",
  },
  names: {
    layers: "transformer.layer",
    query: "attention.q_lin",
    key: "attention.k_lin",
    value: "attention.v_lin",
    attended: "attention.out_lin",
    attendedNorm: "sa_layer_norm",
    expanded: "ffn.lin1",
    contracted: "ffn.lin2",
    contractedNorm: "output_layer_norm",
  },
  head: { dense: "pre_classifier", activation: "relu", output: "classifier" },
  hasTokenTypes: false,
};

/** By `model_type`. */
const VARIANTS: ReadonlyMap<string, Variant> = new Map([
  ["bert", BERT],
  ["roberta", ROBERTA],
  ["xlm-roberta", { ...ROBERTA, className: "XLMRoberta" }],
  ["distilbert", DISTILBERT],
]);

function parseConfig(fields: JsonFields): BertConfig {
  const modelType = fields.string("model_type");
  const variant = VARIANTS.get(modelType);
  if (variant === undefined)
    throw fields.error("unsupported-model-type", "model_type", `one of ${[...VARIANTS.keys()].join(", ")}`);
  const { className: architecture, keys, positionsAfterPad } = variant;
  const hiddenSize = fields.integer(keys.hiddenSize);
  const heads = fields.integer(keys.heads);
  if (hiddenSize % heads !== 0)
    throw fields.error("indivisible", keys.heads, `a divisor of ${keys.hiddenSize} (${hiddenSize})`);
  const activation = fields.string(keys.activation, { fallback: "gelu" });
  if (activation !== "gelu")
    throw fields.error(
      "unsupported-activation",
      keys.activation,
      `"gelu", the only activation supported for this family`,
    );
  const positionKind = fields.string("position_embedding_type", { fallback: "absolute" });
  if (positionKind !== "absolute")
    throw fields.error("unsupported-option", "position_embedding_type", `"absolute"`);
  const padId = fields.ids("pad_token_id")[0] ?? variant.padId;
  const firstPosition = positionsAfterPad ? padId + 1 : 0;
  const positions = fields.integer("max_position_embeddings", { minimum: firstPosition + 1 });
  return {
    architecture,
    modelType,
    variant,
    vocabSize: fields.integer("vocab_size"),
    contextLength: positions - firstPosition,
    labels: parseLabels(fields),
    padId,
    raw: fields.values,
    firstPosition,
    positions,
    hiddenSize,
    layers: fields.integer(keys.layers),
    heads,
    intermediateSize: fields.integer(keys.intermediateSize),
    tokenTypes: variant.hasTokenTypes ? fields.integer("type_vocab_size", { fallback: 2 }) : 0,
    normEpsilon: fields.positive("layer_norm_eps", { fallback: 1e-12 }),
  };
}

/** Labels of `id2label` in the order of their ids; transformers omits it if there are two unnamed labels. */
function parseLabels(fields: JsonFields): readonly string[] {
  const map = fields.object("id2label", { fallback: { 0: "LABEL_0", 1: "LABEL_1" } });
  const entries = Object.entries(map); // integer keys come first, in ascending order
  const labels = entries.map(([key, label], index) => (key === String(index) ? label : null));
  if (labels.length === 0 || !labels.every((label) => typeof label === "string"))
    throw fields.error("invalid-labels", "id2label", `an object from "0", "1", … to names`);
  return labels;
}

/** Names and shapes of a model's tensors, with or without the head. */
function parameterShapes(config: BertConfig, hasHead: boolean): Map<string, readonly number[]> {
  const { hiddenSize, intermediateSize, tokenTypes } = config;
  const { prefix, names, head } = config.variant;
  const shapes = new Map<string, readonly number[]>();
  const dense = (name: string, output: number, input: number) =>
    shapes.set(`${name}.weight`, [output, input]).set(`${name}.bias`, [output]);
  const norm = (name: string) => shapes.set(`${name}.weight`, [hiddenSize]).set(`${name}.bias`, [hiddenSize]);
  shapes.set(`${prefix}.embeddings.word_embeddings.weight`, [config.vocabSize, hiddenSize]);
  shapes.set(`${prefix}.embeddings.position_embeddings.weight`, [config.positions, hiddenSize]);
  if (tokenTypes > 0)
    shapes.set(`${prefix}.embeddings.token_type_embeddings.weight`, [tokenTypes, hiddenSize]);
  norm(`${prefix}.embeddings.LayerNorm`);
  for (let layer = 0; layer < config.layers; layer++) {
    const place = `${prefix}.${names.layers}.${layer}`;
    for (const part of [names.query, names.key, names.value, names.attended])
      dense(`${place}.${part}`, hiddenSize, hiddenSize);
    norm(`${place}.${names.attendedNorm}`);
    dense(`${place}.${names.expanded}`, intermediateSize, hiddenSize);
    dense(`${place}.${names.contracted}`, hiddenSize, intermediateSize);
    norm(`${place}.${names.contractedNorm}`);
  }
  if (hasHead) {
    dense(head.dense, hiddenSize, hiddenSize);
    dense(head.output, config.labels.length, hiddenSize);
  }
  return shapes;
}

/** An encoder, or with a head a classifier. */
class Bert implements SequenceClassifier {
  readonly dtype: DType;
  readonly device: Device;
  readonly #releaseThreads: () => void;

  /** Takes ownership of the parameters, which must be those of {@link parameterShapes}. */
  constructor(
    readonly config: BertConfig,
    private readonly parameters: Map<string, Tensor>,
    private readonly hasHead: boolean,
  ) {
    const first = this.#parameter(`${config.variant.prefix}.embeddings.word_embeddings.weight`);
    this.dtype = first.dtype;
    this.device = first.device;
    this.#releaseThreads = claimThreads([...parameters.values()]);
  }

  namedParameters(): Map<string, Tensor> {
    return this.parameters;
  }

  forward(ids: Tensor, mask: Tensor): Tensor {
    const { config, device, dtype } = this;
    const { layers, firstPosition, tokenTypes } = config;
    const { prefix, names } = config.variant;
    const length = ids.shape[1]!;
    // Padding is on the right, so positions count from the left in every row.
    const positions = arange(firstPosition, firstPosition + length, 1, { dtype: "int64", device });
    const table = (name: string) => this.#parameter(`${prefix}.embeddings.${name}.weight`);
    let hidden = embedding(table("word_embeddings"), ids).add(
      embedding(table("position_embeddings"), positions),
    );
    if (tokenTypes > 0) hidden = hidden.add(table("token_type_embeddings").select(0, 0));
    hidden = this.#norm(hidden, `${prefix}.embeddings.LayerNorm`);
    const biases = attentionBiases({ mask: mask.unsqueeze(1).unsqueeze(1) }, length, {
      dtype,
      device,
      heads: config.heads,
      keyValueHeads: config.heads,
    });
    for (let layer = 0; layer < layers; layer++) {
      const place = `${prefix}.${names.layers}.${layer}`;
      const attended = this.#dense(this.#attention(hidden, place, biases), `${place}.${names.attended}`);
      hidden = this.#norm(hidden.add(attended), `${place}.${names.attendedNorm}`);
      const expanded = this.#dense(hidden, `${place}.${names.expanded}`).gelu();
      const contracted = this.#dense(expanded, `${place}.${names.contracted}`);
      hidden = this.#norm(hidden.add(contracted), `${place}.${names.contractedNorm}`);
    }
    if (!this.hasHead) return hidden;
    const { dense, activation, output } = config.variant.head;
    const first = hidden.select(1, 0); // [B, D]: the token that represents the whole text
    return this.#dense(this.#dense(first, dense)[activation](), output);
  }

  dispose(): void {
    this.#releaseThreads();
    dispose([...this.parameters.values()]);
  }

  #attention(x: Tensor, place: string, biases: Tensor[]): Tensor {
    const { heads, hiddenSize } = this.config;
    const [batch, length] = x.shape as [number, number, number];
    const size = hiddenSize / heads;
    // [B, T, D] → [B, H, T, E]
    const split = (part: "query" | "key" | "value") =>
      this.#dense(x, `${place}.${this.config.variant.names[part]}`)
        .view([batch, length, heads, size])
        .transpose(1, 2);
    return attend(split("query"), split("key"), split("value"), biases, 1 / Math.sqrt(size));
  }

  /** x·Wᵀ + b with the named weight and bias. */
  #dense(x: Tensor, name: string): Tensor {
    return linear(x, this.#parameter(`${name}.weight`), this.#parameter(`${name}.bias`));
  }

  #norm(x: Tensor, name: string): Tensor {
    const { hiddenSize, normEpsilon } = this.config;
    return layerNorm(
      x,
      [hiddenSize],
      this.#parameter(`${name}.weight`),
      this.#parameter(`${name}.bias`),
      normEpsilon,
    );
  }

  #parameter(name: string): Tensor {
    const parameter = this.parameters.get(name);
    if (!parameter) throw new Error(`internal: Bert: no parameter ${name}`);
    return parameter;
  }
}

/**
 * The parameter that a checkpoint key means. Old checkpoints store the positions as a buffer; the oldest use TensorFlow's
 * names for norms. Keys of encoders may lack the prefix.
 */
function parameterName(key: string, prefix: string, hasHead: boolean): string | null {
  if (/(^|\.)embeddings\.position_ids$/.test(key)) return null;
  const name = key
    .replace(/LayerNorm\.gamma$/, "LayerNorm.weight")
    .replace(/LayerNorm\.beta$/, "LayerNorm.bias");
  return !hasHead && /^(embeddings|encoder|transformer)\./.test(name) ? `${prefix}.${name}` : name;
}

const families = (hasHead: boolean) =>
  [...VARIANTS].map(([modelType, { className, keys, prefix }]) => ({
    // An encoder may be read from a classifier's checkpoint: its head is ignored.
    architectures: [...(hasHead ? [] : [`${className}Model`]), `${className}ForSequenceClassification`],
    modelType,
    layersKey: keys.layers,
    parseConfig,
    parameterShapes: (config: BertConfig) => parameterShapes(config, hasHead),
    parameterName: (key: string) => parameterName(key, prefix, hasHead),
    create: (config: BertConfig, parameters: Map<string, Tensor>): SequenceClassifier =>
      new Bert(config, parameters, hasHead),
  }));

export const bertClassifiers = families(true);
export const bertEncoders = families(false);
