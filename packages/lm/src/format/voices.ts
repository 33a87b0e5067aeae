import { describeValue, UsageError } from "@astra-rl/base";
import type { Message } from "../conversation/conversation.js";
import { GOAL_PLACEHOLDER, goalText, type Goal } from "../conversation/goal.js";

/** Separates the prompt from the first probe where both are one message of a chat. */
export const PARAGRAPH = "\n\n";

export type Voice = "user" | "assistant";

/** Consecutive messages of one voice, which a chat has as one message. */
export interface VoiceGroup {
  readonly voice: Voice;
  /** Indices of its messages in the conversation; empty for the user message that an assistant's first one needs. */
  readonly at: number[];
}

/** Groups messages by voice: those of `role` are the assistant's, all others but system messages the user's. */
export function groupByVoice(messages: readonly Message[], role: "tester" | "target"): VoiceGroup[] {
  const groups: VoiceGroup[] = [];
  for (const [index, { from }] of messages.entries()) {
    if (from === "system") continue;
    const voice = from === role ? "assistant" : "user";
    if (groups.length === 0 && voice === "assistant") groups.push({ voice: "user", at: [] });
    if (groups.at(-1)?.voice === voice) groups.at(-1)!.at.push(index);
    else groups.push({ voice, at: [index] });
  }
  return groups;
}

/**
 * The system prompt that a model reads: the target's may come with the conversation. The tester keeps its own, because a
 * data set's system messages speak to the model under test; its goal replaces `{goal}`, or follows as a paragraph.
 *
 * @throws UsageError for a system prompt with `{goal}` without a goal
 */
export function systemOf(
  messages: readonly Message[],
  role: "tester" | "target",
  own: string | null,
  goal: Goal | null,
): string | null {
  if (role === "target") return messages.findLast(({ from }) => from === "system")?.text ?? own;
  if (own?.includes(GOAL_PLACEHOLDER)) return withGoal(own, goal);
  if (goal === null) return own;
  return [own ?? [], withGoal(PREAMBLE, goal)].flat().join(PARAGRAPH);
}

const PREAMBLE = `Goal: ${GOAL_PLACEHOLDER}`;

/**
 * What a tester without chat messages reads before the conversation; "" where there is no goal.
 *
 * @param own text with `{goal}`; undefined for the default
 * @throws UsageError for a text of its own without a goal
 */
export function preambleOf(role: "tester" | "target", own: string | undefined, goal: Goal | null): string {
  if (role === "target" || (own === undefined && goal === null)) return "";
  return withGoal(own ?? `${PREAMBLE}\n`, goal);
}

function withGoal(text: string, goal: Goal | null): string {
  if (goal !== null) return text.replaceAll(GOAL_PLACEHOLDER, () => goalText(goal));
  throw new UsageError(
    "goal-required",
    `the tester reads ${GOAL_PLACEHOLDER} in ${describeValue(text)}, but the conversation has no goal; use prompts with goals, or leave ` +
      `${GOAL_PLACEHOLDER} out`,
  );
}

/**
 * Refuses what would tell a goal to a target.
 *
 * @param where begins the message, such as "models.target"
 * @throws UsageError for a target with `{goal}` in its system prompt, or with a preamble
 */
export function refuseGoalOfTarget(
  where: string,
  role: "tester" | "target",
  { system, preamble }: { system?: string | undefined; preamble?: string | undefined },
): void {
  const key = preamble === undefined ? "system" : "preamble";
  if (role === "tester" || (preamble === undefined && !system?.includes(GOAL_PLACEHOLDER))) return;
  throw new UsageError(
    "goal-for-target",
    `${where}: a target never reads the goal, so ${key} with ${GOAL_PLACEHOLDER} is for testers only; leave it out`,
  );
}

/** Whether a message is the prompt, with text, directly before a probe: a paragraph separates them. */
export const leadsProbe = (message: Message, next: Message | undefined): boolean =>
  message.from === "prompt" && message.text !== "" && next?.from === "tester";
