import type { ModelConfig } from "../causal-lm.js";
import type { RotarySettings } from "./rotary.js";

/** A decoder: attention and feed-forward blocks on a residual stream. Families differ only in their configuration. */
export interface DecoderConfig extends ModelConfig {
  readonly modules: DecoderModules;
  readonly intermediateSize: number;
  /** Hugging Face's name of the activation in the feed-forward block. */
  readonly activation: string;
  readonly normEpsilon: number;
  /** Whether norms have biases: layer norms rather than RMS norms. */
  readonly normBias: boolean;
  /** Whether the weights of norms are stored as differences from one. */
  readonly unitOffsetNorms: boolean;
  /** Factor of the token embeddings. */
  readonly embeddingScale: number;
  /** Factor of what a block adds to the residual stream. */
  readonly residualScale: number;
  /** Divisor of the logits. */
  readonly logitDivisor: number;
  /** null = learned positions. */
  readonly rotary: RotarySettings | null;
  /** Of the layers with a sliding window, where they have their own; null = `rotary`. */
  readonly slidingRotary: RotarySettings | null;
  /** Whether a layer has rotary positions, rather than none (NoPE; Kazemnejad et al. 2023, arXiv 2305.19466). */
  readonly rotates: (layer: number) => boolean;
  /** Whether a layer attends only to the last `slidingWindow` tokens. */
  readonly slides: (layer: number) => boolean;
  /** Factor of a layer's attention scores. */
  readonly attentionScale: (layer: number) => number;
  /** What the norms of queries and keys, if there are any, are over: each head, or all heads together. */
  readonly queryKeyNorm: "head" | "projection";
  /** What a fused projection gives: all queries, keys and values in turn, or query, key and value of each head in turn. */
  readonly fusion: "by part" | "by head";
  /** Whether the feed-forward block reads the layer's input rather than the sum of it and the attention. */
  readonly parallelResidual: boolean;
  /** Biases on the query, key and value projections. */
  readonly queryKeyValueBias: boolean;
  /** Bias on the attention's output projection. */
  readonly outputBias: boolean;
  /** Biases in the feed-forward block. */
  readonly feedForwardBias: boolean;
  /** Whether projections are stored [in, out] (GPT-2 alone) rather than [out, in]. */
  readonly projectionsTransposed: boolean;
  /** Divisor of the deviation of initial weights in projections into the residual stream. */
  readonly residualDivisor: number;
}

/** The names of a decoder's modules in the checkpoint. */
export interface DecoderModules {
  readonly embedding: string;
  /** Embedding of learned positions; absent if there are none. */
  readonly positions?: string;
  /** Prefix of the layers, before their numbers. */
  readonly layers: string;
  /** Within a layer, in the order of the checkpoint. */
  readonly layer: LayerModules;
  /** The norm after the last layer. */
  readonly norm: string;
  /** Output projection, unless it is the embedding. */
  readonly output: string;
}

/**
 * A layer's modules: what is absent is not computed. Norms are before attention and feed-forward block, behind them
 * (before their outputs are added to the residual stream), or both; those of queries and keys are before rotation.
 */
export type LayerModules = Readonly<
  Record<"attentionOutput" | "down", string> & Partial<Record<OptionalRole, string>>
>;

type OptionalRole =
  | "attentionNorm"
  | "queryKeyValue"
  | "query"
  | "key"
  | "value"
  | "queryNorm"
  | "keyNorm"
  | "attentionOutputNorm"
  | "feedForwardNorm"
  | "gateUp"
  | "gate"
  | "up"
  | "feedForwardOutputNorm";

/** Name and shape of every parameter, in the order of the checkpoint; tied weights only once. */
export function parameterShapes(config: DecoderConfig): Map<string, readonly number[]> {
  const { modules, hiddenSize, headDimension, intermediateSize, vocabSize, queryKeyNorm } = config;
  const { queryKeyValueBias, feedForwardBias } = config;
  const queries = config.heads * headDimension;
  const keys = config.keyValueHeads * headDimension;
  const shapes = new Map<string, readonly number[]>();
  const norm = (size: number) => (name: string) => {
    shapes.set(`${name}.weight`, [size]);
    if (config.normBias) shapes.set(`${name}.bias`, [size]);
  };
  const projection = (output: number, input: number, bias: boolean) => (name: string) => {
    shapes.set(`${name}.weight`, config.projectionsTransposed ? [input, output] : [output, input]);
    if (bias) shapes.set(`${name}.bias`, [output]);
  };
  const add: Record<keyof LayerModules, (name: string) => void> = {
    attentionNorm: norm(hiddenSize),
    queryKeyValue: projection(queries + 2 * keys, hiddenSize, queryKeyValueBias),
    query: projection(queries, hiddenSize, queryKeyValueBias),
    key: projection(keys, hiddenSize, queryKeyValueBias),
    value: projection(keys, hiddenSize, queryKeyValueBias),
    attentionOutput: projection(hiddenSize, queries, config.outputBias),
    queryNorm: norm(queryKeyNorm === "head" ? headDimension : queries),
    keyNorm: norm(queryKeyNorm === "head" ? headDimension : keys),
    attentionOutputNorm: norm(hiddenSize),
    feedForwardNorm: norm(hiddenSize),
    gateUp: projection(2 * intermediateSize, hiddenSize, feedForwardBias),
    gate: projection(intermediateSize, hiddenSize, feedForwardBias),
    up: projection(intermediateSize, hiddenSize, feedForwardBias),
    down: projection(hiddenSize, intermediateSize, feedForwardBias),
    feedForwardOutputNorm: norm(hiddenSize),
  };
  const embedding = (name: string, rows: number) => shapes.set(`${name}.weight`, [rows, hiddenSize]);
  embedding(modules.embedding, vocabSize);
  if (modules.positions !== undefined) embedding(modules.positions, config.contextLength);
  const roles = Object.entries(modules.layer) as [keyof LayerModules, string][];
  for (let layer = 0; layer < config.layers; layer++) {
    for (const [role, name] of roles) add[role](`${modules.layers}.${layer}.${name}`);
  }
  norm(hiddenSize)(modules.norm);
  if (!config.tiedEmbeddings) embedding(modules.output, vocabSize);
  return shapes;
}
