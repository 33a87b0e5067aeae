import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodeText, StopDetector } from "../../src/generation/stop.js";
import { TextStream } from "../../src/index.js";
import { namedCodecs } from "../format/codecs.js";

const codecs = await namedCodecs();

describe.each(codecs)("a stream of text with $name", ({ codec, tokenizer }) => {
  const texts = fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 12 }),
    fc.constantFrom(
      "Hello, you fool.\nUser: no",
      "😀😀 今天天气很好",
      "one two  three\n\n\nfour",
      "a\u0301é 🇫🇷",
    ),
  );
  const ids = fc.oneof(
    texts.map((text) => tokenizer.encode(text)),
    fc.array(fc.integer({ min: 0, max: tokenizer.vocabSize - 1 }), { maxLength: 10 }),
  );

  it("gives pieces that join to the text of all ids", () => {
    fc.assert(
      fc.property(ids, (sampled) => {
        const stream = new TextStream(codec);
        const text = decodeText(codec, sampled);
        let told = sampled.map((id) => stream.push(id)).join("");
        // Ids that are not complete characters may be decoded differently once others follow.
        fc.pre(!text.includes("\uFFFD"));
        expect(text.startsWith(told)).toBe(true);
        told += stream.end(text);
        expect(told).toBe(text);
        expect(stream.isTold).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  it.each([false, true])("never emits what a stop string cuts off (within tokens: %s)", (withinTokens) => {
    const given = fc.oneof(
      fc.constant(["\nUser", "you f", "two  th", "😀", "天气"]),
      // Any part of the text, at any position within a token.
      fc.array(fc.string({ unit: "grapheme", minLength: 1, maxLength: 2 }), { minLength: 1, maxLength: 3 }),
      fc.constantFrom([" "], ["o"], ["l", "n"], ["\n"], ["e"], ["天"]),
    );
    fc.assert(
      fc.property(texts, given, (written, stops) => {
        const sampled = tokenizer.encode(written);
        const stream = new TextStream(codec, stops, { withinTokens });
        const detector = new StopDetector(codec, stops, { withinTokens });
        let told = "";
        for (const [at, id] of sampled.entries()) {
          const cut = detector.find(sampled.slice(0, at + 1));
          told += stream.push(id);
          if (cut !== null) {
            expect(cut.text.startsWith(told)).toBe(true);
            expect(told + stream.end(cut.text)).toBe(cut.text);
            return;
          }
        }
        expect(told + stream.end(decodeText(codec, sampled))).toBe(decodeText(codec, sampled));
      }),
      { numRuns: 150 },
    );
  });
});

it("emits complete characters at once and holds incomplete ones back", () => {
  const pieces = new Map([
    [1, [0xf0, 0x9f]],
    [2, [0x98, 0x80]],
    [3, [0x61]],
  ]);
  const decode = (ids: readonly number[]) =>
    Buffer.from(ids.flatMap((id) => pieces.get(id)!)).toString("utf8");
  const stream = new TextStream({ decode });
  expect([3, 1, 2, 3].map((id) => stream.push(id))).toEqual(["a", "", "😀", "a"]);
});
