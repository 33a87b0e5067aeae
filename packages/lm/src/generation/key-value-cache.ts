import { AstraError } from "@astra-rl/base";
import {
  bytesOf,
  ColumnRuns,
  copyColumns,
  keep,
  zeros,
  type Device,
  type DType,
  type Tensor,
} from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";

/** Columns are reserved in multiples of this, so that a few more tokens do not reallocate a whole rectangle. */
const COLUMN_STEP = 16;
/**
 * A rectangle is split only if the following rows need at most this fraction of its width; this bounds the
 * number of rectangles.
 */
const MOST_OF_WIDTH = 2 / 3;

/** The model properties that a cache depends on. */
export interface CacheShape {
  layers: number;
  keyValueHeads: number;
  headDimension: number;
  dtype: DType;
  device: Device;
}

export function cacheShape(model: CausalLM): CacheShape {
  const { layers, keyValueHeads, headDimension } = model.config;
  return { layers, keyValueHeads, headDimension, dtype: model.computeDtype, device: model.device };
}

/** Adjacent rows with room for the same number of columns. */
interface Extent {
  first: number;
  count: number;
  capacity: number;
}

/** An extent with its buffers: keys and values per layer, each [count, G, capacity, E]. */
export interface Rectangle extends Extent {
  keys: Tensor[];
  values: Tensor[];
}

/**
 * Keys and values of prefilled and generated tokens: token i of a row is in column i of that row, in every
 * layer. The owner tracks how many columns of each row are valid.
 *
 * Rows are grouped into rectangles, so that one long row does not widen all others. Unwritten columns are 0:
 * a masked column must not turn a sum into NaN.
 *
 * The cache owns its buffers, outside every scope, until `dispose()`. It is written in place, so it cannot be
 * used with gradients.
 */
export class KeyValueCache {
  readonly shape: CacheShape;
  readonly #rectangles: Rectangle[];

  private constructor(shape: CacheShape, extents: readonly Extent[]) {
    this.shape = shape;
    this.#rectangles = extents.map((extent) => ({ ...extent, keys: [], values: [] }));
  }

  /**
   * @param capacities by row: columns to allocate; a row wider than those before it starts a new rectangle
   * @param leastSaving minimum saving in bytes for which a rectangle is split
   */
  static make(shape: CacheShape, capacities: readonly number[], leastSaving: number): KeyValueCache {
    const cache = new KeyValueCache(shape, divide(shape, capacities, leastSaving));
    for (let layer = 0; layer < shape.layers; layer += 1) cache.#makeLayer();
    return cache;
  }

  get rows(): number {
    return this.#rectangles.reduce((sum, { count }) => sum + count, 0);
  }

  get rectangles(): readonly Readonly<Rectangle>[] {
    return this.#rectangles;
  }

