import {
  arange,
  liveTensors,
  maxMemoryAllocated,
  memoryAllocated,
  resetPeakMemoryStats,
  scope,
  type Tensor,
} from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { CacheView } from "../../src/generation/cache-view.js";
import { cacheBytes, KeyValueCache } from "../../src/generation/key-value-cache.js";

const LAYERS = 2;
const HEADS = 3;
const SIZE = 2;
const shape = {
  layers: LAYERS,
  keyValueHeads: HEADS,
  headDimension: SIZE,
  dtype: "float32",
  device: "cpu",
} as const;
/** Bytes of one column of one row. */
const COLUMN = 2 * LAYERS * HEADS * SIZE * 4;

let before = 0;
beforeEach(() => (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

const make = (capacities: readonly number[], leastSaving = 0) =>
  KeyValueCache.make(shape, capacities, leastSaving);
const extents = (cache: KeyValueCache) =>
  cache.rectangles.map(({ first, count, capacity }) => [first, count, capacity]);

/** Keys [rows, H, width, E] that identify layer, row, head and column; values are the keys plus 0.5. */
function block(
  layer: number,
  names: readonly number[],
  starts: readonly number[],
  width: number,
): [Tensor, Tensor] {
  const axis = (dim: number, length: number, scale: number) => {
    const dims = [1, 1, 1, 1];
    dims[dim] = length;
    return arange(0, length, 1, { dtype: "float32" }).mul(scale).view(dims);
  };
  const keys = axis(0, names.length, 0)
    .add(axis(1, HEADS, 1000))
    .add(axis(2, width, 1))
    .add(axis(3, SIZE, 0.25))
    .add(layer * 100_000);
  names.forEach((name, at) => void keys.narrow(0, at, 1).add_(name * 10_000 + starts[at]!));
  return [keys, keys.add(0.5)];
}

/** Appends columns to all layers: `counts[i]` of `width` ones to row `rows[i]`, named `names[i]`, from `starts[i]` on. */
function append(
  cache: KeyValueCache,
  {
    rows,
    names = rows,
    starts,
    counts,
    width = Math.max(...counts),
  }: {
    rows: readonly number[];
    names?: readonly number[];
    starts: readonly number[];
    counts: readonly number[];
    width?: number;
  },
): void {
  using view = new CacheView(cache, rows);
  view.begin(starts, counts, width);
  scope(() => {
    for (let layer = 0; layer < LAYERS; layer += 1) view.append(layer, ...block(layer, names, starts, width));
  });
}

/** The column names in a layer's cache, by row, checked to be consistent in every head and in the values. */
function columnsOf(cache: KeyValueCache, layer = LAYERS - 1): number[][] {
  return cache.rectangles.flatMap((rectangle) => {
    const [keys, values] = [rectangle.keys[layer]!, rectangle.values[layer]!];
    scope(() => {
      const written = keys.ne(0).to("float32");
      expect(values.sub(written.mul(0.5)).toArray()).toEqual(keys.toArray());
    });
    return (keys.toArray() as number[][][][]).map((heads) => {
      const names = heads[0]!.map(([first]) => (first === 0 ? 0 : first! - layer * 100_000));
      heads.forEach((columns, head) =>
        columns.forEach((pair, column) => {
          if (names[column] === 0) return; // never written
          expect(pair).toEqual([0, 0.25].map((add) => names[column]! + layer * 100_000 + head * 1000 + add));
        }),
      );
      return names;
    });
  });
}

const range = (from: number, count: number) => Array.from({ length: count }, (_, at) => from + at);

describe("KeyValueCache", () => {
  it("groups rows of similar length into one rectangle, and splits where that saves enough", () => {
    using cache = make([100, 98, 70, 60, 30, 3]);
    // 80 columns are more than two thirds of 112, 64 are not.
    expect(extents(cache)).toEqual([
      [0, 3, 112],
      [3, 1, 64],
      [4, 1, 32],
      [5, 1, 16],
    ]);
    expect(cache.capacities()).toEqual([112, 112, 112, 64, 32, 16]);
    expect(cache.bytes).toBe((3 * 112 + 64 + 32 + 16) * COLUMN);
    expect(cacheBytes(shape, [100, 98, 70, 60, 30, 3], 0)).toBe(cache.bytes);
    // From the fourth row on it saves 48 columns of three rows; from the fifth only 32 more of two.
    using dear = make([100, 98, 70, 60, 30, 3], 130 * COLUMN);
    expect(extents(dear)).toEqual([
      [0, 3, 112],
      [3, 3, 64],
    ]);
    using undivided = make([100, 98, 70, 60, 30, 3], 1e9);
    expect(extents(undivided)).toEqual([[0, 6, 112]]);
    // Rows in any order are also held.
    using rising = make([3, 100]);
    expect(rising.capacities()).toEqual([16, 112]);
  });

  it("appends to each row after its columns, without padding", () => {
    using cache = make([40, 40, 10]);
    append(cache, { rows: [0, 1, 2], starts: [0, 0, 0], counts: [3, 1, 2] });
    append(cache, { rows: [0, 2], starts: [3, 2], counts: [1, 1] });
    append(cache, { rows: [1, 2], starts: [1, 3], counts: [2, 0], width: 5 });
    const written = (row: number, count: number, capacity: number) => [
      ...range(row * 10_000, count),
      ...Array<number>(capacity - count).fill(0),
    ];
    expect(columnsOf(cache).slice(1)).toEqual([written(1, 3, 48), written(2, 3, 16)]);
    expect(columnsOf(cache)[0]!.slice(1, 5)).toEqual([1, 2, 3, 0]);
  });

  it("grows a whole rectangle if a row needs room, and keeps its contents", () => {
    using cache = make([40, 39, 10]);
    append(cache, { rows: [0, 1, 2], names: [1, 2, 3], starts: [0, 0, 0], counts: [40, 2, 10] });
    cache.reserve([48, 48, 16]);
    expect(cache.capacities()).toEqual([48, 48, 16]);
    cache.reserve([10, 49, 16]);
    expect(cache.capacities()).toEqual([80, 80, 16]);
    expect(cache.bytes).toBe((160 + 16) * COLUMN);
    expect(columnsOf(cache).map((row) => row.filter((name) => name !== 0))).toEqual([
      range(10_000, 40),
      range(20_000, 2),
      range(30_000, 10),
    ]);
    cache.dispose();
    expect(cache.bytes).toBe(0);
  });

  it("selects rows, repeated and reordered, across rectangles, up to the requested lengths", () => {
    using cache = make([60, 20, 18]);
    append(cache, { rows: [0, 1, 2], names: [1, 2, 3], starts: [0, 0, 0], counts: [50, 5, 4] });
    using selected = cache.select([0, 2, 0, 1], [50, 4, 7, 0], [64, 64, 16, 16], 0);
    expect(extents(selected)).toEqual([
      [0, 2, 64],
      [2, 2, 16],
    ]);
    const written = () => columnsOf(selected).map((row) => row.filter((name) => name !== 0));
    expect(written()).toEqual([range(10_000, 50), range(30_000, 4), range(10_000, 7), []]);
    // Independent of the parent from now on.
    append(selected, { rows: [2], names: [9], starts: [7], counts: [1] });
    append(cache, { rows: [0], names: [8], starts: [0], counts: [1] });
    expect(written()[2]).toEqual([...range(10_000, 7), 90_007]);
    expect(written()[0]).toEqual(range(10_000, 50));
  });

  it("frees its memory layer by layer while it is copied", () => {
    const selected = (consume: boolean) => {
      using cache = make([4000, 4000]);
      append(cache, { rows: [0, 1], names: [1, 2], starts: [0, 0], counts: [3, 3] });
      const held = cache.bytes;
      resetPeakMemoryStats();
      const base = memoryAllocated();
      using child = cache.select([1, 0], [3, 3], [4000, 4000], 0, { consume });
      expect(cache.bytes).toBe(consume ? 0 : held);
      expect(columnsOf(child).map((row) => row.slice(0, 4))).toEqual([
        [20_000, 20_001, 20_002, 0],
        [10_000, 10_001, 10_002, 0],
      ]);
      return (maxMemoryAllocated() - base) / held;
    };
    // In addition to the moved memory, one of two layers.
    const [copied, moved] = [selected(false), selected(true)];
    expect(copied).toBeGreaterThan(1);
    expect(copied - moved).toBeGreaterThan(0.45);
  });

  it("refuses rows out of range", () => {
    using cache = make([10, 10]);
    expect(() => new CacheView(cache, [2])).toThrow("internal: CacheView: row 2");
    using view = new CacheView(cache, [0]);
    view.begin([0], [1], 1);
    scope(() =>
      expect(() => view.append(0, ...block(0, [0, 1], [0, 0], 1))).toThrow("internal: CacheView.append"),
    );
    cache.dispose();
    expect(() => cache.select([0], [1], [10], 0)).toThrow("internal: KeyValueCache.select");
  });
});

describe("CacheView", () => {
  /** The column names that each new token may attend to, by row of the batch. */
  function seen(
    view: CacheView,
    names: readonly number[],
    starts: readonly number[],
    width: number,
    window: number | null,
  ) {
    return scope(() => {
      const told: number[][][] = [];
      for (const part of view.append(0, ...block(0, names, starts, width))) {
        const [keys] = part.rectangle();
        const columns = (keys.toArray() as number[][][][]).map(([head]) => head!.map(([first]) => first!));
        const mask = part.mask(window).expand([part.count, 1, width, keys.size(2)]);
        (mask.toArray() as unknown as (0 | 1 | boolean)[][][][]).forEach(([tokens], at) => {
          told[part.first + at] = tokens!.map((may) => columns[at]!.filter((_, column) => may[column]));
        });
      }
      return told;
    });
  }

  it("lets each new token attend to its row's columns up to itself, or to the last few of them", () => {
    using cache = make([40, 40, 40, 10, 10]);
    const starts = [5, 2, 7, 1, 3];
    append(cache, { rows: range(0, 5), starts: [0, 0, 0, 0, 0], counts: starts });
    // Adjacent and non-adjacent rows of the cache, and two rectangles.
    for (const rows of [
      [0, 1],
      [0, 2, 3, 4],
      [1, 2, 4],
    ]) {
      using view = new CacheView(cache, rows);
      const held = rows.map((row) => starts[row]!);
      for (const window of [null, 3]) {
        view.begin(
          held,
          rows.map(() => 2),
          2,
        );
        const told = seen(view, rows, held, 2, window);
        rows.forEach((row, at) => {
          const upTo = (count: number) => range(row * 10_000, count).slice(window === null ? 0 : -window);
          expect(told[at]).toEqual([upTo(held[at]! + 1), upTo(held[at]! + 2)]);
        });
      }
    }
  });

  it("gives the ranges for one new token per row", () => {
    using cache = make([40, 40, 10]);
    using view = new CacheView(cache, [0, 1, 2]);
    view.begin([5, 2, 0], [1, 1, 0], 1);
    const ranges = (window: number | null) =>
      scope(() =>
        view.append(0, ...block(0, [0, 1, 2], [5, 2, 0], 1)).map((part) => part.ranges(window).toArray()),
      );
    // A row of only padding attends to existing columns.
    expect(ranges(null)).toEqual([
      [
        [0, 0, 6],
        [1, 0, 3],
      ],
      [[0, 0, 1]],
    ]);
    expect(ranges(4)).toEqual([
      [
        [0, 2, 6],
        [1, 0, 3],
      ],
      [[0, 0, 1]],
    ]);
  });
});
