import type { Conversation } from "../core/index.js";
import type { ServerOptions } from "./options.js";

export interface ChatMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

type Role = "tester" | "target";

const PARAGRAPH = "\n\n";

/**
 * A conversation as the messages of a chat, as a local model with a chat template reads it: own messages are the
 * assistant's, all others the user's; consecutive messages of one voice join, the prompt and the first probe as two
 * paragraphs.
 */
export function chatMessages(conversation: Conversation, role: Role, system: string | null): ChatMessage[] {
  const messages: ChatMessage[] = [];
  let before = null;
  for (const message of conversation.messages()) {
    const { from, text } = message;
    if (from === "system") {
      system = text;
      continue;
    }
    const voice = from === role ? "assistant" : "user";
    if (messages.length === 0 && voice === "assistant") messages.push({ role: "user", content: "" });
    const last = messages.at(-1);
    if (last?.role !== voice) messages.push({ role: voice, content: text });
    else {
      const isPrompted = before?.from === "prompt" && from === "tester" && before.text !== "";
      last.content += isPrompted ? PARAGRAPH + text : text;
    }
    before = message;
  }
  // A model that speaks first, as a tester without a prompt does, answers an empty message.
  if (messages.length === 0) messages.push({ role: "user", content: "" });
  return system === null ? messages : [{ role: "system", content: system }, ...messages];
}

/** A conversation as one text, with a label before each message and before the model's own next one. */
export function plainText(
  conversation: Conversation,
  role: Role,
  { labels = {}, separator = "" }: Pick<ServerOptions, "labels" | "separator">,
): string {
  const label = (from: string) => (labels as Record<string, string | undefined>)[from] ?? "";
  const texts = conversation
    .messages()
    .map(({ from, text }, at) =>
      from === "around" ? text : (at === 0 ? "" : separator) + label(from) + text,
    );
  return texts.join("") + separator + label(role);
}
