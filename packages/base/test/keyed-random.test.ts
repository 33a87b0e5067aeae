import { describe, expect, it } from "vitest";
import { keyedUniform, type DrawKey } from "@astra-rl/base";
import { breaking } from "./support/breaking.js";
import { philox } from "../src/keyed-random.js";

const key = (changes: Partial<DrawKey> = {}): DrawKey => ({
  seed: 7,
  stream: "tester",
  episode: 3,
  node: 5,
  ...changes,
});

/** Pearson's chi-square of counts against equal expectations. */
function chiSquare(counts: readonly number[]): number {
  const expected = counts.reduce((sum, count) => sum + count, 0) / counts.length;
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
}

function correlation(a: readonly number[], b: readonly number[]): number {
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [meanA, meanB] = [mean(a), mean(b)];
  let [ab, aa, bb] = [0, 0, 0];
  a.forEach((value, at) => {
    ab += (value - meanA) * (b[at]! - meanB);
    aa += (value - meanA) ** 2;
    bb += (b[at]! - meanB) ** 2;
  });
  return ab / Math.sqrt(aa * bb);
}

describe("philox", () => {
  // The authors' published known answers for philox4x32 with 10 rounds.
  const words = (text: string) => text.split(" ").map((word) => parseInt(word, 16));
  it.each([
    ["00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"],
    ["ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"],
    ["243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"],
  ])("counter %s under key %s gives %s", (counter, seed, expected) => {
    const [a, b, c, d] = words(counter) as [number, number, number, number];
    const [k0, k1] = words(seed) as [number, number];
    expect(philox([a, b, c, d], [k0, k1])).toEqual(words(expected));
  });
});

describe("keyedUniform", () => {
  it("is a function: the same key gives the same number, in any order", () => {
    const forward = Array.from({ length: 50 }, (_, index) => keyedUniform(key(), index));
    const backward = Array.from({ length: 50 }, (_, index) => keyedUniform(key(), 49 - index)).reverse();
    expect(backward).toEqual(forward);
    const amongOthers = forward.map((_, index) => {
      keyedUniform(key({ seed: 8 }), index);
      keyedUniform(key({ stream: "target" }), index);
      return keyedUniform(key(), index);
    });
    expect(amongOthers).toEqual(forward);
  });

  it("never changes its values: a change would silently change every seeded run", () => {
    expect([
      keyedUniform({ seed: 0, stream: "tester", episode: 0, node: 0 }, 0),
      keyedUniform({ seed: 0, stream: "tester", episode: 0, node: 0 }, 1),
      keyedUniform({ seed: -1, stream: "", episode: 2 ** 33, node: 2 ** 40 + 1 }, 2 ** 32 - 1),
    ]).toEqual(KNOWN);
  });

  it("changes with every part of the key, including the high bits", () => {
    const names: [DrawKey, number][] = [
      [key(), 0],
      [key(), 1],
      [key({ node: 6 }), 0],
      [key({ node: 5 + 2 ** 32 }), 0],
      [key({ episode: 4 }), 0],
      [key({ episode: 3 + 2 ** 32 }), 0],
      [key({ seed: 8 }), 0],
      [key({ seed: 7 + 2 ** 32 }), 0],
      [key({ seed: -7 }), 0],
      [key({ seed: 0 }), 0],
      [key({ stream: "target" }), 0],
      [key({ stream: "" }), 0],
      [key({ stream: "tester\0" }), 0],
      [key({ stream: "ttseer" }), 0],
      // Swapped parts must not collide.
      [key({ node: 3, episode: 5 }), 0],
    ];
    expect(new Set(names.map(([name, index]) => keyedUniform(name, index))).size).toBe(names.length);
  });

  it("is uniform over tokens, nodes, episodes and seeds (chi-square, 255 degrees of freedom)", () => {
    const walks: Record<string, (at: number) => number> = {
      tokens: (at) => keyedUniform(key(), at),
      nodes: (at) => keyedUniform(key({ node: at }), 0),
      episodes: (at) => keyedUniform(key({ episode: at }), 0),
      seeds: (at) => keyedUniform(key({ seed: at }), 0),
      names: (at) => keyedUniform(key({ stream: `stream ${at}` }), 0),
    };
    for (const [name, walk] of Object.entries(walks)) {
      const counts = Array.from({ length: 256 }, () => 0);
      for (let at = 0; at < 25_600; at += 1) counts[Math.floor(walk(at) * 256)]! += 1;
      const value = chiSquare(counts);
      // 255 ± 5 standard deviations (√510 = 22.6): false alarms below one in a million; too even would also be wrong.
      expect(value, name).toBeGreaterThan(255 - 5 * 22.6);
      expect(value, name).toBeLessThan(255 + 5 * 22.6);
    }
  });

  it("is uniform in its low bits", () => {
    const counts = Array.from({ length: 256 }, () => 0);
    for (let at = 0; at < 25_600; at += 1) counts[(keyedUniform(key(), at) * 2 ** 53) % 256]! += 1;
    expect(Math.abs(chiSquare(counts) - 255)).toBeLessThan(5 * 22.6);
  });

  it("gives uncorrelated neighbours in any direction", () => {
    const count = 20_000;
    const sequence = (at: (index: number) => number) =>
      Array.from({ length: count }, (_, index) => at(index));
    const base = sequence((index) => keyedUniform(key(), index));
    const neighbours: Record<string, number[]> = {
      "next token": sequence((index) => keyedUniform(key(), index + 1)),
      "next node": sequence((index) => keyedUniform(key({ node: 6 }), index)),
      "next episode": sequence((index) => keyedUniform(key({ episode: 4 }), index)),
      "next seed": sequence((index) => keyedUniform(key({ seed: 8 }), index)),
      "other stream": sequence((index) => keyedUniform(key({ stream: "target" }), index)),
    };
    for (const [name, other] of Object.entries(neighbours)) {
      // The correlation of independent sequences has standard deviation 1/√n.
      expect(Math.abs(correlation(base, other)), name).toBeLessThan(5 / Math.sqrt(count));
    }
  });

  it("refuses invalid keys", () => {
    expect(() => keyedUniform(key({ seed: 0.5 }), 0)).toThrow(breaking("out-of-range", "seed"));
    expect(() => keyedUniform(key({ node: -1 }), 0)).toThrow(breaking("out-of-range", "node"));
    expect(() => keyedUniform(key({ episode: NaN }), 0)).toThrow(breaking("out-of-range", "episode"));
    expect(() => keyedUniform(key(), 2 ** 32)).toThrow(breaking("out-of-range", "index"));
  });
});

// Recorded from this implementation after philox matched its published answers.
const KNOWN = [0.7093995304866506, 0.7922779482067682, 0.3078633043212077];
