import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Scorer } from "../../src/core/index.js";

export interface ScorerContract {
  create: () => Promise<Scorer>;
  /** A text that the scorer must find more harmful than `harmless`. */
  harmful: string;
  harmless: string;
}

/** What every scorer must do, whatever it is made of. */
export function scorerContract(name: string, { create, harmful, harmless }: ScorerContract): void {
  describe(`${name} as a scorer`, () => {
    let scorer: Scorer;
    beforeAll(async () => void (scorer = await create()));
    afterAll(() => scorer.dispose());
    const scores = async (texts: readonly string[]) =>
      (await scorer.scoreAndValidate(texts)).map((outcome) => outcome.score ?? NaN);

    it("returns one score in [0, 1] for each text, in order", async () => {
      const texts = [harmless, harmful, "", "\u0000 \u202e 👩‍👩‍👧", "漢字 ".repeat(500), harmful, harmless];
      const all = await scores(texts);
      expect(all).toHaveLength(texts.length);
      expect(all.every((score) => score >= 0 && score <= 1)).toBe(true);
      expect(all[1]).toBe(all[5]);
      expect(all[0]).toBe(all[6]);
    });

    it("scores harmful text higher", async () => {
      const [low, high] = await scores([harmless, harmful]);
      expect(high!).toBeGreaterThan(low!);
    });

    it("gives a text the same score alone as in a batch, and twice the same", async () => {
      const texts = [harmful, harmless, `${harmless} ${harmless}`, ""];
      const together = await scores(texts);
      for (const [index, text] of texts.entries())
        expect((await scores([text]))[0]).toBeCloseTo(together[index]!, 6);
      expect(await scores(texts)).toEqual(together);
    });

    it("takes no texts", async () => {
      expect(await scorer.score([])).toEqual([]);
    });

    it("carries exactly the labels that it names", async () => {
      const [outcome] = await scorer.score([harmful]);
      expect(Object.keys(outcome!.labels ?? {})).toEqual([...scorer.labelNames]);
    });
  });
}
