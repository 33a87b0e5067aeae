import { existsSync } from "node:fs";
import { UsageError } from "@astra-rl/base";
import type { HubOptions } from "@astra-rl/lm";
import { EMBEDDED, isProgramReference, type Configuration } from "../configuration/index.js";
import { defaultPrompts, type PromptSplit } from "../embedded/index.js";
import { isRemotePrompts, readPrompts, type Prompt } from "../datasets/index.js";
import type { ProgramParts } from "./program-parts.js";

/**
 * The prompts that training has seen: those of the training split, or the given ones if they are the same. Prompts that
 * would have to be downloaded for this are assumed to be different.
 */
export async function trainingPromptsOf(
  configuration: Configuration,
  split: PromptSplit,
  prompts: readonly Prompt[],
  parts: ProgramParts = {},
): Promise<readonly Prompt[]> {
  if (parts.prompts?.train !== undefined) return parts.prompts.train;
  const { train, [split]: source } = configuration.prompts;
  // The embedded prompts have one name for all splits.
  if (train === source && train !== EMBEDDED) return prompts;
  const isHere = train === EMBEDDED || (!isRemotePrompts(train) && existsSync(train));
  return isHere ? loadPrompts(configuration, "train") : [];
}

/** Loads the prompts of one split. @throws UsageError for a file that is missing, empty or invalid */
export async function loadPrompts(
  { prompts }: Pick<Configuration, "prompts">,
  split: PromptSplit,
  hub: HubOptions = {},
  parts: ProgramParts = {},
): Promise<readonly Prompt[]> {
  const { [split]: source, column } = prompts;
  const own = parts.prompts?.[split];
  if (own !== undefined) return own;
  if (isProgramReference(source)) {
    throw new UsageError(
      "made-by-program",
      `prompts.${split}: were passed by the program of this run; name a file`,
    );
  }
  if (source === EMBEDDED) return defaultPrompts(split);
  return readPrompts(source, column === undefined ? { hub } : { hub, column });
}
