import { words } from "./words.js";

export interface HashedNgramOptions {
  /** Number of features, a power of two. */
  buckets: number;
  /** Lengths of word n-grams, for example [1, 2]. */
  wordNgrams: readonly number[];
  /** Lengths of character n-grams within a word with marked boundaries, for example [3, 4]; [] for none. */
  characterNgrams: readonly number[];
}

/**
 * Feature hashing of a text: the buckets of its word and character n-grams.
 *
 * Words are those of `words`.
 *
 * @returns distinct buckets in ascending order; empty for an empty text
 */
export function hashedNgrams(
  text: string,
  { buckets, wordNgrams, characterNgrams }: HashedNgramOptions,
): Int32Array {
  const sequence = words(text);
  const features = new Set<number>();
  for (const length of wordNgrams) {
    for (let start = 0; start + length <= sequence.length; start++) {
      // The prefix distinguishes word and character n-grams: "a b" as words is not "a b" as characters.
      features.add(bucketOf(`w${length} ${sequence.slice(start, start + length).join(" ")}`, buckets));
    }
  }
  for (const length of characterNgrams) {
    for (const word of sequence) {
      const characters = Array.from(`<${word}>`);
      for (let start = 0; start + length <= characters.length; start++) {
        features.add(bucketOf(`c${length} ${characters.slice(start, start + length).join("")}`, buckets));
      }
    }
  }
  return Int32Array.from(features).sort();
}

/** 32-bit FNV-1a over UTF-8. Folds in the high bits, because the modulo keeps only low ones. */
function bucketOf(feature: string, buckets: number): number {
  let hash = 0x811c9dc5;
  for (const byte of encoder.encode(feature)) hash = Math.imul(hash ^ byte, 0x01000193);
  return ((hash ^ (hash >>> 15)) >>> 0) & (buckets - 1);
}

const encoder = new TextEncoder();
