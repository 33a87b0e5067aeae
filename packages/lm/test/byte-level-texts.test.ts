import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Tokenizer } from "../src/tokenizer.js";
import { goldenFamilies } from "./golden/families.js";

interface Definition {
  model: { type: string };
  decoder: { type: string } | null;
  normalizer: { type: string } | null;
}

/**
 * Golden byte-level tokenizers without normalization: for these, decoding inverts encoding. (GPT-2's has its own test;
 * Qwen2's class always normalizes.)
 */
const byteLevel = goldenFamilies.flatMap(({ name, folder }) => {
  const { model, decoder, normalizer } = JSON.parse(
    readFileSync(join(folder, "tokenizer.json"), "utf8"),
  ) as Definition;
  const config = JSON.parse(readFileSync(join(folder, "config.json"), "utf8")) as { model_type: string };
  if (model.type !== "BPE" || decoder?.type !== "ByteLevel" || normalizer || config.model_type === "qwen2")
    return [];
  return [{ name, folder }];
});

const wellFormed = (text: string) => new TextDecoder().decode(new TextEncoder().encode(text));

/** Pieces that are difficult for tokenizers, among arbitrary ones. */
const piece = fc.oneof(
  fc.string({ unit: "grapheme" }),
  fc.string({ unit: "binary" }).map(wellFormed),
  fc.constantFrom(
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "🇩🇪🇫🇷",
    "e\u0301\u0323\u0316",
    "\u0301 alone",
    "שלום עולם",
    "مَرْحَبًا",
    "\u202eabc\u202c",
  ),
  fc.constantFrom(
    "\u0000",
    "\u001b[31m",
    "\u0007\u0008\u007f",
    "\u0085\u2028",
    "\r\n\r\n",
    "\t \u00a0\u3000",
    "\ufeff",
  ),
  fc.constantFrom("'s 'LL", "12345678", "今日は", "ไทย", "\u{1F9FF}\u{10FFFF}", "<|not special|>", "    x"),
);
const text = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(""));

it("covers all byte-level tokenizers", () => {
  expect(byteLevel.map(({ name }) => name)).toEqual(
    expect.arrayContaining(["llama3-sharded", "qwen3", "roberta"]),
  );
});

describe.each(byteLevel)("decoding what the tokenizer of $name encoded", ({ folder }) => {
  it("restores random texts: emoji, combining marks, both directions, controls", async () => {
    const tokenizer = await Tokenizer.load(folder);
    fc.assert(
      fc.property(text, (given) => {
        const ids = tokenizer.encode(given);
        expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(given);
        expect(ids.every((id) => Number.isInteger(id) && id >= 0 && id < tokenizer.vocabSize)).toBe(true);
      }),
      { numRuns: 150 },
    );
  });

  it("restores 100 kB of such text", async () => {
    const tokenizer = await Tokenizer.load(folder);
    const [pieces] = fc.sample(fc.array(piece, { minLength: 200, maxLength: 200 }), { numRuns: 1, seed: 4 });
    const one = pieces!.join(" ");
    const given = one.repeat(Math.ceil(100_000 / Buffer.byteLength(one)));
    expect(Buffer.byteLength(given)).toBeGreaterThanOrEqual(100_000);
    expect(tokenizer.decode(tokenizer.encode(given), { skipSpecialTokens: false })).toBe(given);
  });
});
