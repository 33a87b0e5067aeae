import { existsSync } from "node:fs";
import type { HubOptions } from "@astra-rl/lm";
import { EMBEDDED, type Configuration } from "../configuration/index.js";
import { defaultPrompts, type PromptSplit } from "../embedded/index.js";
import { isRemotePrompts, readPrompts, type Prompt } from "../datasets/index.js";

/**
 * The prompts that training has seen: those of the training split, or the given ones if they are the same. Prompts that
 * would have to be downloaded for this are assumed to be different.
 */
export async function trainingPromptsOf(
  configuration: Configuration,
  split: PromptSplit,
  prompts: readonly Prompt[],
): Promise<readonly Prompt[]> {
  const { train, [split]: source } = configuration.prompts;
  // The embedded prompts have one name for all splits.
  if (train === source && train !== EMBEDDED) return prompts;
  const isHere = train === EMBEDDED || (!isRemotePrompts(train) && existsSync(train));
  return isHere ? loadPrompts(configuration, "train") : [];
}

/** Loads the prompts of one split. @throws UsageError for a file that is missing, empty or invalid */
export async function loadPrompts(
  { prompts }: Configuration,
  split: PromptSplit,
  hub: HubOptions = {},
): Promise<Prompt[]> {
  const { [split]: source, column } = prompts;
  if (source === EMBEDDED) return defaultPrompts(split);
  return readPrompts(source, column === undefined ? { hub } : { hub, column });
}
