import { afterEach, describe, expect, it, test } from "vitest";
import { checkSystem, systemChecks } from "../../src/testing/index.js";
import { ContractError, TokenTable, type NodeKey } from "../../src/tree/index.js";
import { BigramSystem } from "../support/bigram-system.js";

const OPTIONS = { contexts: ["x", "y"], probes: ["ab", "c."] };

let system: BigramSystem;
afterEach(() => system.dispose());

it("a system that follows every rule passes, and keeps its parameters", async () => {
  system = new BigramSystem();
  const before = [...system.table.detach().toTypedArray()];
  await expect(checkSystem(system, OPTIONS)).resolves.toBeUndefined();
  expect([...system.table.detach().toTypedArray()]).toEqual(before);
});

let calls = 0;
const BROKEN: [name: string, rule: string, make: () => BigramSystem][] = [
  [
    "draws without its keys",
    "generates the same for the same keys",
    () =>
      new (class extends BigramSystem {
        override rolloutPromptWithTester(contexts: readonly string[]) {
          return Promise.resolve(contexts.map(() => String(calls++)));
        }
      })(),
  ],
  [
    "draws by row",
    "and a row alone as in a batch",
    () =>
      new (class extends BigramSystem {
        override rolloutPromptWithTester(contexts: readonly string[], _: readonly NodeKey[]) {
          return Promise.resolve(contexts.map((_context, row) => "abc"[row]!));
        }
      })(),
  ],
  [
    "leaves the gradient out",
    "scores tokens, with a gradient for the tester only",
    () =>
      new (class extends BigramSystem {
        override getTesterLogprobs(contexts: readonly string[], probes: readonly string[]) {
          return this.getBaselineLogprobs(contexts, probes);
        }
      })(),
  ],
  [
    "scores a row by its place in the batch",
    "scores a row alone as in a batch",
    () =>
      new (class extends BigramSystem {
        override async getTargetLogprobs(_: readonly string[], probes: readonly string[]) {
          return TokenTable.ofRows(probes.map((probe, row) => Array.from(probe, () => -1 - row)));
        }
      })(),
  ],
  [
    "rewards with NaN",
    "rewards each turn with a finite number",
    () =>
      new (class extends BigramSystem {
        override reward(_: readonly string[], probes: readonly string[]) {
          return Promise.resolve(probes.map(() => NaN));
        }
      })(),
  ],
  [
    "counts its turns in the state",
    "advances without changing what it is given",
    () =>
      new (class extends BigramSystem {
        override advance(context: string) {
          return `${context}${calls++}`;
        }
      })(),
  ],
  [
    "refuses no rows",
    "accepts no rows",
    () =>
      new (class extends BigramSystem {
        override rolloutPromptWithTarget(prompts: readonly string[]) {
          if (prompts.length === 0) throw new Error("nothing was asked");
          return super.rolloutPromptWithTarget(prompts);
        }
      })(),
  ],
  [
    "restores nothing",
    "has trainable parameters, which it saves and restores",
    () =>
      new (class extends BigramSystem {
        override async restoreTester() {}
      })(),
  ],
  [
    "forgets its state",
    "has state that is JSON, and restores it",
    () =>
      new (class extends BigramSystem {
        #seen = 1;
        override getState() {
          return this.#seen++;
        }
        override setState() {}
      })(),
  ],
];

describe("a broken rule is named", () => {
  test.each(BROKEN)("%s", async (_, rule, make) => {
    system = make();
    const error: unknown = await checkSystem(system, OPTIONS).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ContractError);
    expect((error as Error).message).toContain(`\n`);
    const lines = (error as Error).message.split("\n").slice(1);
    expect(lines.some((line) => line.split(": ")[0]!.includes(rule))).toBe(true);
  });

  test("each rule is a separate test", () => {
    system = new BigramSystem();
    const names = systemChecks(() => system, OPTIONS).map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
  });
});
