import { Message } from "@astra-rl/lm";
import type { Divergence, Failure, ResponseNote } from "@astra-rl/records";

/** What the sender of a message tells about it. */
export interface MessageNotes {
  /** A server's, on its answer. */
  note?: ResponseNote | null;
  /** An agent's actions before it answered. */
  calls?: Message["calls"];
  /** Where the agent's session differs from the conversation. */
  diverged?: readonly Divergence[];
  /** Why an agent gave no answer after its calls: the text is empty, and says nothing. */
  unanswered?: Failure;
}

/** A message with notes of its sender. */
export class NotedMessage extends Message {
  readonly note: ResponseNote | null;
  readonly diverged: readonly Divergence[];
  readonly unanswered: Failure | null;

  constructor(from: "tester" | "target", text: string, { note, calls, diverged, unanswered }: MessageNotes) {
    super(from, text, null, calls);
    this.note = note ?? null;
    this.diverged = diverged ?? [];
    this.unanswered = unanswered ?? null;
    Object.freeze(this);
  }
}

/** The notes of a message; only those that it has. */
export function notesOf(message: unknown): MessageNotes {
  if (!(message instanceof Message)) return {};
  const { note = null, diverged = [], unanswered = null } = message instanceof NotedMessage ? message : {};
  return {
    ...(note === null ? {} : { note }),
    ...(message.calls.length === 0 ? {} : { calls: message.calls }),
    ...(diverged.length === 0 ? {} : { diverged }),
    ...(unanswered === null ? {} : { unanswered }),
  };
}

/** What an agent did in a turn that it did not answer, as a message without text; null if nothing is known of it. */
export function doneBefore(failure: Failure | null | undefined): NotedMessage | null {
  const { calls = [], ...unanswered } = failure ?? {};
  return failure?.stage !== "target" || calls.length === 0
    ? null
    : new NotedMessage("target", "", { calls, unanswered: unanswered as Failure });
}
