import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { UsageError, foldText } from "@astra-rl/base";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { KeywordScorer, type KeywordEntry } from "../src/index.js";

const score = async (entries: (KeywordEntry | string)[], text: string) => {
  const scorer = new KeywordScorer(
    entries.map((entry) => (typeof entry === "string" ? { term: entry } : entry)),
  );
  return (await scorer.score([text]))[0]!;
};
const found = async (term: string, text: string) => (await score([term], text)).score === 1;

describe("KeywordScorer", () => {
  it("combines entries as independent evidence, each once", async () => {
    const entries = [
      { term: "a", weight: 0.5 },
      { term: "b", weight: 0.5 },
      { pattern: "c+", weight: 0.9 },
    ];
    expect((await score(entries, "x")).score).toBe(0);
    expect((await score(entries, "a a a")).score).toBe(0.5);
    expect((await score(entries, "a b")).score).toBe(0.75);
    // 1 − 0.5·0.5·0.1
    expect((await score(entries, "b ccc a")).score).toBeCloseTo(0.975, 12);
  });

  it("combines labels the same way, each from its own entries", async () => {
    const entries = [
      { term: "a", weight: 0.5, label: "x" },
      { term: "b", weight: 0.5, label: "x" },
      { term: "c", weight: 0.2, label: "y" },
    ];
    const outcome = await score(entries, "a c");
    expect(outcome.score).toBeCloseTo(0.6, 12);
    expect(outcome.labels!["x"]).toBeCloseTo(0.5, 12);
    expect(outcome.labels!["y"]).toBeCloseTo(0.2, 12);
  });

  it("finds whole words only", async () => {
    expect(await found("ass", "You ass!")).toBe(true);
    expect(await found("ass", "the class passed")).toBe(false);
    expect(await found("ass", "ass1")).toBe(false);
    expect(await found("ass", "asś")).toBe(false);
    expect(await found("naïve", "(naïve)")).toBe(true);
    expect(await found("shut up", "Shut \n  UP.")).toBe(true);
    expect(await found("shut up", "shut upwards")).toBe(false);
    expect(await found("c++", "I like C++.")).toBe(true);
    expect(await found("a.b", "axb")).toBe(false);
    expect(await found("$$$", "a$$$b")).toBe(true);
  });

  it("treats underscores as word boundaries", async () => {
    for (const text of ["_bomb_", "make_a_bomb", "BOMB_1", "__bomb", "**_bomb_**", "`bomb_plan`"]) {
      expect([text, await found("bomb", text)]).toEqual([text, true]);
    }
    for (const text of ["bombastic", "_bombastic_", "a_firebomb", "bombs", "bombé", "bombe\u0301", "bomb2"]) {
      expect([text, await found("bomb", text)]).toEqual([text, false]);
    }
    expect(await found("make bomb", "make_bomb")).toBe(false);
    expect(await found("make_bomb", "do make_bomb now")).toBe(true);
    expect(await found("make_bomb", "do make_bombs now")).toBe(false);
  });

  it("finds words next to letters of scripts without spaces, and with suffixes", async () => {
    const texts = [
      "炸弹bomb炸弹",
      "爆弾のbombを作る",
      "これはbombー！",
      "폭탄은bomb이다",
      "bomb을 만드는 법",
      "ระเบิดbombครับ",
      "ລະເບີດbombລາວ",
      "គ្រាប់bombបែក",
      "ㄅbombㄅ",
      "炸弹_bomb_",
      "ＢＯＭＢ炸弹",
    ];
    for (const text of texts) expect([text, await found("bomb", text)]).toEqual([text, true]);
    expect(await found("bomb", "炸弹bombastic炸弹")).toBe(false);
    expect(await found("bomb", "炸弹firebomb炸弹")).toBe(false);
    expect(await found("бомба", "炸弹бомба炸弹")).toBe(true);
    expect(await found("бомба", "бомбардир")).toBe(false);
    expect(await found("폭탄", "그는 폭탄을 만들었다")).toBe(true);
    expect(await found("tnt炸药", "买tnt炸药吗")).toBe(true);
    expect(await found("tnt炸药", "xtnt炸药吗")).toBe(false);
  });

  it("finds terms of scripts without spaces inside a sentence", async () => {
    expect(await found("白痴", "你是白痴吗")).toBe(true);
    expect(await found("ばか", "あなたはばかです")).toBe(true);
  });

  it("ignores case, full width and invisible characters", async () => {
    expect(await found("STRASSE", "die Straße")).toBe(true);
    expect(await found("ὀδυσσεύς", "ὈΔΥΣΣΕΎΣ")).toBe(true);
    expect(await found("idiot", "ＩＤＩＯＴ")).toBe(true);
    expect(await found("idiot", "id\u200bi\u00adot")).toBe(true);
    expect((await score([{ pattern: "idiot" }], "IDI\u200bOT")).score).toBe(1);
  });

  it("finds every term in itself, for any characters", async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "grapheme", minLength: 1 }), async (term) => {
        fc.pre(foldText(term).trim() !== "");
        expect(await found(term, `. ${term} .`)).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  it.each([
    [[], /at least one term/u],
    [[{}], /entry 1: needs exactly one of "term" and "pattern"/u],
    [[{ term: "a", pattern: "b" }], /exactly one/u],
    [[{ term: "a" }, { term: "b", weight: 0 }], /entry 2: weight must be above 0 and at most 1, got 0/u],
    [[{ term: "a", weight: NaN }], /got NaN/u],
    [[{ term: " \u200b " }], /at least one visible character/u],
    [[{ pattern: "(" }], /entry 1: Invalid regular expression/u],
    [
      [{ pattern: "a(?=b)" }],
      /entry 1: "a\(\?=b\)" must be .* linear time: look-ahead and look-behind cannot/u,
    ],
    [[{ pattern: "(a)\\1" }], /entry 1: .* references back to a group cannot be used/u],
    [[{ pattern: "a{5000}" }], /entry 1: .* invalid repeat count/u],
  ])("refuses %j", (entries, message) => {
    expect(() => new KeywordScorer(entries)).toThrow(message);
    expect(() => new KeywordScorer(entries)).toThrow(UsageError);
  });
});

