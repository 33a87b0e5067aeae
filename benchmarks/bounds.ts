/** The least time that a machine of these rates takes for what a model is asked: what figures are a share of. */
import { bytesOf } from "@astra-rl/torch";
import type { CausalLM } from "@astra-rl/lm";
import type { Roofline } from "./measure.js";

type Computed = "float32" | "bfloat16";

/** What of a model bounds its speed. */
export interface ModelSizes {
  /** Weights that every token passes through, without the embedding tables. */
  body: number;
  /** Weights of the output projection. */
  head: number;
  all: number;
  /** Numbers in the keys and values of one token. */
  cached: number;
  contextLength: number;
}

export function sizesOf(model: CausalLM): ModelSizes {
  const { vocabSize, hiddenSize, layers, keyValueHeads, headDimension, contextLength } = model.config;
  let body = 0;
  let all = 0;
  for (const [name, parameter] of model.namedParameters()) {
    all += parameter.numel();
    if (parameter.ndim === 2 && !/(wte|wpe|embed_tokens|lm_head)/.test(name)) body += parameter.numel();
  }
  const cached = 2 * layers * keyValueHeads * headDimension;
  return { body, head: vocabSize * hiddenSize, all, cached, contextLength };
}

/** Seconds of one step of decoding: weights and each row's cache are read once, and products run at their rate. */
export function decodeBound(
  rows: number,
  columns: number,
  { body, head, cached }: ModelSizes,
  dtype: Computed,
  roofline: Roofline,
): number {
  const bytes = bytesOf(dtype) * (body + head + rows * columns * cached);
  return Math.max(bytes / roofline.read, (2 * rows * (body + head)) / roofline.gemm[dtype]);
}

/** Seconds of reading texts at the rate of products. */
export function readBound(tokens: number, { body }: ModelSizes, dtype: Computed, roofline: Roofline): number {
  return (2 * body * tokens) / roofline.gemm[dtype];
}

/**
 * Seconds of growing trees of `depth` turns from openers of so many tokens, where every utterance has all its tokens and the
 * opener is read once.
 */
export function rolloutBound(
  openers: readonly number[],
  { width, depth, newTokens }: { width: number; depth: number; newTokens: number },
  sizes: ModelSizes,
  dtype: Computed,
  roofline: Roofline,
): number {
  const within = (length: number) => Math.min(length, sizes.contextLength);
  let tokens = openers.reduce((sum, length) => sum + within(length), 0);
  let seconds = 0;
  for (let level = 1; level <= depth; level += 1) {
    const rows = openers.length * width ** level;
    const lengths = openers.map((length) => within(length + newTokens * (2 * level - 1)));
    const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
    seconds += 2 * newTokens * decodeBound(rows, mean, sizes, dtype, roofline);
    tokens += rows * newTokens; // what the one said the other reads
  }
  return seconds + readBound(tokens, sizes, dtype, roofline);
}

/**
 * Seconds of training a model: forward, and twice as much backward; at each update AdamW reads p, g, m, v and writes p, m, v,
 * and a copy in 16 bits, where rollouts have one, reads 4 bytes and writes 2.
 *
 * @param read tokens that pass through the model
 * @param scored tokens whose logits are computed
 */
export function updateBound(
  { read, scored, updates }: { read: number; scored: number; updates: number },
  { body, head, all }: ModelSizes,
  types: { rollouts: Computed; updates: Computed },
  roofline: Roofline,
): number {
  const bytes = 7 * 4 + (types.rollouts === "bfloat16" ? 6 : 0);
  return (
    (6 * (body * read + head * scored)) / roofline.gemm[types.updates] +
    (updates * all * bytes) / roofline.copy
  );
}
