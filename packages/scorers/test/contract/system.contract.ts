import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import type { System } from "@astra-rl/method";
import { systemChecks } from "@astra-rl/method/testing";

export interface SystemContract {
  create: () => Promise<System>;
  contexts: readonly string[];
  continuations: readonly string[];
}

/** Rules of every system of conversations. */
export function systemContract(name: string, { create, contexts, continuations }: SystemContract): void {
  describe(`${name} as a system`, () => {
    let system: System;
    beforeAll(async () => void (system = await create()));
    afterAll(() => system.dispose());
    const options = {
      contexts: contexts.map((text) => Conversation.of(text)),
      probes: continuations.map((text) => new Message("tester", text)),
    };
    it.each(systemChecks(() => system, options).map(({ name: rule, run }) => [rule, run] as const))(
      "%s",
      async (_, run) => expect(await run()).toBeUndefined(),
    );
  });
}
