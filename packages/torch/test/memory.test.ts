import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  empty,
  emptyCache,
  trimCache,
  maxMemoryAllocated,
  memoryAllocated,
  resetPeakMemoryStats,
  scope,
  type Tensor,
} from "../src/index.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

const KIB = 2 ** 10;
const MIB = 2 ** 20;
/**
 * From this size on a tensor has a separate block, in multiples of 64 KiB; smaller ones are allocated by the C library.
 */
const LARGE = 256 * KIB;
const PIECE = 64 * KIB;
const MOST_LIVE = 200 * MIB;
/** Temporary memory of the operators that write and read the values. */
const PASSING = MIB;

/** Bytes that a tensor of a size may be counted as: [minimum, maximum]. */
function countedFor(bytes: number): [number, number] {
  if (bytes >= LARGE) return [bytes, Math.ceil(bytes / PIECE) * PIECE];
  // The C library uses whole pages for the larger of the small ones.
  return bytes === 0 ? [0, 0] : [bytes, bytes < 32 * KIB ? 1.25 * bytes + 256 : bytes + 64 * KIB];
}

/** A tensor filled with one known number. */
class Filled {
  readonly tensor: Tensor;
  readonly value: number;

  constructor(
    readonly bytes: number,
    serial: number,
  ) {
    const whole = bytes % 4 === 0;
    this.value = whole ? serial : serial % 256;
    this.tensor = empty([whole ? bytes / 4 : bytes], { dtype: whole ? "int32" : "uint8" });
  }

  fill(): this {
    this.tensor.fill_(this.value);
    return this;
  }

  dispose(): void {
    this.tensor.dispose();
  }
}

function expectIntact({ bytes, tensor, value }: Filled): void {
  if (bytes === 0) return;
  const found = scope(() => [tensor.amin().item(), tensor.amax().item()]);
  expect(found, `least and greatest number in ${bytes} bytes`).toEqual([value, value]);
}

type Action =
  | { kind: "make"; bytes: number }
  | { kind: "dispose"; which: number }
  | { kind: "empty" }
  | { kind: "reset" };

/** Sizes of every class, and those next to the boundaries between them. */
const size = fc.oneof(
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 300 }) },
  { weight: 1, arbitrary: fc.integer({ min: 301, max: LARGE - 1 }) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(
        fc.constantFrom(PIECE, LARGE, LARGE + PIECE, MIB, 2 * MIB, 16 * MIB),
        fc.integer({ min: -5, max: 5 }),
      )
      .map(([border, apart]) => border + apart),
  },
  { weight: 3, arbitrary: fc.integer({ min: LARGE, max: 2 * MIB }) },
  { weight: 3, arbitrary: fc.integer({ min: 2 * MIB, max: 40 * MIB }) },
);

const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 6, arbitrary: size.map((bytes): Action => ({ kind: "make", bytes })) },
  { weight: 5, arbitrary: fc.nat().map((which): Action => ({ kind: "dispose", which })) },
  { weight: 1, arbitrary: fc.constant<Action>({ kind: "empty" }) },
  { weight: 1, arbitrary: fc.constant<Action>({ kind: "reset" }) },
);

