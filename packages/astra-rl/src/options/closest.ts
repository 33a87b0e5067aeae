/** Edits (insert, delete, replace, swap of neighbours) between two words. */
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

// "learning_rate" for "learningRate" is no typing error, so that only the letters are compared.
const letters = (word: string) => word.toLowerCase().replace(/[^a-z0-9]/g, "");

/** Whether two names are one, written in different ways. */
export const isSameName = (a: string, b: string): boolean => letters(a) === letters(b);

/** "lr" of "learningRate". */
const initials = (word: string) => letters(word.replace(/([A-Za-z])[a-z0-9]*/g, (_, first: string) => first));

/** A shorter word says too little to be found inside another one. */
const SHORTEST_PART = 4;

/**
 * The known word that a mistaken one was most likely meant to be: the one with the fewest different letters, one that
 * contains the other ("treeWidth", "width"), or the one whose initials it is ("lr"). null when none is near, more than a
 * third of the letters being different.
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

/** What is appended to a message about a mistaken word: the nearest known one; empty where none is near. */
export function didYouMean(word: unknown, known: readonly unknown[]): string {
  if (typeof word !== "string") return "";
  const near = closest(
    word,
    known.filter((each) => typeof each === "string"),
  );
  return near === null || near === word ? "" : `; did you mean ${near}?`;
}
