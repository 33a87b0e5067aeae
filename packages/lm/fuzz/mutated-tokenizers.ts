import { gunzipSync } from "node:zlib";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { AstraError } from "@astra-rl/base";
import { ChatTemplate } from "../src/chat-template.js";
import { Tokenizer } from "../src/tokenizer.js";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Files = Record<string, Json>;

/** Outcome of one mutated tokenizer. */
export interface Outcome {
  kind: "loaded" | "refused" | "wrong";
  /** For "wrong": what happened. */
  problem?: string;
  files: Files;
  /** Processor time used. */
  milliseconds: number;
}

/** A small seeded generator, so that a case can be repeated by its seed. */
function randomOf(seed: number): () => number {
  let state = (seed * 0x9e3779b9 + 0x7f4a7c15) | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const recipes = (() => {
  const path = fileURLToPath(new URL("../test/golden/tokenizers/golden.json.gz", import.meta.url));
  const golden = JSON.parse(gunzipSync(readFileSync(path)).toString()) as {
    recipes: Record<string, { files: Files }>;
  };
  return Object.values(golden.recipes).map(({ files }) => files);
})();

/** Values that often break code. */
const ODD: readonly (() => Json)[] = [
  () => null,
  () => true,
  () => -1,
  () => 0.5,
  () => 1e308,
  () => 2 ** 31,
  () => 2 ** 53,
  () => "",
  () => "\ud800",
  () => "▁",
  () => "__proto__",
  () => "constructor",
  () => "x".repeat(5000),
  () => [],
  () => [null],
  () => ({}),
  () => ({ type: "Sequence" }),
  () => ({ content: "<s>", id: 1 }),
  () => JSON.parse(`${"[".repeat(2000)}${"]".repeat(2000)}`) as Json,
  () => ({ type: "Sequence", normalizers: [{ type: "Sequence", normalizers: [{ type: "NFC" }] }] }),
];
const TYPES =
  "BPE WordPiece WordLevel Unigram NFC NFD NFKC NFKD Nmt Lowercase StripAccents Strip Prepend Replace ByteLevel BertNormalizer Precompiled Sequence Metaspace Split Punctuation Digits Whitespace WhitespaceSplit CharDelimiterSplit UnicodeScripts FixedLength BertPreTokenizer TemplateProcessing RobertaProcessing BertProcessing ByteFallback Fuse CTC BPEDecoder toString".split(
    " ",
  );
const PATTERNS =
  String.raw`( ) [ ] (?: (?! (?= (?<= (?i: (?> | * + ? {2,} {1,9} {999} *? ++ ^ $ . \s \S \w \W \p{L} \p{Han} \p{Foo} \x{10FFFF} \uD800 \1 \b \A [^a] [a-z&&[^c]] [[:alpha:]] a aa x \ (a+)+ (a|a)* (a|aa)+$ (.*)*b (\s*)*x (?:a*)*c ((a{1,30}){1,30}){1,30}`.split(
    " ",
  );
const TEXTS = [
  "Hello, world! It's 12345 café\u0301 今日は 🔥 <s> </s> <|endoftext|> [MASK] <mask>\n\n  \t x",
  `${"a".repeat(2000)}!`,
  `${" ".repeat(2000)}x${"\n".repeat(500)}`,
  "ab".repeat(1000) + "\u0301".repeat(500),
  "\ud800 \udfff \0\ufeff\u0085",
];

/** Creates one case, loads it and uses it. */
export function mutateAndUse(seed: number): Outcome {
  const random = randomOf(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const files = structuredClone(pick(recipes));
  for (let count = 1 + Math.floor(random() * 4); count > 0; count--) mutate(files, random, pick);
  const started = process.cpuUsage();
  const outcome = use(files, random);
  const { user, system } = process.cpuUsage(started);
  return { ...outcome, files, milliseconds: (user + system) / 1000 };
}

function mutate(files: Files, random: () => number, pick: <T>(list: readonly T[]) => T): void {
  // Descends to a random place level by level: chosen uniformly, nearly all places would be in the vocabulary.
  let parent: Json = files;
  let key: string | number = random() < 0.75 ? "tokenizer.json" : pick(Object.keys(files));
  for (let depth = 0; depth < 12; depth++) {
    const value: Json | undefined = (parent as Record<string | number, Json>)[key];
    if (typeof value !== "object" || value === null || (depth > 0 && random() < 0.15)) break;
    const keys: (string | number)[] = Array.isArray(value)
      ? value.map((_, index) => index)
      : Object.keys(value);
    if (keys.length === 0) break;
    parent = value;
    key = depth === 1 && random() < 0.5 ? (keys.find((name) => name !== "vocab") ?? pick(keys)) : pick(keys);
  }
  const target = parent as Record<string | number, Json>;
  const value = target[key];
  const kind = random();
  if (kind < 0.12) {
    if (Array.isArray(parent)) parent.splice(Number(key), 1);
    else delete target[key];
  } else if (kind < 0.4) target[key] = pick(ODD)();
  else if (kind < 0.5 && typeof value === "object" && value !== null && !Array.isArray(value)) {
    value["type"] = pick(TYPES);
  } else if (kind < 0.6) {
    // The same part of another tokenizer.
    const other = pick(recipes)["tokenizer.json"] as Record<string, Json>;
    const name = pick(Object.keys(other));
    (files["tokenizer.json"] as Record<string, Json> | null)![name] = structuredClone(other[name]!);
  } else if (kind < 0.8) {
    const source = Array.from({ length: 1 + Math.floor(random() * 6) }, () => pick(PATTERNS)).join("");
    const behavior = pick([
      "Removed",
      "Isolated",
      "MergedWithPrevious",
      "MergedWithNext",
      "Contiguous",
      "removed",
    ]);
    const split = { type: "Split", pattern: { Regex: source }, behavior, invert: random() < 0.3 };
    const replace = { type: "Replace", pattern: { Regex: source }, content: pick(["", "x", "aa", " "]) };
    const [name, part]: [string, Json] = pick([
      ["pre_tokenizer", split],
      ["normalizer", replace],
      ["decoder", replace],
    ]);
    (files["tokenizer.json"] as Record<string, Json> | null)![name] = part;
  } else if (kind < 0.9) {
    const names = [
      "tokenizer_class",
      "added_tokens_decoder",
      "extra_special_tokens",
      "additional_special_tokens",
    ];
    const more = [
      "eos_token",
      "auto_map",
      "split_special_tokens",
      "clean_up_tokenization_spaces",
      "chat_template",
    ];
    const values: Json[] = [
      "LlamaTokenizer",
      "BertTokenizerFast",
      "GPT2Tokenizer",
      "T5Tokenizer",
      "XLMRobertaTokenizer",
      "valueOf",
    ];
    const config = (files["tokenizer_config.json"] ??= {});
    if (typeof config === "object" && config !== null && !Array.isArray(config)) {
      config[pick([...names, ...more])] = random() < 0.5 ? pick(values) : pick(ODD)();
    }
  } else if (typeof value === "string") target[key] = value.slice(0, Math.floor(random() * value.length));
  else if (typeof value === "number") target[key] = pick([-value, value + 1, value * 1e6, 1.5]);
  else if (Array.isArray(value)) target[key] = [...value, ...structuredClone(value)].slice(0, 2000);
  else files[pick(["special_tokens_map.json", "added_tokens.json"])] = pick(ODD)();
}

function use(files: Files, random: () => number): Pick<Outcome, "kind" | "problem"> {
  const bytes = new Map(
    Object.entries(files).map(([name, content]) => [name, Buffer.from(JSON.stringify(content))]),
  );
  if (random() < 0.03) {
    const damaged = bytes.get("tokenizer.json")!;
    bytes.set("tokenizer.json", Buffer.from(damaged.subarray(0, Math.floor(random() * damaged.length))));
  }
  let step = "load";
  try {
    const tokenizer = Tokenizer.fromFiles(bytes, "folder");
    step = "chat template";
    try {
      ChatTemplate.of(tokenizer);
    } catch (error) {
      if (!(error instanceof AstraError)) throw error;
    }
    step = "use";
    for (const text of TEXTS) {
      const ids = tokenizer.encode(text, { addSpecialTokens: true });
      if (!ids.every((id) => Number.isSafeInteger(id) && id >= 0)) throw new Error(`ids ${ids.join(" ")}`);
      for (const skipSpecialTokens of [true, false]) {
        if (typeof tokenizer.decode(ids, { skipSpecialTokens }) !== "string")
          throw new Error("decodes to no text");
      }
    }
    return { kind: "loaded" };
  } catch (error) {
    const refused = error instanceof AstraError;
    const named = refused && (step === "use" || /^folder\/\w+\.json\b|^folder: /.test(error.message));
    if (named) return { kind: "refused" };
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return { kind: "wrong", problem: `${step}: ${text.slice(0, 600)}` };
  }
}
