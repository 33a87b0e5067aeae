import { describe, expect, it } from "vitest";
import { Tokenizer } from "../src/tokenizer.js";

/** A vocabulary file of BERT's kind: one token a line. */
function vocabulary(words: readonly string[]): Map<string, Uint8Array> {
  const text = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ...words].join("\n");
  return new Map([
    ["vocab.txt", Buffer.from(text)],
    ["tokenizer_config.json", Buffer.from(`{"tokenizer_class": "BertTokenizer"}`)],
  ]);
}

describe("the fingerprint of a tokenizer", () => {
  it("depends on its files: equal for two that were loaded separately, in any order of files", () => {
    const files = vocabulary(["tea", "rain"]);
    const reversed = new Map([...files].reverse());
    const [one, other] = [Tokenizer.fromFiles(files), Tokenizer.fromFiles(reversed)];
    expect(one.fingerprint).toMatch(/^[0-9a-f]{64}$/u);
    expect(other.fingerprint).toBe(one.fingerprint);
    expect(Tokenizer.fromFiles(vocabulary(["rain", "tea"])).fingerprint).not.toBe(one.fingerprint);
  });

  it("depends only on tokenizer.json if there is one", () => {
    const vocab = { "[UNK]": 0, tea: 1 };
    const json = JSON.stringify({
      version: "1.0",
      added_tokens: [],
      model: { type: "WordLevel", vocab, unk_token: "[UNK]" },
    });
    const files = new Map([["tokenizer.json", Buffer.from(json)]]);
    const more = new Map([
      ...files,
      ["tokenizer_config.json", Buffer.from(`{"padding_side": "left"}`)] as const,
    ]);
    expect(Tokenizer.fromFiles(more).fingerprint).toBe(Tokenizer.fromFiles(files).fingerprint);
  });
});
