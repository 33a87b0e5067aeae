import { TorchError } from "@astra-rl/base";
import { addon } from "../native.js";
import { isTensor, requireTensor, wrap } from "../operator-call.js";
import { tensor } from "../factories.js";
import { isGradEnabled, keep, noGrad, scope } from "../scope.js";
import type { Tensor } from "../tensor.js";

function handle(where: string, name: string, value: unknown): number {
  return requireTensor(where, name, value).handle;
}

/** Which columns to copy where, for any number of copies between tensors, such as those of all layers. */
export class ColumnRuns {
  /** int32 [n, 5] on the CPU, as given. */
  readonly table: Tensor;
  /** The same as rows of [R·H·C, E] and [r·h·c, E], where libtorch's operators copy: int64, for tensors like the last. */
  #indices: { like: string; targets: Tensor; sources: Tensor } | null = null;

  /** @param runs each: row written, first column written, row read, first column read, number of columns */
  constructor(readonly runs: readonly (readonly number[])[]) {
    const odd = runs.find((run) => run.length !== 5);
    if (odd !== undefined) throw new TorchError(`ColumnRuns: a run has 5 numbers, got ${odd.length}`);
    this.table = keep(tensor(Int32Array.from(runs.flat()), { dtype: "int32", shape: [runs.length, 5] }));
  }

  /** Made once for all copies between tensors of these shapes: on a GPU, each transfer waits for the device. */
  indices(to: Tensor, from: Tensor): { targets: Tensor; sources: Tensor } {
    const [, heads, toColumns] = to.shape as [number, number, number];
    const fromColumns = from.size(2);
    const like = [heads, toColumns, fromColumns, to.device].join(" ");
    if (this.#indices?.like === like) return this.#indices;
    this.#forget();
    const [written, read]: [number[], number[]] = [[], []];
    for (const [toRow, toColumn, fromRow, fromColumn, count] of this.runs as [
      number,
      number,
      number,
      number,
      number,
    ][]) {
      for (let head = 0; head < heads; head += 1) {
        for (let column = 0; column < count; column += 1) {
          written.push((toRow * heads + head) * toColumns + toColumn + column);
          read.push((fromRow * heads + head) * fromColumns + fromColumn + column);
        }
      }
    }
    const [targets, sources] = [written, read].map((places) =>
      keep(tensor(Int32Array.from(places), { dtype: "int64", device: to.device })),
    ) as [Tensor, Tensor];
    this.#indices = { like, targets, sources };
    return this.#indices;
  }

  dispose(): void {
    this.#forget();
    this.table.dispose();
  }

  #forget(): void {
    this.#indices?.targets.dispose();
    this.#indices?.sources.dispose();
    this.#indices = null;
  }
}

/**
 * Copies columns of keys or values between caches, or from new tokens into a cache. Not differentiable.
 *
 * @param to [R, H, C, E], contiguous; written in place
 * @param from [r, H, c, E], of any type and layout
 * @throws TorchError if a run is out of range
 */
export function copyColumns(to: Tensor, from: Tensor, runs: ColumnRuns): void {
  const where = "copyColumns";
  const table = handle(where, "runs", runs.table);
  if (addon().copyColumns(handle(where, "to", to), handle(where, "from", from), table)) return;
  if (runs.runs.every(([, , , , count]) => count === 0)) return;
  noGrad(() =>
    scope(() => {
      const { targets, sources } = runs.indices(to, from);
      const taken = from
        .reshape([-1, from.size(3)])
        .indexSelect(0, sources)
        .to(to.dtype);
      to.view([-1, to.size(3)]).indexCopy_(0, targets, taken);
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
