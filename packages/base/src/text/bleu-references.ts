import { UsageError } from "../errors.js";
import { ngramCounts } from "./ngrams.js";

/** Replaces a match count of 0: Chen & Cherry 2014, smoothing 1. */
const EPSILON = 0.1;

/** BLEU orders that self-BLEU averages, as in curiosity-driven red teaming (arXiv 2402.19464). */
const SELF_BLEU_ORDERS = [2, 3, 4, 5] as const;
const LONGEST = 5;

/** N-gram counts of a text, indexed by n − 1. Cached per array, because texts are compared repeatedly. */
const counted = new WeakMap<readonly string[], readonly Map<string, number>[]>();

function countsOf(text: readonly string[]): readonly Map<string, number>[] {
  const known = counted.get(text);
  if (known !== undefined) return known;
  const counts = Array.from({ length: LONGEST }, (_, index) => ngramCounts(text, index + 1));
  counted.set(text, counts);
  return counts;
}

/**
 * BLEU-1 to BLEU-5 of a text against a changing set of references.
 *
 * BLEU only needs each n-gram's maximum count over references and the reference lengths. So a text costs one look-up
 * per n-gram, independent of the number of references, and duplicate references have no effect.
 */
export class BLEUReferences {
  /** Indexed by n − 1, n-gram, c − 1: the number of references that contain the n-gram exactly c times. */
  readonly #holders: Map<string, number[]>[] = Array.from({ length: LONGEST }, () => new Map());
  /** Number of references by length in words. */
  readonly #lengths = new Map<number, number>();
  #count = 0;

  constructor(references: Iterable<readonly string[]> = []) {
    for (const reference of references) this.add(reference);
  }

  /** Current number of references. */
  get count(): number {
    return this.#count;
  }

  /** @param reference the words of a text */
  add(reference: readonly string[]): void {
    this.#count += 1;
    this.#lengths.set(reference.length, (this.#lengths.get(reference.length) ?? 0) + 1);
    const counts = countsOf(reference);
    for (const [index, holders] of this.#holders.entries()) {
      for (const [ngram, count] of counts[index]!) {
        const held = holders.get(ngram) ?? [];
        while (held.length < count) held.push(0);
        held[count - 1]! += 1;
        holders.set(ngram, held);
      }
    }
  }

  /** Removes one reference with these words, which must have been added. */
  remove(reference: readonly string[]): void {
    const same = this.#lengths.get(reference.length) ?? 0;
    if (same === 0)
      throw new UsageError("unknown-reference", "BLEUReferences.remove: no such reference was added");
    this.#count -= 1;
    if (same === 1) this.#lengths.delete(reference.length);
    else this.#lengths.set(reference.length, same - 1);
    const counts = countsOf(reference);
    for (const [index, holders] of this.#holders.entries()) {
      for (const [ngram, count] of counts[index]!) {
        const held = holders.get(ngram)!;
        held[count - 1]! -= 1;
        while (held.at(-1) === 0) held.pop();
        if (held.length === 0) holders.delete(ngram);
      }
    }
  }

  /**
   * BLEU-1 to BLEU-5 of a text: BLEU-n is the brevity penalty times the geometric mean of the clipped precisions of
   * its 1-grams to n-grams (Papineni et al. 2002). Same as NLTK's `sentence_bleu` with `SmoothingFunction().method1`:
   * if no n-gram matches, the match count is 0.1; a text with fewer than n words has no matches; without a common
   * word, all are 0; of two references equally close in length, the shorter one counts.
   *
   * @param text its words
   * @returns BLEU-n at index n − 1; zeros if there are no references
   */
  bleu(text: readonly string[]): number[] {
    const penalty = this.#brevityPenalty(text.length);
    const counts = countsOf(text);
    let logs = 0;
    const values: number[] = [];
    for (const [index, holders] of this.#holders.entries()) {
      let matches = 0;
      let total = 0;
      for (const [ngram, count] of counts[index]!) {
        matches += Math.min(count, holders.get(ngram)?.length ?? 0);
        total += count;
      }
      if (index === 0 && matches === 0) return Array.from({ length: LONGEST }, () => 0);
      logs += Math.log((matches === 0 ? EPSILON : matches) / Math.max(1, total));
      values.push(penalty * Math.exp(logs / (index + 1)));
    }
    return values;
  }

  /** Mean of BLEU-2 to BLEU-5: overlap of a text with the references, from 0 to 1. */
  overlap(text: readonly string[]): number {
    const values = this.bleu(text);
    return SELF_BLEU_ORDERS.reduce((sum, order) => sum + values[order - 1]!, 0) / SELF_BLEU_ORDERS.length;
  }

  #brevityPenalty(length: number): number {
    let closest = Infinity;
    for (const other of this.#lengths.keys()) {
      const [distance, least] = [Math.abs(other - length), Math.abs(closest - length)];
      if (distance < least || (distance === least && other < closest)) closest = other;
    }
    return length > closest ? 1 : Math.exp(1 - closest / length);
  }
}

/**
 * Self-BLEU of a set of texts: the mean over texts of the mean of BLEU-2 to BLEU-5 against all others (Zhu et al.
 * 2018, arXiv 1802.01886); null for fewer than two. 1 if all are the same text of at least five words, near 0 if they
 * share no phrases.
 *
 * @param sequences the words of each text
 */
export function selfBLEU(sequences: readonly (readonly string[])[]): number | null {
  if (sequences.length < 2) return null;
  const references = new BLEUReferences(sequences);
  let sum = 0;
  for (const sequence of sequences) {
    references.remove(sequence);
    sum += references.overlap(sequence);
    references.add(sequence);
  }
  return sum / sequences.length;
}
