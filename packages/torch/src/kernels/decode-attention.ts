import { addon } from "../native.js";
import { isTensor, requireTensor, wrap } from "../operator-call.js";
import { tensor } from "../factories.js";
import { isGradEnabled, noGrad, scope } from "../scope.js";
import type { Tensor } from "../tensor.js";

function handle(where: string, name: string, value: unknown): number {
  return requireTensor(where, name, value).handle;
}

/**
 * Copies columns of keys or values between caches, or from new tokens into a cache. Not differentiable.
 *
 * @param to [R, H, C, E], contiguous; written in place
 * @param from [r, H, c, E], of any type and layout
 * @param runs int32 [n, 5] on the CPU: row written, first column written, row read, first column read, number of columns
 * @throws TorchError if a run is out of range
 */
export function copyColumns(to: Tensor, from: Tensor, runs: Tensor): void {
  const where = "copyColumns";
  if (addon().copyColumns(handle(where, "to", to), handle(where, "from", from), handle(where, "runs", runs)))
    return;
  const [heads, size] = [to.size(1), to.size(3)];
  const [written, read]: [number[], number[]] = [[], []];
  for (const [toRow, toColumn, fromRow, fromColumn, count] of runs.toArray() as [
    number,
    number,
    number,
    number,
    number,
  ][]) {
    for (let head = 0; head < heads; head += 1) {
      for (let column = 0; column < count; column += 1) {
        written.push((toRow * heads + head) * to.size(2) + toColumn + column);
        read.push((fromRow * heads + head) * from.size(2) + fromColumn + column);
      }
    }
  }
  if (written.length === 0) return;
  noGrad(() =>
    scope(() => {
      const [targets, sources] = [written, read].map((places) =>
        tensor(Int32Array.from(places), { dtype: "int64", device: to.device }),
      );
      const taken = from.reshape([-1, size]).indexSelect(0, sources!).to(to.dtype);
      to.view([-1, size]).indexCopy_(0, targets!, taken);
    }),
  );
}

/** Columns whose keys and values are the same for several rows, so that they are read once for all of them. */
export interface SharedColumns {
  /** int32 [B]: every row once, with rows that share columns adjacent. */
  order: Tensor;
  /**
   * int32 [pieces, 5]: row whose keys and values are read; first column; column after the last, or −1 for that row's
   * end; index in `order` of the first row that uses the piece; number of those rows. A piece from column 0 starts a
   * cluster of rows; within a cluster, the pieces of each row are consecutive and without gaps.
   */
  pieces: Tensor;
}

/**
 * Attention of one new token per row, softmax(q kᵀ · scale) v over the row's own range of columns, in one pass over
 * bfloat16 or float32 keys and values on the CPU, with scores and sums in float32. Columns outside the ranges are not
 * read.
 *
 * @param query [B, H, 1, E]
 * @param key [R, G, C, E], G divides H: query head h reads key/value head ⌊h / (H/G)⌋
 * @param value [R, G, C, E]
 * @param ranges int32 [B, 3] on the CPU: row of the keys, first column, column after the last
 * @param shared affects only speed, provided that the columns really are the same
 * @returns [B, 1, H·E], or null if the kernel does not apply: gradients, another dtype or device, other shapes
 * @throws TorchError if a range is empty or out of range
 */
export function decodeAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  ranges: Tensor,
  scale: number,
  shared: SharedColumns | null = null,
): Tensor | null {
  const where = "decodeAttention";
  if (isGradEnabled() && [query, key, value].some((each) => isTensor(each) && each.requiresGrad)) return null;
  const result = addon().decodeAttention(
    handle(where, "query", query),
    handle(where, "key", key),
    handle(where, "value", value),
    handle(where, "ranges", ranges),
    scale,
    shared === null ? null : handle(where, "shared.order", shared.order),
    shared === null ? null : handle(where, "shared.pieces", shared.pieces),
  );
  return result === null ? null : wrap(result);
}
