// What the prompts of a run have to do with those of training, and with its scorer.
import { existsSync } from "node:fs";
import { UsageError } from "@astra-rl/base";
import { NoScorer, Scorer } from "@astra-rl/method";
import { loadPrompts, type ProgramParts } from "../assemble/index.js";
import { EMBEDDED, type Configuration } from "../configuration/index.js";
import { goalsOf, isRemotePrompts, refuseSeenGoals, type Prompt } from "../datasets/index.js";
import type { PromptSplit } from "../embedded/index.js";

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
