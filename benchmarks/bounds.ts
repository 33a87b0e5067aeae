/** The minimum time of a model's work on a machine with these rates: the reference of shares. */
import { bytesOf } from "@astra-rl/torch";
import type { CausalLM } from "@astra-rl/lm";
import type { Roofline } from "./measure.js";

type Computed = "float32" | "bfloat16";

/** Sizes of a model that bound its speed. */
export interface ModelSizes {
  /** Weights that every token passes through, without the embedding tables. */
  body: number;
  /** Those of them after the last layer's attention: for tokens whose states are requested. */
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

/** Seconds of prefilling texts at the rate of products, with a number of tokens whose states are requested. */
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
 * Seconds of growing trees of `depth` turns from openers of a length, if every message has its maximum length and the
 * opener is prefilled once.
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
    heard += rows * newTokens; // each model prefills the other's messages
  }
  return seconds + readBound(read + heard, heard, sizes, dtype, roofline);
}

/**
 * Seconds of training a model: forward, and twice as much backward; at each update AdamW reads p, g, m, v and writes p, m, v,
 * and a 16-bit copy for rollouts, if any, reads 4 bytes and writes 2.
 *
 * @param read tokens processed by the model
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
