import { describeValue, UsageError } from "./errors.js";

// Counter-based random numbers: each draw is a function of its key, never taken from a shared stream, so that batching,
// row order and resuming a run do not change it.
//
// The function is Philox-4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011): a 128-bit counter encrypted under a 64-bit key. The key comes from (seed, stream name), the counter
// from (episode, node, index).

/** Identifies one sequence of draws. */
export interface DrawKey {
  /** Any safe integer, including 0. */
  seed: number;
  /** Kind of draw, for example "tester" or "prompts"; different streams give independent draws. */
  stream: string;
  /** 0 … 2^48 − 1. */
  episode: number;
  /** 0 … 2^48 − 1. */
  node: number;
}

type Words = [number, number, number, number];

const WORD = 2 ** 32;
const COUNTER_LIMIT = 2 ** 48;
// Multipliers and key increments of the published algorithm.
const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const INCREMENT_0 = 0x9e3779b9;
const INCREMENT_1 = 0xbb67ae85;

/** High 32 bits of the 64-bit product: `Math.imul` gives only the low 32. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  // Both sums are at most 65535² + 65535 < 2^32: no bits are lost if they wrap around as signed words.
  const middle = (Math.imul(aHigh, bLow) + (Math.imul(aLow, bLow) >>> 16)) | 0;
  const cross = (Math.imul(aLow, bHigh) + (middle & 0xffff)) | 0;
  return (Math.imul(aHigh, bHigh) + (middle >>> 16) + (cross >>> 16)) >>> 0;
}

/** One block of Philox-4x32-10: four 32-bit counter words and two key words give four random words. */
export function philox(counter: Readonly<Words>, key: readonly [number, number]): Words {
  let [a, b, c, d] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round += 1) {
    const high0 = multiplyHigh(MULTIPLIER_0, a);
    const low0 = Math.imul(MULTIPLIER_0, a);
    const high1 = multiplyHigh(MULTIPLIER_1, c);
    const low1 = Math.imul(MULTIPLIER_1, c);
    a = high1 ^ b ^ k0;
    b = low1;
    c = high0 ^ d ^ k1;
    d = low0;
    k0 = (k0 + INCREMENT_0) | 0;
    k1 = (k1 + INCREMENT_1) | 0;
  }
  return [a >>> 0, b >>> 0, c >>> 0, d >>> 0];
}

/** Cache of derived keys by (seed, stream name): every row uses the same few. */
const keys = new Map<string, [number, number]>();
/** The most recent key: a lookup in the map costs more than a Philox block. */
let latest: { seed: number; name: string; key: [number, number] } | null = null;

/**
 * Derives 64 bits from a seed and a name: the name's code units are absorbed two at a time, each block encrypted under
 * the seed and fed into the next, so that all names give independent keys.
 */
function deriveKey(seed: number, name: string): [number, number] {
  if (latest !== null && latest.seed === seed && latest.name === name) return latest.key;
  if (!Number.isSafeInteger(seed)) {
    throw new UsageError(
      "out-of-range",
      `keyedUniform: a seed must be a whole number, got ${describeValue(seed)}`,
    );
  }
  const label = `${seed}/${name}`;
  let key = keys.get(label);
  if (key === undefined) {
    const seedWords: [number, number] = [seed >>> 0, Math.floor(seed / WORD) >>> 0];
    let state = philox([1, name.length, 0, 0], seedWords);
    for (let at = 0; at < name.length; at += 2) {
      const low = name.charCodeAt(at);
      const high = at + 1 < name.length ? name.charCodeAt(at + 1) : 0;
      state = philox([state[0] ^ (low | (high << 16)), state[1], state[2], state[3]], seedWords);
    }
    key = [state[0], state[1]];
    // A run uses a handful of names and one seed; the bound is for callers that iterate over seeds.
    if (keys.size >= 4096) keys.clear();
    keys.set(label, key);
  }
  latest = { seed, name, key };
  return key;
}

/** 53 random bits as a double in [0, 1). */
function toUniform(words: Readonly<Words>): number {
  return ((words[0] >>> 5) * 2 ** 26 + (words[1] >>> 6)) / 2 ** 53;
}

function checkCounter(where: string, name: string, value: number, limit: number): void {
  if (!Number.isInteger(value) || value < 0 || value >= limit) {
    throw new UsageError(
      "out-of-range",
      `${where}: ${name} must be a whole number from 0 to ${limit - 1}, got ${describeValue(value)}`,
    );
  }
}

/**
 * Draw number `index` of the sequence of `key`: uniform in [0, 1) with 53 bits, deterministic.
 *
 * @param index 0 … 2^32 − 1; the position of the token in its generation
 */
export function keyedUniform(key: DrawKey, index: number): number {
  const { seed, stream, episode, node } = key;
  checkCounter("keyedUniform", "episode", episode, COUNTER_LIMIT);
  checkCounter("keyedUniform", "node", node, COUNTER_LIMIT);
  checkCounter("keyedUniform", "index", index, WORD);
  const high = (Math.floor(node / WORD) << 16) | Math.floor(episode / WORD);
  const words: Words = [index, node >>> 0, episode >>> 0, high >>> 0];
  return toUniform(philox(words, deriveKey(seed, stream)));
}
