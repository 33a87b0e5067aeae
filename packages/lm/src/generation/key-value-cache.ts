import {
  AstraError,
  appendColumns,
  arange,
  bytesOf,
  dispose,
  keep,
  scope,
  tensor,
  zeros,
} from "@astra-rl/torch";
import type { Device, DType, SharedColumns, Tensor } from "@astra-rl/torch";
import type { AttentionCache, CausalLM, ModelConfig } from "../causal-lm.js";

/** Columns are reserved in multiples of this, so that a few tokens more do not move the whole cache. */
const COLUMN_STEP = 16;

/** The buffers behind a cache and all its slices: per layer two of [rows, H, capacity, E]. */
interface Buffers {
  keys: Tensor[];
  values: Tensor[];
  capacity: number;
}

export interface KeyValueCacheOptions {
  layers: number;
  /** Rows to make room for; absent = as many as the first append brings. */
  rows?: number;
  /** Columns to make room for at once; the cache grows past it when it must. */
  capacity?: number;
}

/**
 * Keys and values of tokens that a model has read: for each layer and row, columns 0 … `columns` − 1.
 *
 * Columns are shared by all rows; which of them mean something for a row is the owner's knowledge, told to the model
 * through the attention mask. What was never written is 0, so that a masked column can never turn a sum into NaN.
 *
 * The cache owns its buffers, outside every scope, until `dispose()`. It is used without gradients: it is written in
 * place.
 */
export class KeyValueCache implements AttentionCache {
  readonly layers: number;
  #buffers: Buffers;
  #rows: number | null;
  readonly #first: number;
  /** A slice's buffers belong to the cache that it was cut from. */
  readonly #isSlice: boolean;
  /** Columns held, by layer: within a forward pass the layers differ. */
  readonly #lengths: number[];
  #shared: SharedColumns | null = null;

  constructor(options: KeyValueCacheOptions, slice?: { buffers: Buffers; first: number; columns: number }) {
    const { layers, rows = null, capacity = 0 } = options;
    this.layers = layers;
    this.#rows = rows;
    this.#buffers = slice?.buffers ?? { keys: [], values: [], capacity: roundUp(capacity) };
    this.#first = slice?.first ?? 0;
    this.#isSlice = slice !== undefined;
    this.#lengths = Array.from({ length: layers }, () => slice?.columns ?? 0);
  }

  /** A cache for a model with its buffers made at once, so that slices of it can be filled one after the other. */
  static forModel(model: CausalLM, rows: number, capacity: number): KeyValueCache {
    const { layers, keyValueHeads, headDimension } = model.config;
    const cache = new KeyValueCache({ layers, rows, capacity });
    cache.#make([rows, keyValueHeads, cache.capacity, headDimension], model.computeDtype, model.device);
    return cache;
  }

  /** 0 before the first append where none were named. */
  get rows(): number {
    return this.#rows ?? 0;
  }

  get columns(): number {
    return this.#lengths[this.layers - 1]!;
  }

  get shared(): SharedColumns | null {
    return this.#shared;
  }

