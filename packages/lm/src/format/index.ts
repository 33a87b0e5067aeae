/**
 * Texts and conversations as rows of ids. Knows tokenizers and who a line is from; must not know models, caches, or what
 * a conversation is for.
 */
export { Codec } from "./codec.js";
export type { ConversationFormat, Layout, Line, Piece, Span, Voice } from "./conversation-format.js";
export { PlainFormat, type PlainOptions } from "./plain.js";