describe("CPU memory", () => {
  it("keeps tensors separate and counts them, for any order of creating, disposing and returning memory", () => {
    fc.assert(
      fc.property(fc.array(action, { maxLength: 80 }), (actions) => {
        const live: { filled: Filled; counted: number }[] = [];
        const atStart = memoryAllocated();
        const bytesLive = () => live.reduce((sum, { filled }) => sum + filled.bytes, 0);
        let serial = 0;
        resetPeakMemoryStats();
        let peak = atStart;

        const dispose = (which: number) => {
          const { filled, counted } = live[which % live.length]!;
          expectIntact(filled);
          const before = memoryAllocated();
          filled.dispose();
          expect(before - memoryAllocated(), `given back for ${filled.bytes} bytes`).toBe(counted);
          live.splice(which % live.length, 1);
        };
        const make = (bytes: number) => {
          while (bytesLive() + bytes > MOST_LIVE) dispose(serial);
          const before = memoryAllocated();
          const filled = new Filled(bytes, (serial += 1));
          const counted = memoryAllocated() - before;
          live.push({ filled, counted });
          const [least, most] = countedFor(bytes);
          expect(counted, `counted for ${bytes} bytes`).toBeGreaterThanOrEqual(least);
          expect(counted, `counted for ${bytes} bytes`).toBeLessThanOrEqual(most);
          peak = Math.max(peak, memoryAllocated());
          filled.fill();
        };

        try {
          for (const each of actions) {
            if (each.kind === "make") make(each.bytes);
            if (each.kind === "dispose" && live.length > 0) dispose(each.which);
            if (each.kind === "empty") {
              const before = memoryAllocated();
              emptyCache();
              expect(memoryAllocated()).toBe(before);
            }
            if (each.kind === "reset") {
              resetPeakMemoryStats();
              peak = memoryAllocated();
              expect(maxMemoryAllocated()).toBe(peak);
            }
            const together = live.reduce((sum, { counted }) => sum + counted, 0);
            expect(memoryAllocated() - atStart).toBe(together);
            expect(maxMemoryAllocated()).toBeGreaterThanOrEqual(peak);
            expect(maxMemoryAllocated()).toBeLessThanOrEqual(peak + PASSING);
          }
          for (const { filled } of live) expectIntact(filled);
          while (live.length > 0) dispose(serial);
          expect(memoryAllocated()).toBe(atStart);
        } finally {
          // A failed expectation must not affect the next run.
          for (const { filled } of live) filled.dispose();
        }
      }),
      { numRuns: 40 },
    );
  });

  it("does not grow the process under repeated allocations of the same total, in any sizes", () => {
    const resident = () => process.memoryUsage.rss();
    const wave = (bytes: number) => {
      const filled = Array.from({ length: Math.floor((96 * MIB) / bytes) }, (_, serial) =>
        new Filled(bytes, serial).fill(),
      );
      for (const each of filled) {
        expectIntact(each);
        each.dispose();
      }
    };
    emptyCache();
    wave(8 * MIB);
    const before = resident();
    for (let round = 0; round < 3; round += 1) {
      for (const bytes of [300 * KIB, 3 * MIB, 700 * KIB, 32 * MIB, 1.5 * MIB, 11 * MIB]) wave(bytes);
    }
    // The slack of kept blocks (96 MiB plus a thirty-second), and other memory of the process.
    expect((resident() - before) / MIB).toBeLessThan(96 + 96 / 32 + 40);
    emptyCache();
  });

  it.skipIf(process.platform !== "linux")("gives what an unusual step needed back two steps later", () => {
    const resident = () => process.memoryUsage.rss() / MIB;
    const step = (count: number) => {
      const blocks = Array.from({ length: count }, (_, serial) => new Filled(20 * MIB, serial + 1).fill());
      for (const each of blocks) {
        expectIntact(each);
        each.dispose();
      }
      trimCache();
      return resident();
    };
    emptyCache();
    step(4);
    const usual = step(4);
    const unusual = step(40);
    expect(unusual - usual, "what it needed is kept").toBeGreaterThan(600);
    expect(step(4) - usual, "for the step after it, too").toBeGreaterThan(600);
    // Except for the slack.
    expect(step(4) - usual).toBeLessThan(96 + 80 / 32 + 40);
    emptyCache();
  });

  it.skipIf(process.platform !== "linux")("gives what is free back to the system on emptyCache", () => {
    const resident = () => process.memoryUsage.rss() / MIB;
    // Blocks that share huge pages with their neighbours, too.
    const bytes = 5 * MIB + 3 * PIECE + 8;
    const count = 40;
    const freed = (bytes * count) / 2 / MIB;
    emptyCache();
    const filled = Array.from({ length: count }, (_, serial) => new Filled(bytes, serial + 1).fill());
    const atHeight = resident();
    // Every second one, so that freed blocks are between used ones.
    filled.forEach((each, at) => {
      if (at % 2 === 1) each.dispose();
    });
    emptyCache();
    const half = resident();
    expect(atHeight - half, `of ${freed.toFixed(0)} MiB`).toBeGreaterThan(0.8 * freed);
    filled.forEach((each, at) => {
      if (at % 2 === 1) return;
      expectIntact(each);
      each.dispose();
    });
    emptyCache();
    expect(half - resident(), `of ${freed.toFixed(0)} MiB`).toBeGreaterThan(0.8 * freed);
  });
});
