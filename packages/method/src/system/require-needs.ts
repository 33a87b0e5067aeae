import { UsageError } from "@astra-rl/base";
import type { Conversation, Message } from "@astra-rl/lm";
import type { TokensRecord } from "@astra-rl/records";
import type { Node } from "../tree/index.js";
import type { System, SystemNeed } from "./system.js";

/**
 * Refuses a system without the required capabilities.
 *
 * @param who requires them; begins the message
 * @throws UsageError with the reason and what to do
 */
export function requireNeeds<S, A>(system: System<S, A>, needs: readonly SystemNeed[], who: string): void {
  for (const need of needs) {
    const reason = system.missingCapability(need);
    const { rule, what } = NEEDED[need];
    if (reason !== null)
      throw new UsageError(rule, `${who} needs ${what}, but ${system.constructor.name} ${reason}`);
  }
}

const NEEDED = {
  baseline: { rule: "no-baseline", what: "a baseline" },
  values: { rule: "no-values", what: "a system that provides values" },
  entropy: { rule: "no-entropy", what: "the entropy of the tester" },
};

/** Implemented by systems that can record token ids in graphs.jsonl (`keepTokens`). */
export interface TokenTeller<S = Conversation, A = Message> {
  /** The token ids of a turn; null if the system did not generate the turn. */
  tokensOf(node: Node<S, A>): TokensRecord | null;
}

/** @throws UsageError for a system without `tokensOf` */
export function tokenTeller<S, A>(system: object): TokenTeller<S, A> {
  if (typeof (system as Partial<TokenTeller<S, A>>).tokensOf === "function")
    return system as TokenTeller<S, A>;
  throw new UsageError(
    "no-token-ids",
    "training: keepTokens requires a system that provides the token ids of a turn (a method tokensOf), and " +
      "this one does not",
  );
}