  /** Memory of the buffers; 0 after `dispose()`. */
  get bytes(): number {
    return this.#rectangles.reduce(
      (sum, { count, capacity, keys }) =>
        sum + (keys.length === 0 ? 0 : count * capacity * bytesPerColumn(this.shape)),
      0,
    );
  }

  /** Allocated columns, by row. */
  capacities(): number[] {
    return this.#rectangles.flatMap(({ count, capacity }) => Array.from({ length: count }, () => capacity));
  }

  /**
   * Makes room for at least this many columns per row. Rows keep their indices; a rectangle grows as a whole.
   *
   * @param most columns beyond which a rectangle does not grow in advance
   */
  reserve(columns: readonly number[], most = Infinity): void {
    for (const rectangle of this.#rectangles) {
      const { first, count, capacity } = rectangle;
      const needed = Math.max(...columns.slice(first, first + count));
      if (needed <= capacity) continue;
      rectangle.capacity = roundUp(Math.max(needed, Math.min(most, Math.ceil(capacity * 1.5))));
      const runs = new ColumnRuns(Array.from({ length: count }, (_, row) => [row, 0, row, 0, capacity]));
      try {
        for (const buffers of [rectangle.keys, rectangle.values]) {
          buffers.forEach((old, layer) => {
            const larger = this.#buffer(rectangle);
            copyColumns(larger, old, runs);
            old.dispose();
            buffers[layer] = larger;
          });
        }
      } finally {
        runs.dispose();
      }
    }
  }

  /** Copies the first columns of a row over those of another one in the same rectangle. */
  copyRow(from: number, to: number, columns: number): void {
    const isInside = (row: number, { first, count }: Extent) => row >= first && row < first + count;
    const rectangle = this.#rectangles.find((each) => isInside(from, each) && isInside(to, each));
    if (rectangle === undefined) {
      throw new AstraError(
        `internal: KeyValueCache.copyRow: rows ${from} and ${to} are not in the same rectangle`,
      );
    }
    const { first } = rectangle;
    const runs = new ColumnRuns([[to - first, 0, from - first, 0, columns]]);
    try {
      for (const buffer of [...rectangle.keys, ...rectangle.values]) copyColumns(buffer, buffer, runs);
    } finally {
      runs.dispose();
    }
  }

  /**
   * A new cache whose row i holds the first `lengths[i]` columns of row `rows[i]`. Rows may repeat: this is
   * how children inherit their parent's cache.
   *
   * @param capacities and `leastSaving`: see `make`
   * @param options.consume frees this cache layer by layer while copying; it cannot be used afterwards
   */
  select(
    rows: readonly number[],
    lengths: readonly number[],
    capacities: readonly number[],
    leastSaving: number,
    { consume = false }: { consume?: boolean } = {},
  ): KeyValueCache {
    if (this.#rectangles.some(({ keys }) => keys.length < this.shape.layers)) {
      throw new AstraError("internal: KeyValueCache.select: the cache was disposed of");
    }
    const selected = new KeyValueCache(this.shape, divide(this.shape, capacities, leastSaving));
    // For each pair of rectangles, the columns to copy from one to the other.
    const moves = selected.#rectangles.flatMap((to) =>
      this.#rectangles.flatMap((from) => {
        const runs = Array.from({ length: to.count }, (_, at) => at)
          .map((at) => [at, 0, rows[to.first + at]! - from.first, 0, lengths[to.first + at]!] as const)
          .filter(([, , row, , length]) => row >= 0 && row < from.count && length > 0);
        return runs.length === 0 ? [] : [{ to, from, runs: new ColumnRuns(runs) }];
      }),
    );
    try {
      for (let layer = 0; layer < this.shape.layers; layer += 1) {
        selected.#makeLayer();
        for (const { to, from, runs } of moves) {
          copyColumns(to.keys[layer]!, from.keys[layer]!, runs);
          copyColumns(to.values[layer]!, from.values[layer]!, runs);
        }
        if (!consume) continue;
        for (const { keys, values } of this.#rectangles)
          [keys, values].forEach((each) => each[layer]!.dispose());
      }
    } finally {
      for (const { runs } of moves) runs.dispose();
    }
    if (consume) this.dispose();
    return selected;
  }

  dispose(): void {
    for (const rectangle of this.#rectangles) {
      for (const buffer of [...rectangle.keys, ...rectangle.values]) buffer.dispose();
      rectangle.keys = [];
      rectangle.values = [];
    }
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #makeLayer(): void {
    for (const rectangle of this.#rectangles) {
      rectangle.keys.push(this.#buffer(rectangle));
      rectangle.values.push(this.#buffer(rectangle));
    }
  }

  #buffer({ count, capacity }: Extent): Tensor {
    const { keyValueHeads, headDimension, dtype, device } = this.shape;
    return keep(zeros([count, keyValueHeads, capacity, headDimension], { dtype, device }));
  }
}

/**
 * Divides rows into rectangles: a row much narrower than those before it starts a new one if that saves enough memory.
 */
function divide(shape: CacheShape, capacities: readonly number[], leastSaving: number): Extent[] {
  const extents: Extent[] = [];
  capacities.forEach((needed, row) => {
    const capacity = roundUp(needed);
    const last = extents.at(-1);
    if (last !== undefined && capacity <= last.capacity) {
      const saving = (last.capacity - capacity) * (capacities.length - row) * bytesPerColumn(shape);
      if (saving < leastSaving || capacity > last.capacity * MOST_OF_WIDTH) {
        last.count += 1;
        return;
      }
    }
    extents.push({ first: row, count: 1, capacity });
  });
  return extents;
}

/** Memory that a cache of these capacities would take, in bytes. */
export function cacheBytes(shape: CacheShape, capacities: readonly number[], leastSaving: number): number {
  const columns = divide(shape, capacities, leastSaving).reduce(
    (sum, { count, capacity }) => sum + count * capacity,
    0,
  );
  return columns * bytesPerColumn(shape);
}

function roundUp(columns: number): number {
  return Math.ceil(columns / COLUMN_STEP) * COLUMN_STEP;
}

/** Bytes per column of one row: keys and values of all layers. */
export function bytesPerColumn({ layers, keyValueHeads, headDimension, dtype }: CacheShape): number {
  return 2 * layers * keyValueHeads * headDimension * bytesOf(dtype);
}
