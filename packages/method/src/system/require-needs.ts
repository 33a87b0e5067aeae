import { UsageError } from "@astra-rl/base";
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
