import { readFileSync } from "node:fs";
import { goldenCausal } from "./families.js";
import { goldenFolder } from "./gpt2.js";

/** transformers' results for texts; made by make_texts.py. */
interface Texts {
  pairs: {
    context: string;
    continuation: string;
    /** `tokenizer(context)`. */
    contextIds: number[];
    /** `tokenizer(continuation, add_special_tokens=False)`. */
    continuationIds: number[];
    logprobs: number[];
  }[];
  /** `ids` is `tokenizer(prompt)`, `greedy` what `generate` adds to it. */
  prompts: { prompt: string; ids: number[]; greedy: number[] }[];
}

const expected = JSON.parse(readFileSync(new URL("texts-expected.json", import.meta.url), "utf8")) as {
  newTokens: number;
  models: Record<string, Texts>;
};

export const { newTokens } = expected;

export const goldenTexts = [{ name: "gpt2", folder: goldenFolder }, ...goldenCausal].flatMap(({ name, folder }) => {
  const texts = expected.models[name];
  return texts === undefined ? [] : [{ name, folder, ...texts }];
});
