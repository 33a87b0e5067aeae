import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { UsageError } from "@astra-rl/base";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { Tokenizer } from "../src/tokenizer.js";
import { goldenFolder, golden } from "./golden/gpt2.js";

/** Lone surrogates are not valid text: they become U+FFFD. */
const wellFormed = (text: string) => Buffer.from(text).toString();

const bytes = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));

describe("Tokenizer on a byte-level vocabulary", () => {
  let tokenizer: Tokenizer;
  let folder: string;
  beforeAll(async () => {
    tokenizer = await Tokenizer.load(goldenFolder);
    folder = await mkdtemp(join(tmpdir(), "tokenizer-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it.each(golden.tokenizer)("gives the ids of the Python library for $text", ({ text, ids, decoded }) => {
    expect(tokenizer.encode(text)).toEqual(ids);
    expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(decoded);
  });

  it("knows its special tokens and its size", () => {
    expect(tokenizer).toMatchObject({ vocabSize: 320, bosId: 0, eosId: 0, padId: null });
    expect(tokenizer.idOf("<|endoftext|>")).toBe(0);
    expect(tokenizer.idOf("no such token")).toBeNull();
  });

  it("omits special tokens from the text unless requested", () => {
    const ids = tokenizer.encode("a<|endoftext|>b");
    expect(tokenizer.decode(ids)).toBe("ab");
    expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe("a<|endoftext|>b");
  });

  it("decodes no ids to an empty text, and skips ids of a padded vocabulary", () => {
    expect(tokenizer.decode([])).toBe("");
    expect(tokenizer.decode([0])).toBe("");
    expect(tokenizer.decode([999, ...tokenizer.encode("x"), 100_000])).toBe("x");
  });

  it("refuses values that are not texts or ids", () => {
    expect(() => tokenizer.encode(3 as never)).toThrow(breaking("text-not-a-string", "3"));
    expect(() => tokenizer.decode([1.5])).toThrow(breaking("invalid-token-id", "1.5"));
    expect(() => tokenizer.decode([-1])).toThrow(breaking("invalid-token-id", "-1"));
  });

  it("restores every well-formed text: any script, combining marks, controls, directions", () => {
    const unit = fc.oneof(
      fc.string({ unit: "grapheme" }),
      fc.string({ unit: "binary" }).map(wellFormed),
      fc.constantFrom(
        "\u0301",
        "\u202e",
        "\u200d",
        "\ufeff",
        "\u0000",
        "שלום",
        "مرحبا",
        "👩‍👩‍👧",
        "  ",
        "\r\n",
        "'s",
      ),
    );
    fc.assert(
      fc.property(fc.array(unit, { maxLength: 12 }), (parts) => {
        const text = parts.join("");
        const ids = tokenizer.encode(text);
        expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(text);
        expect(ids.every((id) => id >= 0 && id < tokenizer.vocabSize)).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it("encodes 100 kB", () => {
    const text = "The lamp 🔥 was warm, שלום. ".repeat(3500);
    expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
  });

  it("saves its files byte for byte", async () => {
    await tokenizer.save(folder);
    expect([...tokenizer.directoryFiles.keys()]).toEqual(["tokenizer.json", "tokenizer_config.json"]);
    for (const name of tokenizer.directoryFiles.keys()) {
      expect(await readFile(join(folder, name))).toEqual(await readFile(join(goldenFolder, name)));
    }
    await writeFile(join(folder, "tokenizer.json"), "{");
    await expect(Tokenizer.load(folder)).rejects.toThrow(breaking("not-json", "tokenizer.json"));
  });
});

describe("Tokenizer on malformed files", () => {
  const definition = () =>
    JSON.parse(new TextDecoder().decode(goldenTokenizerJson)) as Record<string, unknown> & {
      model: Record<string, unknown>;
      added_tokens: unknown[];
    };
  let goldenTokenizerJson: Uint8Array;
  beforeAll(async () => {
    goldenTokenizerJson = await readFile(join(goldenFolder, "tokenizer.json"));
  });
  const make = (json: unknown, settings: unknown = {}) =>
    Tokenizer.fromFiles(
      new Map([
        ["tokenizer.json", bytes(json)],
        ["tokenizer_config.json", bytes(settings)],
      ]),
      "here",
    );

  it.each([
    [
      "no tokenizer.json",
      () => Tokenizer.fromFiles(new Map(), "here"),
      /^here: a tokenizer needs tokenizer\.json/,
    ],
    ["a list", () => make([1]), /^here\/tokenizer\.json: must hold a JSON object/],
    [
      "no model",
      () => make({ ...definition(), model: undefined }),
      /^here\/tokenizer\.json: is not a usable tokenizer/,
    ],
    [
      "a vocabulary of the wrong type",
      () => make({ ...definition(), model: { type: "BPE", vocab: 3, merges: [] } }),
      /^here\/tokenizer\.json: /,
    ],
    [
      "an unknown model",
      () => make({ ...definition(), model: { ...definition().model, type: "Magic" } }),
      /^here\/tokenizer\.json: /,
    ],
    [
      "an id that is not a number",
      () => make({ ...definition(), model: { ...definition().model, vocab: { a: "x" } } }),
      /^here\/tokenizer\.json: /,
    ],
    [
      "an absurd id",
      () => make({ ...definition(), model: { ...definition().model, vocab: { a: 1e12 } } }),
      /integers from 0 to 16777216, got 1000000000000 for "a"/,
    ],
    [
      "an added token without text",
      () => make({ ...definition(), added_tokens: [{ id: 3 }] }),
      /must have its text under "content"/,
    ],
    [
      "added tokens of the wrong type",
      () => make({ ...definition(), added_tokens: 7 }),
      /"added_tokens" must be a list/,
    ],
    [
      "settings that are no object",
      () => make(definition(), 5),
      /^here\/tokenizer_config\.json: must hold a JSON object/,
    ],
    [
      "bytes that are no text",
      () => Tokenizer.fromFiles(new Map([["tokenizer.json", Uint8Array.of(0xff, 0xfe)]]), "here"),
      /cannot be parsed/,
    ],
  ])("refuses %s", (_, attempt, message) => {
    expect(attempt).toThrow(UsageError);
    expect(attempt).toThrow(message);
  });

  it("reads files of the first releases, which have no model type", () => {
    const { type: _, ...model } = definition().model;
    const tokenizer = make({ ...definition(), model });
    for (const { text, ids } of golden.tokenizer) expect(tokenizer.encode(text)).toEqual(ids);
  });

  it("reads added tokens that only tokenizer_config.json lists, and special tokens given as objects", () => {
    const tokenizer = make(definition(), {
      added_tokens_decoder: { 320: { content: "<pad>", special: true, normalized: false } },
      pad_token: { content: "<pad>" },
    });
    expect(tokenizer).toMatchObject({ vocabSize: 321, padId: 320, eosId: null });
    expect(tokenizer.encode("a<pad>").at(-1)).toBe(320);
  });
});
