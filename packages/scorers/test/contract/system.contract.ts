import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import { expand, type NodeKey, type System } from "@astra-rl/method";

export interface SystemContract {
  create: () => Promise<System>;
  contexts: readonly string[];
  continuations: readonly string[];
}

const keysFor = (count: number, seed = 7): NodeKey[] =>
  Array.from({ length: count }, (_, index) => ({ seed, episode: index, node: 1 }));

/** Messages and ids; log-probabilities may differ in their last digits with a model's cache. */
const said = ({ text, sampled }: Message) => [text, sampled?.ids];

/** Rules of every system of conversations. */
export function systemContract(name: string, { create, ...texts }: SystemContract): void {
  const contexts = texts.contexts.map((text) => Conversation.of(text));
  const continuations = texts.continuations.map((text) => new Message("tester", text));
  describe(`${name} as a system`, () => {
    let system: System;
    beforeAll(async () => void (system = await create()));
    afterAll(() => system.dispose());
    const keys = keysFor(contexts.length);

    it("rolls out one message for each context, the same for the same key", async () => {
      for (const roll of [
        "rolloutPromptWithTesterAndValidate",
        "rolloutPromptWithTargetAndValidate",
      ] as const) {
        const first = await system[roll](contexts, keys);
        expect(first.every((message) => message instanceof Message)).toBe(true);
        expect((await system[roll](contexts, keys)).map(said)).toEqual(first.map(said));
      }
    });

    it("rolls out a row the same alone as in a batch", async () => {
      for (const roll of [
        "rolloutPromptWithTesterAndValidate",
        "rolloutPromptWithTargetAndValidate",
      ] as const) {
        const together = await system[roll](contexts, keys);
        for (const [row, context] of contexts.entries()) {
          expect((await system[roll]([context], [keys[row]!])).map(said)).toEqual([said(together[row]!)]);
        }
      }
    });

    it("gives log-probabilities that pass the checks, gradient for the tester only", async () => {
      const tester = await system.getTesterLogprobsAndValidate(contexts, continuations);
      const baseline = await system.getBaselineLogprobsAndValidate(contexts, continuations);
      const target = await system.getTargetLogprobsAndValidate(contexts, continuations);
      expect(tester.values.requiresGrad).toBe(true);
      expect(baseline.values.requiresGrad || target.values.requiresGrad).toBe(false);
      expect(baseline.lengths).toEqual(tester.lengths);
      for (const table of [tester, baseline, target]) table.dispose();
    });

    it("accepts no rows", async () => {
      expect(await system.rolloutPromptWithTesterAndValidate([], [])).toEqual([]);
      expect(await system.rolloutPromptWithTargetAndValidate([], [])).toEqual([]);
      expect(await expand(system, [])).toEqual([]);
      expect(await system.assess([], [], [])).toEqual([]);
    });

    it("rewards each turn with a finite number, alone as in a batch", async () => {
      const responses = continuations.map(
        ({ text }) => new Message("target", text.split("").reverse().join("")),
      );
      const together = await system.rewardAndValidate(contexts, continuations, responses);
      for (const [row, context] of contexts.entries()) {
        const [alone] = await system.rewardAndValidate([context], [continuations[row]!], [responses[row]!]);
        expect(alone).toBeCloseTo(together[row]!, 4);
      }
    });

    it("advances by the messages", () => {
      const [context, probe] = [Conversation.of("a"), new Message("tester", "b")];
      const response = new Message("target", "c");
      const prompt = system.promptForTargetAndValidate(context, probe);
      const next = system.advanceAndValidate(context, probe, response);
      expect([`${prompt}`, `${next}`]).toEqual(["ab", "abc"]);
      expect(prompt).toBe(context.append(probe));
      expect(next).toBe(context.append(probe, response));
    });

    it("has trainable parameters", () => {
      expect([...system.parameters()].some((parameter) => parameter.requiresGrad)).toBe(true);
    });
  });
}
