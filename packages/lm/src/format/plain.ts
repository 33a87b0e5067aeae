import type { Codec } from "./codec.js";
import type { ConversationFormat, Line, Piece } from "./conversation-format.js";
export class PlainFormat implements ConversationFormat {
  readonly name = "plain";
  constructor(readonly codec: Codec) {}
  append(lines: readonly Line[], { text, ids }: Line): Piece {
    const body = ids ?? (lines.length === 0 ? this.codec.begin(text) : this.codec.continue(text));
    return { ids: body, body: [0, body.length] };
  }
}
