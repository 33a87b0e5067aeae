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
import { KeyValueCache } from "../../src/generation/key-value-cache.js";

const LAYERS = 2;
const HEADS = 3;
const SIZE = 2;

let before = 0;
beforeEach(() => (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

/** Keys [rows, H, count, E] that tell layer, row, head and column apart; values are the keys plus 0.5. */
function block(layer: number, rows: readonly number[], from: number, count: number): [Tensor, Tensor] {
  const axis = (dim: number, length: number, scale: number, start = 0) => {
    const shape = [1, 1, 1, 1];
    shape[dim] = length;
    return arange(start, start + length, 1, { dtype: "float32" })
      .mul(scale)
      .view(shape);
  };
  const keys = axis(0, rows.length, 0)
    .add(axis(1, HEADS, 1000))
    .add(axis(2, count, 1, from))
    .add(axis(3, SIZE, 0.25))
    .add(layer * 100_000);
  rows.forEach((name, at) => void keys.narrow(0, at, 1).add_(name * 10_000));
  return [keys, keys.add(0.5)];
}

/** Appends columns to all layers and gives what layer 1's keys then are. */
function append(cache: KeyValueCache, rows: readonly number[], from: number, count: number): void {
  scope(() => {
    for (let layer = 0; layer < LAYERS; layer += 1) cache.append(layer, ...block(layer, rows, from, count));
  });
}

/** The column names that a layer's cache holds, row by row, checked to be whole in every head and in the values. */
function columnsOf(cache: KeyValueCache, layer = LAYERS - 1): number[][] {
  return scope(() => {
    const nothing = block(
      layer,
      Array.from({ length: cache.rows }, () => 0),
      0,
      1,
    ).map((each) => each.narrow(2, 0, 0));
    const [keys, values] = cache.slice(0, cache.rows).append(layer, nothing[0]!, nothing[1]!);
    const written = keys.ne(0).to("float32");
    expect(values.sub(written.mul(0.5)).toArray()).toEqual(keys.toArray());
    return (keys.toArray() as number[][][][]).map((heads) => {
      const names = heads[0]!.map(([first]) => first! - layer * 100_000);
      heads.forEach((columns, head) =>
        columns.forEach((pair, column) => {
          if (names[column] === -layer * 100_000) return; // never written
          expect(pair).toEqual([0, 0.25].map((add) => names[column]! + layer * 100_000 + head * 1000 + add));
        }),
      );
      return names;
    });
  });
}

describe("KeyValueCache", () => {
  it("appends in place and gives views of everything so far", () => {
    using cache = new KeyValueCache({ layers: LAYERS });
    scope(() => {
      const [keys] = cache.append(0, ...block(0, [1, 2], 0, 3));
      expect(keys.shape).toEqual([2, HEADS, 3, SIZE]);
      // The pass is not over: the last layer has not appended yet.
      expect(cache.columns).toBe(0);
      cache.append(1, ...block(1, [1, 2], 0, 3));
      expect(cache.columns).toBe(3);
    });
    append(cache, [1, 2], 3, 1);
    expect(columnsOf(cache)).toEqual([
      [10_000, 10_001, 10_002, 10_003],
      [20_000, 20_001, 20_002, 20_003],
    ]);
  });

  it("grows geometrically, keeps what it holds and accounts for its bytes", () => {
    using cache = new KeyValueCache({ layers: LAYERS });
    expect(cache.bytes).toBe(0);
    const capacities = new Set<number>();
    for (let column = 0; column < 200; column += 1) {
      append(cache, [1, 2], column, 1);
      capacities.add(cache.capacity);
      expect(cache.bytes).toBe(LAYERS * 2 * 2 * HEADS * cache.capacity * SIZE * 4);
    }
    expect(capacities.size).toBeLessThan(9);
    expect(columnsOf(cache)[1]).toEqual(Array.from({ length: 200 }, (_, column) => 20_000 + column));
    cache.dispose();
    expect(cache.bytes).toBe(0);
  });

  it("room that was reserved is used without moving", () => {
    using cache = new KeyValueCache({ layers: LAYERS, rows: 1 });
    cache.reserve(100);
    append(cache, [1], 0, 1);
    const { capacity } = cache;
    expect(capacity).toBeGreaterThanOrEqual(100);
    append(cache, [1], 1, 99);
    expect(cache.capacity).toBe(capacity);
    cache.reserve(capacity + 1);
    expect(cache.capacity).toBeGreaterThan(capacity);
    expect(columnsOf(cache)[0]).toEqual(Array.from({ length: 100 }, (_, column) => 10_000 + column));
  });

  it("slices write into the whole, from its columns on; what was never written is zero", () => {
    using cache = new KeyValueCache({ layers: LAYERS });
    append(cache, [1, 2, 3], 0, 2);
    append(cache.slice(0, 1), [1], 7, 1);
    append(cache.slice(1, 2), [2, 3], 8, 20);
    expect(cache.columns).toBe(2);
    cache.setColumns(4);
    expect(columnsOf(cache)).toEqual([
      [10_000, 10_001, 10_007, -100_000],
      [20_000, 20_001, 20_008, 20_009],
      [30_000, 30_001, 30_008, 30_009],
    ]);
  });

  it("selects rows, repeated and reordered, and moves chosen columns together", () => {
    using cache = new KeyValueCache({ layers: LAYERS });
    append(cache, [1, 2, 3], 0, 5);
    using all = cache.select([2, 0, 2]);
    expect(all.columns).toBe(5);
    expect(columnsOf(all).map((row) => row[4])).toEqual([30_004, 10_004, 30_004]);
    using packed = cache.select(
      [1, 0],
      [
        [0, 3],
        [1, 2, 4],
      ],
      { capacity: 40 },
    );
    expect(packed.columns).toBe(3);
    expect(packed.capacity).toBeGreaterThanOrEqual(40);
    expect(columnsOf(packed)).toEqual([
      [20_000, 20_003, 20_000],
      [10_001, 10_002, 10_004],
    ]);
    // Independent of the parent from now on.
    append(packed, [2, 1], 90, 1);
    append(cache, [1, 2, 3], 5, 1);
    expect(columnsOf(packed)[1]![3]).toBe(10_090);
    expect(columnsOf(cache)[0]![5]).toBe(10_005);
  });

  it("gives its memory away layer by layer as it is taken over", () => {
    const selected = (consume: boolean) => {
      using cache = new KeyValueCache({ layers: LAYERS, capacity: 4000 });
      append(cache, [1, 2], 0, 3);
      const held = cache.bytes;
      resetPeakMemoryStats();
      const base = memoryAllocated();
      using child = cache.select([1, 0], undefined, { capacity: 4000, consume });
      expect(cache.bytes).toBe(consume ? 0 : held);
      expect(columnsOf(child)).toEqual([
        [20_000, 20_001, 20_002],
        [10_000, 10_001, 10_002],
      ]);
      return (maxMemoryAllocated() - base) / held;
    };
    // Beside what is moved, one of four buffers, and the places of what is taken.
    const [copied, moved] = [selected(false), selected(true)];
    expect(copied).toBeGreaterThan(1);
    expect(copied - moved).toBeGreaterThan(0.7);
  });

  it("moves rows among each other and places another cache's columns", () => {
    using cache = new KeyValueCache({ layers: LAYERS });
    append(cache, [1, 2, 3], 0, 2);
    cache.move([0, 2], [2, 0]);
    expect(columnsOf(cache).map((row) => row[0])).toEqual([30_000, 20_000, 10_000]);
    using other = new KeyValueCache({ layers: LAYERS });
    append(other, [8, 9], 50, 30);
    cache.place([2, 0], other);
    expect(cache.columns).toBe(30);
    const rows = columnsOf(cache);
    expect(rows.map((row) => row[1])).toEqual([90_051, 20_001, 80_051]);
    expect(rows.map((row) => row[29])).toEqual([90_079, -100_000, 80_079]);
  });

  it("refuses rows that it does not have", () => {
    using cache = new KeyValueCache({ layers: LAYERS });
    append(cache, [1, 2], 0, 1);
    scope(() =>
      expect(() => cache.append(0, ...block(0, [1], 0, 1))).toThrow("internal: KeyValueCache.append"),
    );
    expect(() => cache.slice(1, 2)).toThrow("internal: KeyValueCache.slice");
    expect(() => cache.setColumns(1000)).toThrow("internal: KeyValueCache.setColumns");
  });
});
