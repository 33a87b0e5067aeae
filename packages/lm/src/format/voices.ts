import type { Message } from "../conversation/conversation.js";

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
 * data set's system messages speak to the model under test.
 */
export function systemOf(
  messages: readonly Message[],
  role: "tester" | "target",
  own: string | null,
): string | null {
  if (role === "tester") return own;
  return messages.findLast(({ from }) => from === "system")?.text ?? own;
}

/** Whether a message is the prompt, with text, directly before a probe: a paragraph separates them. */
export const leadsProbe = (message: Message, next: Message | undefined): boolean =>
  message.from === "prompt" && message.text !== "" && next?.from === "tester";
