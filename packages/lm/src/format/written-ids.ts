import type { Conversation } from "../conversation/conversation.js";
import type { Format, Piece } from "./format.js";

/** A conversation's ids, with the cue for the next message of `role`. */
export function writtenIds(format: Format, role: "tester" | "target", conversation: Conversation): number[] {
  const pieces = format.layout?.(conversation, () => null) ?? written(format, role, conversation);
  return [...pieces.flatMap(({ ids }) => ids), ...format.cue(conversation)];
}

function written(format: Format, role: "tester" | "target", conversation: Conversation): Piece[] {
  const { parent, last } = conversation;
  const piece = format.write(conversation, null);
  if (parent === null) return [piece];
  const cue = last.from === role ? format.cue(parent) : [];
  return [...written(format, role, parent), { ids: [...cue, ...piece.ids], body: piece.body }];
}
