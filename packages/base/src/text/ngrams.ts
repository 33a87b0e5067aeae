/** Separator between the words of an n-gram; words contain no white space. */
const GAP = " ";

/** Counts n-grams of `length` words, keyed by the words joined with spaces. */
export function ngramCounts(sequence: readonly string[], length: number): Map<string, number> {
  const counts = new Map<string, number>();
  for (let start = 0; start + length <= sequence.length; start++) {
    const name = sequence.slice(start, start + length).join(GAP);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

/**
 * Distinct-n: distinct n-grams of all texts divided by all their n-grams (Li et al. 2016, arXiv 1510.03055); null if
 * no text has n words.
 *
 * @param sequences the words of each text
 */
export function distinctNgrams(sequences: readonly (readonly string[])[], length: number): number | null {
  const different = new Set<string>();
  let all = 0;
  for (const sequence of sequences) {
    for (const [name, count] of ngramCounts(sequence, length)) {
      different.add(name);
      all += count;
    }
  }
  return all === 0 ? null : different.size / all;
}
