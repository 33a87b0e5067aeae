import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describeValue, UsageError } from "@astra-rl/base";
import { promptText, readPromptFile } from "../datasets/index.js";

/** The splits of the embedded prompt set. */
export const PROMPT_SPLITS = ["train", "dev", "test"] as const;
export type PromptSplit = (typeof PROMPT_SPLITS)[number];

// The same relative path from src/embedded and dist/embedded.
const FOLDER = fileURLToPath(new URL("../../world/prompts/", import.meta.url));

/**
 * The embedded prompts: neutral opening lines.
 *
 * @throws UsageError for a split that does not exist
 */
export async function defaultPrompts(split: PromptSplit): Promise<string[]> {
  if (!PROMPT_SPLITS.includes(split)) {
    throw new UsageError(
      "unknown-choice",
      `defaultPrompts: the splits are ${PROMPT_SPLITS.join(", ")}, got ${describeValue(split)}`,
    );
  }
  return (await readPromptFile(join(FOLDER, `${split}.json`))).map(promptText);
}
