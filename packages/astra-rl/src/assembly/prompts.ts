import type { HubOptions } from "@astra-rl/lm";
import { EMBEDDED, type Configuration } from "../configuration/index.js";
import { defaultPrompts, readPrompts, type Prompt, type PromptSplit } from "../datasets/index.js";

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