  /** Says which columns several rows have from one ancestor. They become this cache's own; null forgets them. */
  share(columns: SharedColumns | null): void {
    dispose(this.#shared);
    this.#shared = columns === null ? null : keep(columns);
  }

  /** Columns that fit before the buffers must grow. */
  get capacity(): number {
    return this.#buffers.capacity;
  }

  /** Memory held by the buffers; 0 before the first append and after `dispose()`. */
  get bytes(): number {
    const { keys, values } = this.#buffers;
    return [...keys, ...values].reduce((sum, buffer) => sum + buffer.numel() * bytesOf(buffer.dtype), 0);
  }

  append(layer: number, key: Tensor, value: Tensor): [key: Tensor, value: Tensor] {
    const [count, , added] = key.shape as [number, number, number, number];
    this.#rows ??= count;
    if (count !== this.#rows || layer < 0 || layer >= this.layers) {
      throw new AstraError(
        `internal: KeyValueCache.append: ${this.#rows} rows and ${this.layers} layers, ` +
          `got ${count} rows for layer ${layer}`,
      );
    }
    const from = this.#lengths[layer]!;
    const to = from + added;
    this.#ensure(to, key);
    this.#lengths[layer] = to;
    return [
      appendColumns(this.#buffers.keys[layer]!, key, this.#first, from),
      appendColumns(this.#buffers.values[layer]!, value, this.#first, from),
    ];
  }

  /** Makes room for a number of columns, so that appending them moves nothing. */
  reserve(columns: number): void {
    const { keys, capacity } = this.#buffers;
    if (columns <= capacity) return;
    if (keys.length === 0) this.#buffers.capacity = roundUp(columns);
    else this.#grow(roundUp(columns));
  }

  /**
   * Some neighbouring rows as a cache of their own over the same buffers, beginning with this cache's columns.
   * What it appends lies in this cache too; `columns` here follows only through `setColumns`.
   */
  slice(first: number, count: number): KeyValueCache {
    if (this.#rows === null || first < 0 || first + count > this.#rows) {
      throw new AstraError(`internal: KeyValueCache.slice: rows ${first} … ${first + count} of ${this.rows}`);
    }
    this.#allocated("slice");
    return new KeyValueCache(
      { layers: this.layers, rows: count },
      { buffers: this.#buffers, first: this.#first + first, columns: this.columns },
    );
  }

  /** Declares how many columns count: fewer forgets the last ones, more takes in what slices have appended. */
  setColumns(columns: number): void {
    if (columns > this.capacity) {
      throw new AstraError(`internal: KeyValueCache.setColumns: ${columns} of ${this.capacity}`);
    }
    this.#lengths.fill(columns);
  }

  /** Row `from[i]` moves to `to[i]`, all at once; the two lists hold the same rows in another order. */
  move(to: readonly number[], from: readonly number[]): void {
    if (to.length === 0) return;
    scope(() => {
      const { keys, values } = this.#buffers;
      const { device } = this.#allocated("move");
      const target = indices(to, device);
      const source = indices(from, device);
      for (const buffer of [...keys, ...values]) {
        const columns = buffer.narrow(2, 0, this.columns);
        columns.indexCopy_(0, target, columns.indexSelect(0, source));
      }
    });
  }

  /**
   * A new cache that holds, for row i, row `rows[i]`'s columns `columns[i]`, moved together at the left. Rows may
   * repeat: this is how children take over what their parent has read.
   *
   * @param columns ascending; absent = all columns
   * @param options.capacity room in the new cache
   * @param options.consume this cache is of no use any more: it is freed layer by layer, as each is taken over
   */
  select(
    rows: readonly number[],
    columns?: readonly (readonly number[])[],
    { capacity = 0, consume = false }: { capacity?: number; consume?: boolean } = {},
  ): KeyValueCache {
    const lists = columns ?? rows.map(() => Array.from({ length: this.columns }, (_, column) => column));
    const length = lists.reduce((longest, list) => Math.max(longest, list.length), 0);
    const selected = new KeyValueCache({
      layers: this.layers,
      rows: rows.length,
      capacity: Math.max(length, capacity),
    });
    const { keys, values, capacity: oldCapacity } = this.#buffers;
    if (keys.length === 0) return selected;
    const wide = selected.capacity;
    scope(() => {
      const [, heads, , size] = keys[0]!.shape as [number, number, number, number];
      const { device } = keys[0]!;
      // Past a row's own columns its column 0 stands in: finite, and never attended to.
      const wanted = new Int32Array(rows.length * wide);
      lists.forEach((list, row) => wanted.set(list, row * wide));
      const base = Int32Array.from(rows, (row) => (this.#first + row) * heads);
      // Flat index of each wanted [E] vector in [rows · H · capacity, E]: ((row · H) + head) · capacity + column.
      const flat = tensor(base, { device })
        .to("int64")
        .view([rows.length, 1, 1])
        .add(arange(0, heads, 1, { dtype: "int64", device }).view([1, heads, 1]))
        .mul(oldCapacity)
        .add(tensor(wanted, { device }).view([rows.length, 1, wide]))
        .reshape([-1]);
      const gather = (buffer: Tensor) => {
        const taken = scope(() =>
          buffer.view([-1, size]).indexSelect(0, flat).view([rows.length, heads, wide, size]),
        );
        if (consume) buffer.dispose();
        return keep(taken);
      };
      selected.#buffers = { keys: keys.map(gather), values: values.map(gather), capacity: wide };
    });
    selected.setColumns(length);
    if (consume) this.dispose();
    return selected;
  }

  /** Writes the columns of another cache over columns 0 … of some rows here: row i of it goes to `rows[i]`. */
  place(rows: readonly number[], source: KeyValueCache): void {
    const { columns } = source;
    if (columns === 0) return;
    const like = source.#allocated("place");
    this.#ensure(columns, like);
    scope(() => {
      const target = indices(rows, like.device);
      const write = (into: Tensor, from: Tensor) =>
        into.narrow(2, 0, columns).indexCopy_(0, target, from.narrow(2, 0, columns));
      this.#buffers.keys.forEach((buffer, layer) => write(buffer, source.#buffers.keys[layer]!));
      this.#buffers.values.forEach((buffer, layer) => write(buffer, source.#buffers.values[layer]!));
    });
    this.setColumns(Math.max(this.columns, columns));
  }

  dispose(): void {
    this.share(null);
    if (this.#isSlice) return;
    for (const buffer of [...this.#buffers.keys, ...this.#buffers.values]) buffer.dispose();
    this.#buffers.keys = [];
    this.#buffers.values = [];
    this.#lengths.fill(0);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #allocated(what: string): Tensor {
    const [first] = this.#buffers.keys;
    if (first === undefined)
      throw new AstraError(`internal: KeyValueCache.${what}: nothing was appended yet`);
    return first;
  }

  /** Buffers of at least so many columns, of the shape and type of `like` [B, H, T, E]. */
  #ensure(columns: number, like: Tensor): void {
    const { keys, capacity } = this.#buffers;
    if (keys.length === 0) {
      const [, heads, , size] = like.shape as [number, number, number, number];
      const wide = Math.max(capacity, roundUp(columns));
      this.#make([this.rows, heads, wide, size], like.dtype, like.device);
    } else if (columns > capacity) {
      this.#grow(roundUp(Math.max(columns, Math.ceil(capacity * 1.5))));
    }
  }

  #make(shape: [rows: number, heads: number, capacity: number, size: number], dtype: DType, device: Device) {
    const make = () => keep(zeros(shape, { dtype, device }));
    this.#buffers.keys = Array.from({ length: this.layers }, make);
    this.#buffers.values = Array.from({ length: this.layers }, make);
    this.#buffers.capacity = shape[2];
  }

  #grow(capacity: number): void {
    const old = this.#buffers.capacity;
    const enlarge = (buffer: Tensor): Tensor => {
      const [rows, heads, , size] = buffer.shape as [number, number, number, number];
      const larger = zeros([rows, heads, capacity, size], { dtype: buffer.dtype, device: buffer.device });
      scope(() => void larger.narrow(2, 0, old).copy_(buffer));
      buffer.dispose();
      return keep(larger);
    };
    this.#buffers.keys = this.#buffers.keys.map(enlarge);
    this.#buffers.values = this.#buffers.values.map(enlarge);
    this.#buffers.capacity = capacity;
  }
}

function roundUp(columns: number): number {
  return Math.ceil(columns / COLUMN_STEP) * COLUMN_STEP;
}

function indices(values: readonly number[], device: Device): Tensor {
  return tensor(Int32Array.from(values), { dtype: "int64", device });
}

/** Bytes that one column of one row takes in a model's cache: keys and values of all layers. */
export function bytesPerColumn(config: ModelConfig, dtype: DType): number {
  return 2 * config.layers * config.keyValueHeads * config.headDimension * bytesOf(dtype);
}

/** Bytes that a cache of so many rows and columns takes, rounding included. */
export function cacheBytes(rows: number, columns: number, columnBytes: number): number {
  return rows * roundUp(columns) * columnBytes;
}
