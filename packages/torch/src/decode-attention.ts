import { addon } from "./native.js";
import { requireTensor, wrap } from "./operator-call.js";
import { isGradEnabled } from "./scope.js";
import type { Tensor } from "./tensor.js";

function handle(where: string, name: string, value: unknown): number {
  return requireTensor(where, name, value).handle;
}

/**
 * Writes keys or values of new tokens into a cache, and gives what is to be attended to: one call instead of one for each
 * view. Without gradients.
 *
 * @param buffer [R, H, C, E]
 * @param added [r, H, T, E], of any type and layout
 * @param row first of the rows that are written
 * @param column first of the columns that are written
 * @returns those rows and all columns up to the last written one, [r, H, column + T, E], as a view of the buffer
 * @throws TorchError where it does not fit
 */
export function appendColumns(buffer: Tensor, added: Tensor, row: number, column: number): Tensor {
  const where = "appendColumns";
  return wrap(
    addon().appendColumns(handle(where, "buffer", buffer), handle(where, "added", added), row, column),
  );
}

/** Which columns of which rows hold the same keys and values, so that they are read once for all of them. */
export interface SharedColumns {
  /** int32 [B]: every row once, rows that share columns beside each other. */
  order: Tensor;
  /**
   * int32 [pieces, 5]: row whose keys and values are read; first column; column after the last, a multiple of 4, or −1
   * for the end; place in `order` of the first row that it is read for; number of those rows. A piece from column 0
   * begins a cluster of rows; within one, the pieces that concern a row follow one another without a gap.
   */
  pieces: Tensor;
}

/**
 * Attention of one new token a row, softmax(q kᵀ · scale + bias) v, in one pass over bfloat16 or float32 keys and
 * values on the CPU, with scores and sums in float32.
 *
 * @param query [B, H, 1, E]
 * @param key [B, G, S, E], G divides H: query head h reads key/value head ⌊h / (H/G)⌋
 * @param value [B, G, S, E]
 * @param bias [B·G or 1, H/G or 1, S], added to the scores
 * @param shared changes nothing but the time, where what it says is true
 * @returns [B, 1, H·E], or null where this is not the case: gradients, another type or device, other shapes
 */
export function decodeAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  bias: Tensor | null,
  scale: number,
  shared: SharedColumns | null = null,
): Tensor | null {
  const where = "decodeAttention";
  const result = addon().decodeAttention(
    isGradEnabled(),
    handle(where, "query", query),
    handle(where, "key", key),
    handle(where, "value", value),
    bias === null ? null : handle(where, "bias", bias),
    scale,
    shared === null ? null : handle(where, "shared.order", shared.order),
    shared === null ? null : handle(where, "shared.pieces", shared.pieces),
  );
  return result === null ? null : wrap(result);
}
