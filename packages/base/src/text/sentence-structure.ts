/** English function words, which carry grammar rather than content. */
const FUNCTION_WORDS = new Set(
  (
    "a an the this that these those my your his her its our their some any no every each all both either neither " +
    "i you he she it we they me him us them mine yours hers ours theirs myself yourself himself herself itself " +
    "who whom whose which what where when why how and or but nor so yet if then because although though while " +
    "unless until since as than of in on at by for with about against between into through during before after " +
    "above below to from up down out off over under again near without within am is are was were be been being " +
    "have has had having do does did doing will would shall should can could may might must ought not never " +
    "there here just only also too very more most less least such own same other another let please " +
    "i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd she'd we'd they'd i'll you'll " +
    "he'll she'll we'll they'll isn't aren't wasn't weren't haven't hasn't hadn't don't doesn't didn't won't wouldn't " +
    "can't couldn't shouldn't mustn't that's what's who's where's how's there's let's"
  ).split(" "),
);

/** Stands for one or more content words in a row. */
const CONTENT = "…";

/**
 * The grammatical skeleton of a sentence: function words and punctuation unchanged, each run of content words as "…".
 * So "Is the film long?" and "Is the old house cold?" have one structure. A cheap stand-in for part-of-speech templates
 * (Shaib et al. 2024, arXiv 2407.00211); it supports English only, and of other languages keeps the punctuation.
 *
 * @param words as `words` returns them
 */
export function sentenceStructure(words: readonly string[]): string[] {
  const structure: string[] = [];
  for (const word of words) {
    const isContent = /^[\p{L}\p{N}]/u.test(word) && !FUNCTION_WORDS.has(word);
    if (!isContent) structure.push(word);
    else if (structure.at(-1) !== CONTENT) structure.push(CONTENT);
  }
  return structure;
}

/**
 * Levenshtein distance of two sequences divided by the length of the longer one: 0 for equal ones, 1 for sequences without
 * anything in common; 0 for two empty ones.
 */
export function editDistance(a: readonly string[], b: readonly string[]): number {
  if (a.length === 0 && b.length === 0) return 0;
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (const [i, left] of a.entries()) {
    const next = [i + 1];
    for (const [j, right] of b.entries()) {
      next.push(Math.min(next[j]! + 1, row[j + 1]! + 1, row[j]! + (left === right ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length]! / Math.max(a.length, b.length);
}
