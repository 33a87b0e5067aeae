import { Message } from "@astra-rl/lm";
import type { ResponseNote } from "@astra-rl/records";

/** A message with a note of the server that gave it. */
export class NotedMessage extends Message {
  constructor(
    from: "tester" | "target",
    text: string,
    readonly note: ResponseNote,
  ) {
    super(from, text);
    Object.freeze(this);
  }
}
