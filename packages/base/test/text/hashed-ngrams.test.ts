import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { hashedNgrams } from "../../src/text/index.js";

const options = { buckets: 4096, wordNgrams: [1, 2], characterNgrams: [3] };

/** Independent 32-bit FNV-1a with BigInt arithmetic, to pin the format: weights on disk depend on it. */
function bucket(feature: string, buckets: number): number {
  let hash = 0x811c9dc5n;
  for (const byte of Buffer.from(feature, "utf8")) hash = ((hash ^ BigInt(byte)) * 0x01000193n) % 2n ** 32n;
  return Number((hash ^ (hash >> 15n)) % BigInt(buckets));
}

describe("hashedNgrams", () => {
  it("hashes words, word pairs and marked character triples", () => {
    const features = [
      "w1 don't, w1 go, w1 !, w2 don't go, w2 go !",
      "c3 <do, c3 don, c3 on', c3 n't, c3 't>, c3 <go, c3 go>, c3 <!>",
    ].flatMap((line) => line.split(", "));
    const expected = [...new Set(features.map((feature) => bucket(feature, 4096)))].sort((a, b) => a - b);
    expect([...hashedNgrams("DON’T  go!", options)]).toEqual(expected);
  });

  it("agrees with FNV-1a on text beyond ASCII", () => {
    expect([...hashedNgrams("ñandú", { buckets: 2 ** 20, wordNgrams: [1], characterNgrams: [] })]).toEqual([
      bucket("w1 ñandú", 2 ** 20),
    ]);
  });

  it("gives distinct buckets in order and in range, whatever the text", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const features = [...hashedNgrams(text, options)];
        expect(features).toEqual([...new Set(features)].sort((a, b) => a - b));
        expect(features.every((feature) => feature >= 0 && feature < 4096)).toBe(true);
      }),
    );
  });

  it("counts nothing in an empty text and everything once in a repeated one", () => {
    expect(hashedNgrams(" \n", options)).toHaveLength(0);
    expect(hashedNgrams("go go go go", options)).toEqual(hashedNgrams("go go go", options));
  });
});
