import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The checkpoint made by make_gpt2.py. */
export const goldenFolder = fileURLToPath(new URL("gpt2", import.meta.url));

/** transformers' results for it. */
export interface Golden {
  window: number;
  endId: number;
  logprobs: {
    note: string;
    context: string;
    continuation: string;
    contextIds: number[];
    continuationIds: number[];
    logprobs: number[];
  }[];
  /** Of the sum of all the log-probabilities above, by parameter. */
  gradients: Record<string, { norm: number; first: number[] }>;
  greedy: {
    note: string;
    prompt: string;
    promptIds: number[];
    maxNewTokens: number;
    ids: number[];
    text: string;
  }[];
  tokenizer: { text: string; ids: number[]; decoded: string }[];
}

export const golden = JSON.parse(
  readFileSync(new URL("gpt2-expected.json", import.meta.url), "utf8"),
) as Golden;
