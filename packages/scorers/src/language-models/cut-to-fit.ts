/** A text of which a model need not read all. */
export interface Cuttable {
  content: string;
  /** Which end of the content is truncated if it does not fit the context window. Absent: never truncated. */
  cut?: "start" | "end";
}

/**
 * What is made of texts if it fits; otherwise of texts that are truncated by as few characters as possible, the first text before
 * the last. What is made of nothing but the texts that are never truncated may still not fit.
 */
export function cutToFit<T extends Cuttable, M>(
  texts: readonly T[],
  make: (texts: readonly T[]) => M,
  fits: (made: M) => boolean,
): { made: M; isCut: boolean } {
  let shown = texts;
  let made = make(shown);
  for (let at = 0; at < texts.length && !fits(made); at++) {
    const { cut, content } = texts[at]!;
    if (cut === undefined) continue;
    const characters = Array.from(content);
    const keeping = (count: number) => {
      const kept = cut === "end" ? characters.slice(0, count) : characters.slice(characters.length - count);
      return shown.with(at, { ...texts[at]!, content: kept.join("") });
    };
    // Binary search: `low` characters fit, or `low` is 0.
    let [low, high] = [0, characters.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (fits(make(keeping(middle)))) low = middle;
      else high = middle;
    }
    shown = keeping(low);
    made = make(shown);
  }
  return { made, isCut: shown !== texts };
}
