import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { Tokenizer } from "../src/tokenizer.js";

interface Recipe {
  files: Record<string, unknown>;
  /** Per text. */
  ids: number[][];
  size: number;
  framed: Record<string, number[]>;
  /**
   * Ids, then their text: without special tokens, with and without the files' cleanup of spaces; then the same with
   * special tokens.
   */
  texts: [ids: number[], skipped: string, skippedPlain: string, kept: string, keptPlain: string][];
  special: { bos_token: number | null; eos_token: number | null; pad_token: number | null };
}

/** Made by golden/tokenizers/make_tokenizers.py, which says with which versions. */
const golden = JSON.parse(
  gunzipSync(
    readFileSync(fileURLToPath(new URL("golden/tokenizers/golden.json.gz", import.meta.url))),
  ).toString(),
) as { texts: string[]; recipes: Record<string, Recipe> };

const tokenizerOf = ({ files }: Recipe) =>
  Tokenizer.fromFiles(
    new Map(Object.entries(files).map(([name, content]) => [name, Buffer.from(JSON.stringify(content))])),
  );

it("covers the components that checkpoints use", () => {
  expect(Object.keys(golden.recipes).length).toBeGreaterThanOrEqual(90);
  expect(golden.texts.length).toBeGreaterThanOrEqual(270);
});

describe.each(Object.entries(golden.recipes))("%s, as in Python", (_, recipe) => {
  const tokenizer = tokenizerOf(recipe);

  it("encodes", () => {
    const found = golden.texts.map((text) => [text, tokenizer.encode(text)]);
    expect(found).toEqual(golden.texts.map((text, index) => [text, recipe.ids[index]]));
  });

  it("adds special tokens around a text", () => {
    for (const [text, ids] of Object.entries(recipe.framed)) {
      expect(tokenizer.encode(text, { addSpecialTokens: true })).toEqual(ids);
      expect([...tokenizer.prefixIds, ...tokenizer.encode(text), ...tokenizer.suffixIds]).toEqual(ids);
    }
  });

  it("decodes", () => {
    const found = recipe.texts.map(([ids]) => [
      ids,
      tokenizer.decode(ids),
      tokenizer.decode(ids, { cleanUpSpaces: false }),
      tokenizer.decode(ids, { skipSpecialTokens: false }),
      tokenizer.decode(ids, { skipSpecialTokens: false, cleanUpSpaces: false }),
    ]);
    expect(found).toEqual(recipe.texts);
  });

  it("knows its special tokens and its size", () => {
    expect(tokenizer.vocabSize).toBe(recipe.size);
    const { bosId, eosId, padId } = tokenizer;
    expect({ bos_token: bosId, eos_token: eosId, pad_token: padId }).toEqual(recipe.special);
  });
});
