/** The least time that a machine of these rates takes for what a model is asked: what figures are a share of. */
import { bytesOf } from "@astra-rl/torch";
import type { CausalLM } from "@astra-rl/lm";
import type { Roofline } from "./measure.js";

type Computed = "float32" | "bfloat16";

/** What of a model bounds its speed. */
export interface ModelSizes {
  /** Weights that every token passes through, without the embedding tables. */
  body: number;
  /** Those of them behind the last layer's attention: for tokens whose states are wanted. */
  last: number;
  /** Weights of the output projection. */
  head: number;
  all: number;
  /** Numbers in the keys and values of one token. */
  cached: number;
  contextLength: number;
}

export function sizesOf(model: CausalLM): ModelSizes {
  const { vocabSize, hiddenSize, layers, keyValueHeads, headDimension, contextLength } = model.config;
  let [body, last, all] = [0, 0, 0];
  for (const [name, parameter] of model.namedParameters()) {
    all += parameter.numel();
    if (parameter.ndim !== 2 || /(wte|wpe|embed_tokens|lm_head)/.test(name)) continue;
    body += parameter.numel();
    if (name.includes(`.${layers - 1}.`) && !/\.(c_attn|[qkv]_proj)\./.test(name)) last += parameter.numel();
  }
  const cached = 2 * layers * keyValueHeads * headDimension;
  return { body, last, head: vocabSize * hiddenSize, all, cached, contextLength };
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

/** Seconds of reading texts at the rate of products, where the states of so many of the tokens are wanted. */
export function readBound(
  tokens: number,
  wanted: number,
  { body, last }: ModelSizes,
  dtype: Computed,
  roofline: Roofline,
): number {
  return (2 * (body * tokens - last * (tokens - wanted))) / roofline.gemm[dtype];
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
  const read = openers.reduce((sum, length) => sum + within(length), 0);
  let heard = 0;
  let seconds = 0;
  for (let level = 1; level <= depth; level += 1) {
    const rows = openers.length * width ** level;
    const lengths = openers.map((length) => within(length + newTokens * (2 * level - 1)));
    const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
    seconds += 2 * newTokens * decodeBound(rows, mean, sizes, dtype, roofline);
    heard += rows * newTokens; // what the one said the other reads
  }
  return seconds + readBound(read + heard, heard, sizes, dtype, roofline);
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
  { body, last, head, all }: ModelSizes,
  types: { rollouts: Computed; updates: Computed },
  roofline: Roofline,
): number {
  const bytes = 7 * 4 + (types.rollouts === "bfloat16" ? 6 : 0);
  return (
    (6 * (body * read - last * (read - scored) + head * scored)) / roofline.gemm[types.updates] +
    (updates * all * bytes) / roofline.copy
  );
}
