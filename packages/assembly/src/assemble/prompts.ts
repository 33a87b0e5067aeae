import { UsageError } from "@astra-rl/base";
import type { HubOptions } from "@astra-rl/lm";
import { EMBEDDED, isProgramReference, type Configuration } from "../configuration/index.js";
import { defaultPrompts, type PromptSplit } from "../embedded/index.js";
import { pairGoals, readPrompts, type Prompt } from "../datasets/index.js";
import type { ProgramParts } from "./program-parts.js";

/**
 * Loads the prompts of one split, paired with its goals if these have files of their own.
 *
 * @throws UsageError for a file that is missing, empty or invalid
 */
export async function loadPrompts(
  { prompts, seed }: Pick<Configuration, "prompts" | "seed">,
  split: PromptSplit,
  hub: HubOptions = {},
  parts: ProgramParts = {},
): Promise<readonly Prompt[]> {
  const { [split]: source, column, goals } = prompts;
  const own = parts.prompts?.[split];
  if (own !== undefined) return own;
  if (isProgramReference(source)) {
    throw new UsageError(
      "made-by-program",
      `prompts.${split}: were passed by the program of this run; name a file`,
    );
  }
  const openers =
    source === EMBEDDED
      ? await defaultPrompts(split)
      : await readPrompts(source, column === undefined ? { hub } : { hub, column });
  if (goals === undefined) return openers;
  const file = goals[split];
  if (file === undefined) {
    throw new UsageError(
      "missing-key",
      `prompts.goals.${split}: is missing, but other prompts have goals; name a file with the goals of this split`,
    );
  }
  return pairGoals(await readPrompts(file, { hub }), openers, seed, `prompts.goals.${split}: ${file}`);
}
