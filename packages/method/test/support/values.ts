import { Conversation, Message } from "@astra-rl/lm";

/** Prompts as conversations. */
export const talks = (...texts: readonly string[]): Conversation[] =>
  texts.map((text) => Conversation.of(text));

/** Texts as probes that no model sampled. */
export const probes = (...texts: readonly string[]): Message[] =>
  texts.map((text) => new Message("tester", text));

/** Texts as responses that no model sampled. */
export const responses = (...texts: readonly string[]): Message[] =>
  texts.map((text) => new Message("target", text));
