import { EMBEDDED, type Configuration } from "../configuration/index.js";
import { defaultPrompts, readPrompts, type PromptSplit } from "../datasets/index.js";

/** The prompts of one split. @throws UsageError for a file that is missing, empty or holds anything but texts */
export async function loadPrompts(configuration: Configuration, split: PromptSplit): Promise<string[]> {
  const source = configuration.prompts[split];
  return source === EMBEDDED ? defaultPrompts(split) : readPrompts(source);
}
