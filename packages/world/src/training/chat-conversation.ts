import { drawConversation } from "../grammar/conversation.js";
import type { Random } from "../template.js";
import { OPENING_SHARE } from "./train-chatter.js";
import { END_OF_TEXT } from "./train-tokenizer.js";

/** The chat template of the chat model: a line with the role, the content, and the end-of-text token. */
export const CHAT_TEMPLATE =
  "{% for message in messages %}{{ message.role + '\\n' + message.content | trim + eos_token }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ 'assistant\\n' }}{% endif %}";

/**
 * One conversation as chat text, from one of its two sides: the tester, who answers the opening and plays the other
 * speaker, or the target, who reads the opening before the first probe and plays the owner.
 */
export function chatConversationText(random: Random, lines: ReadonlyMap<string, readonly string[]>): string {
  const { utterances } = drawConversation(random, { openingLines: lines, openingShare: OPENING_SHARE });
  const [opening, first, ...others] = utterances;
  const isTester = random() < 0.5 || first === undefined;
  const contents = isTester ? utterances : [`${opening}\n\n\n${first}`, ...others];
  return contents
    .map((content, at) => `${at % 2 === 0 ? "user" : "assistant"}\n${content}${END_OF_TEXT}`)
    .join("");
}
