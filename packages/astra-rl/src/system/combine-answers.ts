import type { Assessment, Message } from "../core/index.js";

/** What several targets do: one of them answers in an episode, or all do and their rewards are combined. */
export const TARGET_ANSWERS = ["one", "max", "mean", "min"] as const;
export type TargetAnswers = (typeof TARGET_ANSWERS)[number];

/** What another target said to a turn's probe, judged as the turn itself is. */
export interface JudgedAnswer {
  model: string;
  response: Message;
  assessment: Assessment;
}

/**
 * A turn's worth over the answers of all targets. Scores, terms and likelihood stay those of its own response; an answer
 * that could not be judged leaves the turn without a reward, since nobody knows what it would have changed.
 */
export function combineAnswers(
  own: Assessment,
  others: readonly JudgedAnswer[],
  op: TargetAnswers,
): Assessment {
  if (others.length === 0 || own.failure !== null) return own;
  const failed = others.find(({ assessment }) => assessment.failure !== null);
  if (failed !== undefined) return { ...own, reward: NaN, failure: failed.assessment.failure };
  const rewards = [own.reward, ...others.map(({ assessment }) => assessment.reward)];
  const answers = others.map(({ model, response, assessment: { reward, scores } }) => {
    return { model, response, reward, scores };
  });
  return { ...own, reward: combined(rewards, op), answers };
}

function combined(rewards: readonly number[], op: TargetAnswers): number {
  if (op === "max") return Math.max(...rewards);
  if (op === "min") return Math.min(...rewards);
  if (op === "mean") return rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  return rewards[0]!;
}
