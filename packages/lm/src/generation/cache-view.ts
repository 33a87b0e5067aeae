import {
  arange,
  ColumnRuns,
  copyColumns,
  dispose,
  keep,
  noGrad,
  tensor,
  type SharedColumns,
  type Tensor,
} from "@astra-rl/torch";
import { AstraError } from "@astra-rl/base";
import type { AttentionCache, CachedRows } from "../causal-lm.js";
import type { KeyValueCache, Rectangle } from "./key-value-cache.js";
import { PassTensors } from "./pass-tensors.js";

/**
 * Selected rows of a cache, as used by forward passes. Each pass starts with `begin`; tensors shared by its
 * layers live until the next `begin`.
 */
export class CacheView implements AttentionCache {
  readonly #parts: Part[] = [];
  #count: number;

  /**
   * @param rows of the cache, in the order of the batch; rows of one rectangle should be adjacent and ascending
   * @param share returns the columns shared by some of the rows, given as indices into `rows`
   */
  constructor(
    cache: KeyValueCache,
    rows: readonly number[],
    share: (places: readonly number[]) => SharedColumns | null = () => null,
  ) {
    this.#count = rows.length;
    for (let first = 0; first < rows.length;) {
      const rectangle = cache.rectangles.find((each) => rows[first]! < each.first + each.count);
      if (rectangle === undefined) {
        throw new AstraError(`internal: CacheView: row ${rows[first]} of a cache of ${cache.rows}`);
      }
      const isInside = (row: number) => row >= rectangle.first && row < rectangle.first + rectangle.count;
      let end = first + 1;
      while (end < rows.length && isInside(rows[end]!)) end += 1;
      const places = Array.from({ length: end - first }, (_, at) => first + at);
      const own = rows.slice(first, end).map((row) => row - rectangle.first);
      this.#parts.push(new Part(rectangle, first, own, share(places)));
      first = end;
    }
  }

  /**
   * @param starts by row: number of columns held; the new tokens are appended after them
   * @param counts by row: number of new tokens; the remaining ones are right padding
   * @param width new tokens, padding included
   */
  begin(starts: readonly number[], counts: readonly number[], width: number): void {
    for (const part of this.#parts) part.begin(starts, counts, width);
  }

  append(layer: number, key: Tensor, value: Tensor): readonly CachedRows[] {
    if (key.size(0) !== this.#count) {
      throw new AstraError(`internal: CacheView.append: ${this.#count} rows, got ${key.size(0)}`);
    }
    for (const part of this.#parts) part.append(layer, key, value);
    return this.#parts;
  }

  dispose(): void {
    for (const part of this.#parts) part.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The rows of a view that lie in one rectangle. */
class Part implements CachedRows {
  readonly first: number;
  readonly shared: SharedColumns | null;
  readonly #rectangle: Readonly<Rectangle>;
  /** Indices within the rectangle. */
  readonly #rows: readonly number[];
  #layer = 0;
  #starts: readonly number[] = [];
  #counts: readonly number[] = [];
  #width = 0;
  /** Where new tokens are appended in every layer. */
  #runs: ColumnRuns | null = null;
  /** The starts on the device of the cache, [n or 1, 1, 1, 1]. */
  #held: Tensor | null = null;
  readonly #made = new PassTensors();

  constructor(
    rectangle: Readonly<Rectangle>,
    first: number,
    rows: readonly number[],
    shared: SharedColumns | null,
  ) {
    this.#rectangle = rectangle;
    this.first = first;
    this.#rows = rows;
    this.shared = shared === null ? null : keep(shared);
  }

  get count(): number {
    return this.#rows.length;
  }

  get key(): Tensor {
    return this.#rectangle.keys[this.#layer]!;
  }

  get value(): Tensor {
    return this.#rectangle.values[this.#layer]!;
  }

  begin(starts: readonly number[], counts: readonly number[], width: number): void {
    const end = this.first + this.count;
    const [own, before] = [starts.slice(this.first, end), this.#starts];
    const ownCounts = counts.slice(this.first, end);
    // Decoding: places on the device are moved on instead of sent anew.
    const isNext =
      width === 1 &&
      this.#width === 1 &&
      this.#runs !== null &&
      own.every((start, at) => start === before[at]! + 1 && ownCounts[at] === 1 && this.#counts[at] === 1);
    this.#made.dispose();
    if (isNext) {
      this.#runs!.advance();
      noGrad(() => this.#held?.add_(1));
    } else this.#forget();
    this.#starts = own;
    this.#counts = ownCounts;
    this.#width = width;
  }

  append(layer: number, key: Tensor, value: Tensor): void {
    this.#layer = layer;
    const runs = (this.#runs ??= new ColumnRuns(
      this.#rows
        .map((row, at) => [row, this.#starts[at]!, this.first + at, 0, this.#counts[at]!])
        .filter(([, , , , count]) => count! > 0),
    ));
    copyColumns(this.key, key, runs);
    copyColumns(this.value, value, runs);
  }

  rectangle(): [key: Tensor, value: Tensor] {
    const [first] = this.#rows as [number];
    const columns = this.#columns();
    const isRun = this.#rows.every((row, at) => row === first + at);
    return [this.key, this.value].map((buffer) => {
      const wide = buffer.narrow(2, 0, columns);
      if (isRun) return this.count === buffer.size(0) ? wide : wide.narrow(0, first, this.count);
      const rows = this.once("rows", () =>
        tensor(Int32Array.from(this.#rows), { dtype: "int64", device: buffer.device }),
      );
      return wide.indexSelect(0, rows);
    }) as [Tensor, Tensor];
  }

  mask(window: number | null): Tensor {
    const { device } = this.key;
    // Rows with equal lengths have the same mask.
    const starts = new Set(this.#starts).size === 1 ? this.#starts.slice(0, 1) : this.#starts;
    const places = () =>
      tensor(Int32Array.from(starts), { dtype: "int64", shape: [starts.length, 1, 1, 1], device });
    const held = (this.#held ??= keep(places()));
    const width = this.#width;
    const own =
      width === 1 ? held : held.add(arange(0, width, 1, { dtype: "int64", device }).view([1, 1, width, 1])); // [n or 1, 1, T, 1]
    const back = own.sub(arange(0, this.#columns(), 1, { dtype: "int64", device })); // [n or 1, 1, T, S]
    return window === null ? back.ge(0) : back.ge(0).logicalAnd(back.lt(window));
  }

  ranges(window: number | null): Tensor {
    return this.once(`ranges within ${window}`, () => {
      const ranges = this.#rows.flatMap((row, at) => {
        const end = Math.max(1, this.#starts[at]! + this.#counts[at]!);
        return [row, window === null ? 0 : Math.max(0, end - window), end];
      });
      return tensor(Int32Array.from(ranges), { dtype: "int32", shape: [this.count, 3] });
    });
  }

  once(name: string, make: () => Tensor): Tensor {
    return this.#made.once(name, make);
  }

  dispose(): void {
    this.#forget();
    dispose(this.shared);
  }

  /** Length of the longest row after this pass. */
  #columns(): number {
    return Math.max(1, ...this.#starts.map((start, at) => start + this.#counts[at]!));
  }

  #forget(): void {
    this.#runs?.dispose();
    this.#held?.dispose();
    this.#runs = null;
    this.#held = null;
    this.#made.dispose();
  }
}
