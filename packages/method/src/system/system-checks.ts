import { describeValue, UsageError } from "@astra-rl/base";
import { Conversation, Message } from "@astra-rl/lm";
import type { SystemParts } from "./system-parts.js";

/** @throws UsageError for models whose tokens the tester cannot learn from */
export function checkTokenizers(
  where: string,
  { tester, otherTesters = [], baseline }: Readonly<SystemParts>,
): void {
  if (tester !== undefined && baseline !== undefined && baseline.tokens !== tester.tokens) {
    throw foreignBaseline(where);
  }
  for (const other of otherTesters) {
    if (tester !== undefined && tester.tokens === other.tokens) continue;
    throw new UsageError(
      "other-tokenizer",
      `${where}: ${other.name} must have the tester's tokenizer, since the tester learns from the tokens that ` +
        `it generates; ` +
        "choose another checkpoint of the tester's family",
    );
  }
}

/** Error for a baseline whose tokenizer differs from the tester's. @param where begins the message */
export function foreignBaseline(where: string): UsageError {
  return new UsageError(
    "other-tokenizer",
    `${where}: the baseline must have the tester's tokenizer, since both score the same tokens; ` +
      "choose the tester's initial checkpoint or another of its family",
  );
}

/**
 * A part of a system, for a method of it that is given these conversations and messages.
 *
 * @throws UsageError without the part, and for texts instead of Conversations and Messages
 */
export function requirePart<Name extends keyof SystemParts>(
  system: { readonly parts: Readonly<SystemParts> },
  name: Name,
  method: string,
  contexts: readonly unknown[],
  messages: readonly unknown[],
): NonNullable<SystemParts[Name]> {
  const where = `${system.constructor.name}.${method}`;
  const part = system.parts[name];
  if (part === undefined) {
    throw new UsageError(
      "missing-part",
      `${where}: this system has no ${name}; give one in its parts, or override ${method}`,
    );
  }
  const state = contexts.find((context) => !(context instanceof Conversation));
  if (state !== undefined) {
    throw new UsageError(
      "not-a-conversation",
      `${where}: takes Conversations, got ${describeValue(state)}; make one with Conversation.of(text)`,
    );
  }
  const text = messages.find((message) => !(message instanceof Message));
  if (text !== undefined) {
    throw new UsageError(
      "not-a-message",
      `${where}: takes Messages, got ${describeValue(text)}; make one with new Message("tester", text)`,
    );
  }
  return part;
}
