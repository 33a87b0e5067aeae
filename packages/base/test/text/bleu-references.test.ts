import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BLEUReferences, selfBLEU } from "../../src/text/index.js";

interface Golden {
  cases: { references: string[]; hypotheses: { text: string; bleu: number[] }[] }[];
}
const golden = JSON.parse(readFileSync(new URL("golden/bleu.json", import.meta.url), "utf8")) as Golden;
const cut = (text: string) => text.split(" ");

/** BLEU-1 to BLEU-5 as they are defined, over all references anew. */
function simpleBLEU(references: readonly string[][], text: readonly string[]): number[] {
  if (references.length === 0) return [0, 0, 0, 0, 0];
  const count = (words: readonly string[], ngram: string, n: number) =>
    words.filter((_, start) => start + n <= words.length && words.slice(start, start + n).join(" ") === ngram)
      .length;
  const precisions = [1, 2, 3, 4, 5].map((n) => {
    const all = text
      .slice(0, Math.max(0, text.length - n + 1))
      .map((_, at) => text.slice(at, at + n).join(" "));
    const matches = [...new Set(all)].map((ngram) => {
      const most = Math.max(...references.map((reference) => count(reference, ngram, n)));
      return Math.min(count(text, ngram, n), most);
    });
    const sum = matches.reduce((total, match) => total + match, 0);
    return { sum, value: (sum === 0 ? 0.1 : sum) / Math.max(1, all.length) };
  });
  if (precisions[0]!.sum === 0) return [0, 0, 0, 0, 0];
  const lengths = references.map(({ length }) => length);
  const far = (length: number) => Math.abs(length - text.length);
  const closest = lengths.reduce((a, b) => (far(b) < far(a) || (far(b) === far(a) && b < a) ? b : a));
  const penalty = text.length > closest ? 1 : Math.exp(1 - closest / text.length);
  return [1, 2, 3, 4, 5].map((n) => {
    const product = precisions.slice(0, n).reduce((total, { value }) => total * value, 1);
    return penalty * product ** (1 / n);
  });
}

describe("BLEUReferences", () => {
  it("gives NLTK's values", () => {
    let compared = 0;
    for (const { references, hypotheses } of golden.cases) {
      const known = new BLEUReferences(references.map(cut));
      for (const { text, bleu } of hypotheses) {
        known.bleu(cut(text)).forEach((value, index) => expect(value).toBeCloseTo(bleu[index]!, 12));
        compared += 1;
      }
    }
    expect(compared).toBe(30);
  });

  it("agrees with a small case computed by hand", () => {
    // "a b a c" against "a b" and "a c d e f": 1-grams a (at most 1 in any reference), b, c: 3 of 4. 2-grams "a b" and
    // "a c" of 3. No 3-gram: 0.1 of 2; no 4-gram: 0.1 of 1; no 5-gram at all: 0.1. Lengths 2 and 5: 5 is closer to 4.
    const references = new BLEUReferences([
      ["a", "b"],
      ["a", "c", "d", "e", "f"],
    ]);
    const penalty = Math.exp(1 - 5 / 4);
    const products = [0.75, 0.75 * (2 / 3), 0.5 * 0.05, 0.025 * 0.1, 0.0025 * 0.1];
    references
      .bleu(["a", "b", "a", "c"])
      .forEach((value, index) =>
        expect(value).toBeCloseTo(penalty * products[index]! ** (1 / (index + 1)), 14),
      );
    expect(references.overlap(["a", "b", "a", "c"])).toBeCloseTo(
      (penalty * (0.5 ** 0.5 + 0.025 ** (1 / 3) + 0.0025 ** 0.25 + 0.00025 ** 0.2)) / 4,
      14,
    );
  });

  it("is 0 for new words, and 1 for a text among the references", () => {
    const references = new BLEUReferences();
    expect(references.overlap(["a", "b"])).toBe(0);
    references.add(["a", "b", "c", "d", "e", "f"]);
    expect(references.overlap(["a", "b", "c", "d", "e", "f"])).toBe(1);
    expect(references.overlap(["x", "y", "z"])).toBe(0);
    expect(references.overlap([])).toBe(0);
  });

  it("follows its definition after any additions and removals", () => {
    const words = fc.array(fc.constantFrom("a", "b", "c", "d"), { maxLength: 9 });
    fc.assert(
      fc.property(
        fc.array(words, { maxLength: 8 }),
        fc.array(words, { maxLength: 5 }),
        words,
        (kept, gone, text) => {
          const references = new BLEUReferences();
          for (const [at, reference] of gone.entries()) {
            references.add(reference);
            if (kept[at] !== undefined) references.add(kept[at]);
          }
          for (const reference of kept.slice(gone.length)) references.add(reference);
          for (const reference of gone) references.remove(reference);
          expect(references.count).toBe(kept.length);
          const expected = simpleBLEU(kept, text);
          references.bleu(text).forEach((value, index) => expect(value).toBeCloseTo(expected[index]!, 12));
          // A reference that is there twice counts as once.
          for (const reference of kept) references.add(reference);
          references.bleu(text).forEach((value, index) => expect(value).toBeCloseTo(expected[index]!, 12));
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe("selfBLEU", () => {
  it("is the mean over texts of their overlap with the others", () => {
    const texts = [cut("a b c d e"), cut("a b x y z"), cut("q r s t u")];
    const others = texts.map((_, at) => texts.filter((__, other) => other !== at));
    const mean =
      texts.reduce((sum, text, at) => {
        const bleu = simpleBLEU(others[at]!, text);
        return sum + (bleu[1]! + bleu[2]! + bleu[3]! + bleu[4]!) / 4;
      }, 0) / 3;
    expect(selfBLEU(texts)).toBeCloseTo(mean, 12);
    expect(mean).toBeGreaterThan(0.05);
  });

  it("is 1 for one repeated text, and unknown for a single text", () => {
    expect(selfBLEU([cut("a b c d e"), cut("a b c d e"), cut("a b c d e")])).toBe(1);
    expect(selfBLEU([cut("a b")])).toBeNull();
    expect(selfBLEU([])).toBeNull();
  });
});
