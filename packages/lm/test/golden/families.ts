import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ChatMessage } from "../../src/chat-template.js";

interface GoldenTokenizer {
  tokenizer: { text: string; ids: number[]; idsWithSpecials: number[]; decoded: string }[];
  chat?: { messages: ChatMessage[]; addGenerationPrompt: boolean; text: string }[];
}

/** transformers' results for a causal model made by make_families.py. */
export interface GoldenCausal extends GoldenTokenizer {
  pairs: { contextIds: number[]; continuationIds: number[]; logprobs: number[] }[];
  greedy: { ids: number[]; greedy: number[] }[];
}

/** The same for a classifier. */
export interface GoldenClassifier extends GoldenTokenizer {
  maxLength: number;
  rows: { text: string; ids: number[]; logits: number[] }[];
}

const root = fileURLToPath(new URL("families", import.meta.url));

export interface GoldenFamily<T> {
  name: string;
  folder: string;
  expected: T;
}

const all = readdirSync(root).map((name) => {
  const folder = join(root, name);
  const text = readFileSync(join(folder, "expected.json"), "utf8");
  return { name, folder, expected: JSON.parse(text) as GoldenCausal | GoldenClassifier };
});

export const goldenFamilies: readonly GoldenFamily<GoldenTokenizer>[] = all;
export const goldenCausal = all.filter((family): family is GoldenFamily<GoldenCausal> => "pairs" in family.expected);
export const goldenClassifiers = all.filter(
  (family): family is GoldenFamily<GoldenClassifier> => "rows" in family.expected,
);
