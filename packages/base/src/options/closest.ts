/** Edit distance (insert, delete, replace, swap adjacent) between two words. */
function distance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const same = a[row - 1] === b[column - 1];
      let cost = Math.min(last[column]! + 1, current[column - 1]! + 1, last[column - 1]! + (same ? 0 : 1));
      const swapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      if (swapped) cost = Math.min(cost, beforeLast[column - 2]! + 1);
      current.push(cost);
    }
    beforeLast = last;
    last = current;
  }
  return last[b.length]!;
}

// Compares letters and digits only: "learning_rate" for "learningRate" is not a typo.
const letters = (word: string) => word.toLowerCase().replace(/[^a-z0-9]/g, "");

/** Whether two names differ only in case and punctuation. */
export const isSameName = (a: string, b: string): boolean => letters(a) === letters(b);

/** "lr" of "learningRate". */
const initials = (word: string) => letters(word.replace(/([A-Za-z])[a-z0-9]*/g, (_, first: string) => first));

/** Minimum length of a word to be searched for inside another. */
const SHORTEST_PART = 4;

/**
 * The known word most likely meant by a misspelled one: the one with the fewest edits, one that contains the other
 * ("treeWidth", "width"), or one with these initials ("lr"). null if more than a third of the letters differ for all.
 */
export function closest(word: string, known: readonly string[]): string | null {
  let best: string | null = null;
  let least = Infinity;
  for (const candidate of known) {
    const edits = distance(letters(word), letters(candidate));
    const limit = Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3));
    if (edits <= limit && edits < least) [best, least] = [candidate, edits];
  }
  const own = letters(word);
  const containing = known.filter((candidate) => {
    const [shorter, longer] = [own, letters(candidate)].sort((a, b) => a.length - b.length) as [
      string,
      string,
    ];
    return shorter.length >= SHORTEST_PART && longer.includes(shorter);
  });
  return (
    best ??
    containing.sort((a, b) => b.length - a.length)[0] ??
    known.find((candidate) => own.length > 1 && initials(candidate) === own) ??
    null
  );
}

/** Suffix for a message about an unknown word: the closest known one; empty if none is close. */
export function didYouMean(word: unknown, known: readonly unknown[]): string {
  if (typeof word !== "string") return "";
  const near = closest(
    word,
    known.filter((each) => typeof each === "string"),
  );
  return near === null || near === word ? "" : `; did you mean ${near}?`;
}
