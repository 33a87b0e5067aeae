import { describeValue, UsageError } from "@astra-rl/torch";

// Random numbers that are a function of their name. A draw is looked up, never taken from a shared stream, so that
// neither batching, nor the order of rows, nor a resumed run changes it.
//
// The function is Philox-4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011): a 128-bit counter under a 64-bit key. The key comes from (seed, stream name), the counter from
// (episode, node, index).

/** Names one sequence of draws. */
export interface DrawKey {
  /** Any safe integer; 0 is a seed like every other. */
  seed: number;
  /** Which kind of draw, for example "tester" or "prompts"; unlike names give unrelated draws. */
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

/** High 32 bits of the 64-bit product: JavaScript has only the low ones (`Math.imul`). */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  // Both sums are at most 65535² + 65535 < 2^32: nothing is lost where they wrap around as signed words.
  const middle = (Math.imul(aHigh, bLow) + (Math.imul(aLow, bLow) >>> 16)) | 0;
  const cross = (Math.imul(aLow, bHigh) + (middle & 0xffff)) | 0;
  return (Math.imul(aHigh, bHigh) + (middle >>> 16) + (cross >>> 16)) >>> 0;
}

/** One block of Philox-4x32-10: four 32-bit words of the counter and two of the key give four random words. */
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

/** Keys of (seed, stream name), since every row of every utterance asks for the same few. */
const keys = new Map<string, [number, number]>();
/** The one that was asked for last: looking it up costs more than a block. */
let latest: { seed: number; name: string; key: [number, number] } | null = null;

/**
 * 64 bits from a seed and a name: the name's code units are absorbed two at a time, each block encrypted
 * under the seed and fed into the next, so that names of any length and look differ everywhere.
 */
function deriveKey(seed: number, name: string): [number, number] {
  if (latest !== null && latest.seed === seed && latest.name === name) return latest.key;
  if (!Number.isSafeInteger(seed)) {
    throw new UsageError(`keyedUniform: a seed must be a whole number, got ${describeValue(seed)}`);
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
    // A run uses a handful of names and one seed; the bound only guards a caller that walks through seeds.
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
      `${where}: ${name} must be a whole number from 0 to ${limit - 1}, got ${describeValue(value)}`,
    );
  }
}

/**
 * The draw number `index` of the sequence that `key` names: uniform in [0, 1) with 53 bits, always the same.
 *
 * @param index 0 … 2^32 − 1; the position of the token in its utterance
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
