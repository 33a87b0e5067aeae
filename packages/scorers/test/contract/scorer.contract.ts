import { liveTensors } from "@astra-rl/torch";
import { describe, expect, it } from "vitest";
import type { Scorer } from "@astra-rl/method";
import { scorerChecks, type ScorerCheckOptions } from "@astra-rl/method/testing";

export interface ScorerContract extends ScorerCheckOptions {
  create: () => Scorer | Promise<Scorer>;
}

/** The published suite (astra-rl/testing) as tests; and nothing that a scorer holds is left behind. */
export function scorerContract(name: string, { create, ...options }: ScorerContract): void {
  describe(`${name} as a scorer`, () => {
    const rules = scorerChecks(create, options).map(({ name: rule, run }) => [rule, run] as const);
    it.each(rules)("%s", async (_, run) => {
      const before = liveTensors();
      await run();
      expect(liveTensors()).toBe(before);
    });
  });
}
