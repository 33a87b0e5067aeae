import { AstraError, bytesOf, copyColumns, keep, scope, tensor, zeros } from "@astra-rl/torch";
import type { Device, DType, Tensor } from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";

/** Columns are reserved in multiples of this, so that a few tokens more do not move a whole rectangle. */
const COLUMN_STEP = 16;
/** A rectangle is divided only where the rows behind need at most so much of its width: it would not end otherwise. */
const MOST_OF_WIDTH = 2 / 3;

/** What of a model its cache depends on. */
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

/** Neighbouring rows with room for equally many columns. */
interface Extent {
  first: number;
  count: number;
  capacity: number;
}

/** Where their keys and values lie: per layer two of [count, G, capacity, E]. */
export interface Rectangle extends Extent {
  keys: Tensor[];
  values: Tensor[];
}

/**
 * Keys and values of tokens that a model has read: token number i of a row lies in column i of that row, in every layer.
 * How many columns of a row mean something is the owner's knowledge.
 *
 * Rows lie in rectangles, so that a long row does not make all others as wide. What was never written is 0: a column that
 * is read and left out must not turn a sum into NaN.
 *
 * The cache owns its buffers, outside every scope, until `dispose()`. It is used without gradients: it is written in
 * place.
 */
export class KeyValueCache {
  readonly shape: CacheShape;
  readonly #rectangles: Rectangle[];

  private constructor(shape: CacheShape, extents: readonly Extent[]) {
    this.shape = shape;
    this.#rectangles = extents.map((extent) => ({ ...extent, keys: [], values: [] }));
  }

  /**
   * @param capacities by row: columns to make room for; rows share rectangles where these descend
   * @param leastSaving bytes for which a rectangle is divided
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

  /** Memory held by the buffers; 0 after `dispose()`. */
  get bytes(): number {
    return this.#rectangles.reduce(
      (sum, { count, capacity, keys }) =>
        sum + (keys.length === 0 ? 0 : count * capacity * bytesPerColumn(this.shape)),
      0,
    );
  }

  /** Columns that there is room for, by row. */
  capacities(): number[] {
    return this.#rectangles.flatMap(({ count, capacity }) => Array.from({ length: count }, () => capacity));
  }

  /** Makes room for so many columns of each row. Rows stay where they are; a rectangle grows as a whole. */
  reserve(columns: readonly number[]): void {
    for (const rectangle of this.#rectangles) {
      const { first, count, capacity } = rectangle;
      const needed = Math.max(...columns.slice(first, first + count));
      if (needed <= capacity) continue;
      rectangle.capacity = roundUp(Math.max(needed, Math.ceil(capacity * 1.5)));
      scope(() => {
        const runs = runsTensor(Array.from({ length: count }, (_, row) => [row, 0, row, 0, capacity]));
        for (const buffers of [rectangle.keys, rectangle.values]) {
          buffers.forEach((old, layer) => {
            const larger = this.#buffer(rectangle);
            copyColumns(larger, old, runs);
            old.dispose();
            buffers[layer] = larger;
          });
        }
      });
    }
  }

  /**
   * A new cache whose row i holds the first `lengths[i]` columns of row `rows[i]`. Rows may repeat: this is how children
   * take over what their parent has read.
   *
   * @param capacities and `leastSaving` as `make` takes them
   * @param options.consume this cache is of no use any more: it is freed layer by layer, as each is taken over
   */
  select(
    rows: readonly number[],
    lengths: readonly number[],
    capacities: readonly number[],
    leastSaving: number,
    { consume = false }: { consume?: boolean } = {},
  ): KeyValueCache {
    if (this.#rectangles.some(({ keys }) => keys.length < this.shape.layers)) {
      throw new AstraError("internal: KeyValueCache.select: the cache was given up");
    }
    const selected = new KeyValueCache(this.shape, divide(this.shape, capacities, leastSaving));
    scope(() => {
      // For each pair of rectangles, what moves from the one to the other.
      const moves = selected.#rectangles.flatMap((to) =>
        this.#rectangles.flatMap((from) => {
          const runs = Array.from({ length: to.count }, (_, at) => at)
            .map((at) => [at, 0, rows[to.first + at]! - from.first, 0, lengths[to.first + at]!] as const)
            .filter(([, , row, , length]) => row >= 0 && row < from.count && length > 0);
          return runs.length === 0 ? [] : [{ to, from, runs: runsTensor(runs) }];
        }),
      );
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
    });
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
 * Rectangles for rows: a row that needs far less than those before it begins one of its own, with all that follow, where
 * that saves memory enough.
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

/** Bytes that a cache of such rows takes. */
export function cacheBytes(shape: CacheShape, capacities: readonly number[], leastSaving: number): number {
  const columns = divide(shape, capacities, leastSaving).reduce(
    (sum, { count, capacity }) => sum + count * capacity,
    0,
  );
  return columns * bytesPerColumn(shape);
}

/** Runs of columns as copyColumns takes them: [to row, to column, from row, from column, count]. */
export function runsTensor(runs: readonly (readonly number[])[]): Tensor {
  return tensor(Int32Array.from(runs.flat()), { dtype: "int32", shape: [runs.length, 5] });
}

function roundUp(columns: number): number {
  return Math.ceil(columns / COLUMN_STEP) * COLUMN_STEP;
}

/** Bytes that one column of one row takes: keys and values of all layers. */
function bytesPerColumn({ layers, keyValueHeads, headDimension, dtype }: CacheShape): number {
  return 2 * layers * keyValueHeads * headDimension * bytesOf(dtype);
}
