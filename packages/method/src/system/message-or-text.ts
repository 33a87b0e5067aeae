import type { Conversation, Message } from "@astra-rl/lm";

/** What a method may return: a text is converted to the corresponding message or conversation. */
export type MessageOrText<T> = T extends Conversation | Message ? T | string : T;

/** What a rollout may start from: a text is converted to a conversation. */
export type PromptOf<S> = S extends Conversation ? S | string : S;