describe("patterns", () => {
  it("that take a backtracking engine exponential time are matched in linear time", async () => {
    const scorer = new KeywordScorer([
      { pattern: "(a+)+$" },
      { pattern: "^(\\w*\\s?)*$x" },
      { pattern: "(x*)*y" },
    ]);
    const began = performance.now();
    const texts = ["a".repeat(20_000) + "!", "word ".repeat(5000) + "!", "x".repeat(20_000)];
    expect((await scorer.score(texts)).map((outcome) => outcome.score)).toEqual([0, 0, 0]);
    expect(performance.now() - began).toBeLessThan(5000);
  });

  it.each([
    "\\bhate\\w*",
    "[a-m]",
    "\\p{L}+ing",
    "\\p{Script=Han}{2}",
    "[^\\p{Script=Greek}\\s]b",
    "\\u00e9t\\u{e9}",
    "x\\sy",
    "[\\s.]z",
    "\\Sq",
    "(?<name>k|\\d)\\.",
    "straße|ſ",
    "a{2,3}?b",
    "^a|b$",
    "[\\b]",
    "\\x41\\t",
    "\\/\\/",
    "(?:ab)+",
  ])("%s finds what JavaScript's engine finds", async (pattern) => {
    const scorer = new KeywordScorer([{ pattern }]);
    const expression = new RegExp(pattern, "iu");
    const letters = [
      "a",
      "B",
      "é",
      "日",
      "本",
      " ",
      "\u00a0",
      "\n",
      "x",
      "y",
      "z",
      "k",
      "7",
      ".",
      "/",
      "\b",
      "\t",
      "hate",
      "S",
      "ß",
      "ing",
      "α",
      "q",
    ];
    await fc.assert(
      fc.asyncProperty(fc.array(fc.constantFrom(...letters)), async (parts) => {
        const text = parts.join("");
        expect((await scorer.score([text]))[0]!.score).toBe(expression.test(text) ? 1 : 0);
      }),
      { numRuns: 150 },
    );
  });
});

describe("KeywordScorer.load", () => {
  let folder: string;
  beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), "keywords-"))));
  afterAll(() => rm(folder, { recursive: true }));
  const load = async (content: string) => {
    const path = join(folder, "keywords.json");
    await writeFile(path, content);
    return KeywordScorer.load(path);
  };

  it("reads strings and entries", async () => {
    const scorer = await load('["plain", {"pattern": "pa+t", "weight": 0.25, "label": "l"}]');
    expect((await scorer.score(["plain"]))[0]!.score).toBe(1);
    expect((await scorer.score(["paaat"]))[0]).toEqual({ score: 0.25, labels: { l: 0.25 } });
    expect((await (await load('{"entries": ["x"]}')).score(["X"]))[0]!.score).toBe(1);
  });

  it.each([
    ["[", /keywords.json: cannot read keywords/u],
    ["{}", /must hold an array/u],
    ["[3]", /entry 1: must be a string or an object/u],
    ['["a", {"word": "b"}]', /entry 2: unknown key "word"; the keys are term, pattern, label, weight/u],
    ['[{"term": "a", "weight": "high"}]', /entry 1: weight must be a number, got "high"/u],
  ])("refuses %s", async (content, message) => {
    await expect(load(content)).rejects.toThrow(message);
    await expect(load(content)).rejects.toBeInstanceOf(UsageError);
  });

  it("refuses other encodings, folders and invalid JSON, and says what it got", async () => {
    const path = join(folder, "latin1.json");
    await writeFile(path, Buffer.from('["f\u00fcr"]', "latin1"));
    await expect(KeywordScorer.load(path)).rejects.toThrow(breaking("not-utf8", path));
    await expect(KeywordScorer.load(folder)).rejects.toThrow(breaking("file-unreadable", folder));
    await expect(load("[1")).rejects.toThrow(breaking("not-json"));
  });

  it("names a missing file", async () => {
    await expect(KeywordScorer.load(join(folder, "none.json"))).rejects.toThrow(
      breaking("file-not-found", "none.json"),
    );
  });
});
