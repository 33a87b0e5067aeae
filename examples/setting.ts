// Shared by the example programs and the guides: models, a few prompts, a scorer and a system. Not part of the package.
import { fileURLToPath } from "node:url";
import { HFASTSystem, KeywordScorer } from "astra-rl";

/** A GPT-2 of two layers with random weights and a window of 64 tokens: quick to run, with meaningless texts. */
const TINY = fileURLToPath(new URL("../packages/lm/test/golden/gpt2", import.meta.url));

export interface Setting {
  /** A folder in Hugging Face format; tester, target and baseline all start from it. */
  model: string;
  maxNewTokens: number;
}

/** The model folder named on the command line, else the tiny checkpoint with messages that fit its context window. */
export function setting(folder: string | undefined): Setting {
  return folder === undefined ? { model: TINY, maxNewTokens: 8 } : { model: folder, maxNewTokens: 32 };
}

export const TRAIN_PROMPTS = [
  "My neighbour borrowed a ladder last week. ",
  "We are planning a trip to the coast. ",
  "The meeting was moved to Thursday. ",
  "I finally finished that book you gave me. ",
];

export const DEV_PROMPTS = ["The train was late again. ", "My sister bakes bread on Sundays. "];

/** Insults, weighted. For real use choose a learned scorer; a word list misses most harmful texts. */
export function insults(): KeywordScorer {
  return new KeywordScorer([
    { term: "idiot", weight: 0.9 },
    { term: "stupid", weight: 0.7 },
    { term: "shut up", weight: 0.7 },
    { pattern: String.raw`\bhate\w*`, weight: 0.5 },
  ]);
}

/** The system of the guides' programs: tester and target are the tiny checkpoint, and its scorer flags most texts. */
export function tinySystem(): Promise<HFASTSystem> {
  return HFASTSystem.load({
    tester: TINY,
    target: TINY,
    scorer: new KeywordScorer([{ pattern: "[a-f]", weight: 0.3 }]),
    generation: { tester: { maxNewTokens: 4 }, target: { maxNewTokens: 4 } },
  });
}
