import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { UsageError } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import { Tokenizer } from "../src/tokenizer.js";

interface Recipe {
  /** Base64, by name. */
  files: Record<string, string>;
  size: number;
  /** Per text, without special tokens. */
  ids: number[][];
  /** Of "a framed text", with special tokens. */
  framed: number[];
  /** Of every seventh row of ids. */
  decoded: string[];
}

/** Made by golden/tokenizers/make_vocabularies.py, which says with which versions. */
const golden = JSON.parse(
  gunzipSync(
    readFileSync(fileURLToPath(new URL("golden/tokenizers/vocabularies.json.gz", import.meta.url))),
  ).toString(),
) as { texts: string[]; recipes: Record<string, Recipe> };

const filesOf = (name: string) =>
  new Map<string, Uint8Array>(
    Object.entries(golden.recipes[name]!.files).map(([file, content]) => [
      file,
      Buffer.from(content, "base64"),
    ]),
  );

it("covers the three kinds of vocabularies", () => {
  expect(Object.keys(golden.recipes)).toEqual(
    expect.arrayContaining(["bert published", "roberta published", "gpt2", "xlm-roberta published"]),
  );
  expect(golden.texts.length).toBeGreaterThanOrEqual(270);
});

describe.each(Object.keys(golden.recipes))("%s, without tokenizer.json, as in Python", (name) => {
  const recipe = golden.recipes[name]!;
  const tokenizer = Tokenizer.fromFiles(filesOf(name));

  it("encodes", () => {
    const found = golden.texts.map((text) => [text, tokenizer.encode(text)]);
    expect(found).toEqual(golden.texts.map((text, index) => [text, recipe.ids[index]]));
  });

  it("adds special tokens around a text", () => {
    expect(tokenizer.encode("a framed text", { addSpecialTokens: true })).toEqual(recipe.framed);
  });

  it("decodes", () => {
    const rows = recipe.ids.filter((_, index) => index % 7 === 0);
    expect(rows.map((ids) => tokenizer.decode(ids, { cleanUpSpaces: false }))).toEqual(recipe.decoded);
  });

  it("has as many ids", () => {
    // Python counts tokens: four of the lines occur twice, and their first ids are unused.
    expect(tokenizer.vocabSize).toBe(name === "bert odd lines" ? recipe.size + 4 : recipe.size);
  });
});

describe("unusable vocabulary files", () => {
  const changed = (name: string, changes: Record<string, string | Uint8Array | null>) => {
    const files = filesOf(name);
    for (const [file, content] of Object.entries(changes)) {
      if (content === null) files.delete(file);
      else files.set(file, Buffer.from(content as string));
    }
    return () => Tokenizer.fromFiles(files, "model");
  };
  const piece = (...fields: number[]) => Buffer.from([0x0a, fields.length, ...fields]);
  // The piece "a" of score 0 and a trainer specification with model_type 2, byte-pair encoding.
  const bytePairs = Buffer.concat([piece(0x0a, 1, 0x61), Buffer.from([0x12, 2, 0x18, 2])]);

  it.each<[string, () => Tokenizer, RegExp]>([
    [
      "no merges",
      changed("roberta", { "merges.txt": null }),
      /needs tokenizer\.json, or vocab\.json and merges\.txt/,
    ],
    [
      "no vocabulary",
      changed("bert", { "vocab.txt": null }),
      /needs tokenizer\.json, or vocab\.txt, but there is none$/,
    ],
    [
      "a class that nothing names",
      changed("bert", { "config.json": "{}" }),
      /needs tokenizer\.json, but there is none \(found: vocab\.txt; /,
    ],
    [
      "a merge of three",
      changed("roberta", { "merges.txt": "#version: 0.2\nt h\na b c\n" }),
      /merges\.txt: line 3 must be two tokens with a space between them, got "a b c"/,
    ],
    [
      "bytes that are no text",
      changed("bert", { "vocab.txt": Uint8Array.of(0x61, 0xff) }),
      /vocab\.txt: must be UTF-8/,
    ],
    [
      "no unknown token",
      changed("bert", { "vocab.txt": "a\nb\n" }),
      /vocab\.txt: "model" \(WordPiece\): "unk_token"/,
    ],
    [
      "a file that is not a SentencePiece model",
      changed("xlm-roberta published", { "sentencepiece.bpe.model": "<!doctype html>" }),
      /sentencepiece\.bpe\.model: is not a SentencePiece model/,
    ],
    [
      "an empty one",
      changed("xlm-roberta published", { "sentencepiece.bpe.model": "" }),
      /is not a SentencePiece model/,
    ],
    [
      "one of byte pairs",
      changed("xlm-roberta published", { "sentencepiece.bpe.model": bytePairs }),
      /must be a unigram model \(type 1\), got one of type 2/,
    ],
  ])("%s", (_, load, message) => {
    expect(load).toThrow(UsageError);
    expect(load).toThrow(message);
    expect(load).toThrow(/^model[/:]/);
  });

  it("a SentencePiece model truncated anywhere is refused", () => {
    const whole = filesOf("xlm-roberta published").get("sentencepiece.bpe.model")!;
    for (let length = 1; length < 4000; length += 37) {
      const load = changed("xlm-roberta published", { "sentencepiece.bpe.model": whole.subarray(0, length) });
      try {
        load();
      } catch (error) {
        expect(error).toBeInstanceOf(UsageError);
      }
    }
  });
});
