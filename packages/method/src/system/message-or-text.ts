import type { Conversation, Message } from "@astra-rl/lm";

/**
 * What a method may return. A text is converted: to a new message, without the token ids of any that a model sampled, or
 * to a conversation. To keep a message, return it.
 */
export type MessageOrText<T> = T extends Conversation | Message ? T | string : T;

/** What a rollout may start from: a text is converted to a conversation. */
export type PromptOf<S> = S extends Conversation ? S | string : S;
