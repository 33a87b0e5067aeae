import { existsSync } from "node:fs";
import { UsageError } from "@astra-rl/base";
import type { HubOptions } from "@astra-rl/lm";
import { NoScorer, Scorer } from "@astra-rl/method";
import { EMBEDDED, isProgramReference, type Configuration } from "../configuration/index.js";
import { defaultPrompts, type PromptSplit } from "../embedded/index.js";
import {
  goalsOf,
  isRemotePrompts,
  pairGoals,
  readPrompts,
  refuseSeenGoals,
  type Prompt,
} from "../datasets/index.js";
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
  const { train, [split]: source, goals } = configuration.prompts;
  // The embedded prompts have one name for all splits.
  const isSame = train === source && train !== EMBEDDED && goals?.train === goals?.[split];
  return isSame && parts.prompts?.train === undefined ? prompts : promptsHere(configuration, "train", parts);
}

/** The prompts of a split; none if they would have to be downloaded, or if a program may have passed others. */
async function promptsHere(
  configuration: Configuration,
  split: PromptSplit,
  parts: ProgramParts,
): Promise<readonly Prompt[]> {
  const { [split]: source, goals } = configuration.prompts;
  const isHere = (file: string) => file === EMBEDDED || (!isRemotePrompts(file) && existsSync(file));
  const files = [source, goals === undefined ? [] : (goals[split] ?? "")].flat();
  if (parts.prompts?.[split] !== undefined || files.every(isHere)) {
    return loadPrompts(configuration, split, {}, parts);
  }
  return [];
}

/**
 * Refuses training on goals that the test has too, where they can be compared without a download.
 *
 * @param prompts the training prompts
 * @throws UsageError that names the goals
 */
export async function refuseTestedGoals(
  configuration: Configuration,
  prompts: readonly Prompt[],
  parts: ProgramParts = {},
): Promise<void> {
  if (configuration.evaluation.seenGoals || goalsOf(prompts).length === 0) return;
  refuseSeenGoals(prompts, await promptsHere(configuration, "test", parts), "prompts.test");
}

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

/**
 * Refuses goals that no scorer reads, since success would say nothing of them, and a scorer of goals without any.
 *
 * @param judged the system, or its evaluator
 * @param where names the prompts
 * @throws UsageError
 */
export function requireGoalsRead(
  prompts: readonly Prompt[],
  { scorer }: { scorer?: unknown },
  where: string,
): void {
  const hasGoals = goalsOf(prompts).length > 0;
  // What decides without a scorer is the system's own reward.
  if (!(scorer instanceof Scorer) || scorer instanceof NoScorer || hasGoals === scorer.needsGoal) return;
  throw hasGoals
    ? new UsageError(
        "goal-not-judged",
        `${where}: have goals, but the scorer ${scorer.name} does not read them, so that success would say nothing of a goal; use a ` +
          "judge with {goal} in its rubric, or a custom scorer with needsGoal",
      )
    : new UsageError(
        "goal-required",
        `${where}: have no goals, but the scorer ${scorer.name} judges by them; use prompts with goals, or another scorer`,
      );
}
