export type Voice = "system" | "opening" | "self" | "other";
export interface Line { readonly voice: Voice; readonly text: string; readonly ids?: readonly number[]; readonly scaffold?: true }
export type Span = readonly [from: number, to: number];
export interface Piece { readonly ids: readonly number[]; readonly body: Span }
export interface ConversationFormat { readonly name: string; append(lines: readonly Line[], line: Line): Piece | null }
