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
    if (reason !== null)
      throw new UsageError(
        `no-${need}`,
        `${who} needs ${NEEDED[need]}, but ${system.constructor.name} ${reason}`,
      );
  }
}

const NEEDED = {
  baseline: "a baseline",
  values: "a system that provides values",
  entropy: "the entropy of the tester",
};
