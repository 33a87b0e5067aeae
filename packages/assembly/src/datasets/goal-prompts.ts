import { keyedUniform, UsageError } from "@astra-rl/base";
import { Conversation, type Goal } from "@astra-rl/lm";
import { promptText, type Prompt } from "./prompt-file.js";

/** The goal of a prompt; null for none. */
export const goalOfPrompt = (prompt: Prompt): Goal | null =>
  typeof prompt === "string" ? null : prompt.goal;

/** A prompt with a goal. */
export const promptWithGoal = (prompt: Prompt, goal: Goal): Conversation =>
  (typeof prompt === "string" ? Conversation.of(prompt) : prompt).withGoal(goal);

/** A prompt as one text, for models that get no speakers; with its goal, if it has one. */
export function promptAsText(prompt: Prompt): Prompt {
  const goal = goalOfPrompt(prompt);
  return goal === null ? promptText(prompt) : promptWithGoal(promptText(prompt), goal);
}

/** The different goals of prompts, in order. */
export function goalsOf(prompts: readonly Prompt[]): Goal[] {
  return [...new Set(prompts.map(goalOfPrompt))].filter((goal) => goal !== null);
}

/**
 * Pairs goals with openers: each goal equally often, and at least as many prompts as there are openers. The opener of a pair
 * is a keyed draw, so that it depends on the seed and its number alone.
 *
 * @param goals prompts whose own text is not used
 * @param where begins messages
 * @throws UsageError for goals without a goal, and for openers that have one
 */
export function pairGoals(
  goals: readonly Prompt[],
  openers: readonly Prompt[],
  seed: number,
  where: string,
): Conversation[] {
  const all = goalsOf(goals);
  if (all.length === 0) {
    throw new UsageError(
      "missing-goal",
      `${where}: has no goals; give a column "goal", or a table of behaviours`,
    );
  }
  if (openers.some((opener) => goalOfPrompt(opener) !== null)) {
    throw new UsageError(
      "goals-twice",
      `${where}: its goals are to be paired with prompts that have goals of their own; leave prompts.goals out, or name prompts ` +
        "without goals",
    );
  }
  const rounds = Math.ceil(openers.length / all.length);
  return Array.from({ length: rounds * all.length }, (_, episode) => {
    const draw = keyedUniform({ seed, stream: "opener", episode, node: 0 }, 0);
    return promptWithGoal(openers[Math.floor(draw * openers.length)]!, all[episode % all.length]!);
  });
}

/**
 * Refuses an evaluation on goals that training has seen: success on them says little about others.
 *
 * @throws UsageError that names them
 */
export function refuseSeenGoals(
  training: readonly Prompt[],
  evaluated: readonly Prompt[],
  where: string,
): void {
  const seen = new Set(goalsOf(training).map(({ text }) => text));
  const both = goalsOf(evaluated).filter(({ text }) => seen.has(text));
  if (both.length === 0) return;
  const names = both.slice(0, 5).map(({ id }) => JSON.stringify(id));
  throw new UsageError(
    "goal-in-training",
    `${where}: ${both.length} of its goals are also trained on: ${names.join(", ")}${both.length > 5 ? ", …" : ""}; evaluate on ` +
      "goals that training does not see, or set evaluation.seenGoals to true",
  );
}

/** The texts of training prompts; if the evaluated ones have goals, of those that have the same goal there. */
export function textsSeen(training: readonly Prompt[], evaluated: readonly Prompt[]): string[] {
  if (goalsOf(evaluated).length === 0) return training.map(String);
  const keyOf = (prompt: Prompt) => JSON.stringify([goalOfPrompt(prompt)?.text, String(prompt)]);
  const keys = new Set(evaluated.map(keyOf));
  return training.filter((prompt) => keys.has(keyOf(prompt))).map(String);
}
