import { describe, expect, it, test } from "vitest";
import { ContractError, Scorer, type Exchange, type ScoreOutcome } from "@astra-rl/method";
import { checkScorer, scorerChecks } from "@astra-rl/method/testing";

class Lengths extends Scorer {
  override readonly name: string = "lengths";
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.resolve(texts.map((text) => ({ score: Math.min(1, text.length / 1000) })));
  }
}

it("a scorer that follows every rule passes", async () => {
  await expect(checkScorer(() => new Lengths())).resolves.toBeUndefined();
});

let calls = 0;
const BROKEN: [name: string, rule: string, make: () => Scorer][] = [
  [
    "sorts what it is given",
    "in order",
    () =>
      new (class extends Lengths {
        override score(texts: readonly string[]) {
          return super.score([...texts].sort());
        }
      })(),
  ],
  [
    "leaves duplicates out",
    "gives equal texts equal scores",
    () =>
      new (class extends Lengths {
        override score(texts: readonly string[]) {
          return super.score([...new Set(texts)]);
        }
      })(),
  ],
  [
    "normalises over the batch",
    "scores a text alone as in a batch",
    () =>
      new (class extends Lengths {
        override score(texts: readonly string[]) {
          const most = Math.max(1, ...texts.map((text) => text.length));
          return Promise.resolve(texts.map((text) => ({ score: text.length / most })));
        }
      })(),
  ],
  [
    "changes with each call",
    "says the same again",
    () =>
      new (class extends Lengths {
        override score(texts: readonly string[]) {
          calls += 1;
          return Promise.resolve(texts.map(() => ({ score: (calls % 7) / 7 })));
        }
      })(),
  ],
  [
    "refuses the empty text",
    "has a name",
    () =>
      new (class extends Lengths {
        override score(texts: readonly string[]) {
          return Promise.resolve(texts.map((text) => ({ score: text === "" ? NaN : 0 })));
        }
      })(),
  ],
  [
    "refuses long texts",
    "scores long texts",
    () =>
      new (class extends Lengths {
        override score(texts: readonly string[]) {
          if (texts.some((text) => text.length > 9999)) return Promise.reject(new Error("too long"));
          return super.score(texts);
        }
      })(),
  ],
  [
    "invents labels",
    "carries exactly the labels",
    () =>
      new (class extends Lengths {
        override score(texts: readonly string[]) {
          return Promise.resolve(texts.map(() => ({ score: 0, labels: { rude: 0 } })));
        }
      })(),
  ],
  [
    "judges the prompt instead of the response",
    "scores exchanges",
    () =>
      new (class extends Lengths {
        override get keepsRoles() {
          return false;
        }
        override scoreExchanges(exchanges: readonly Exchange[]) {
          return this.score(exchanges.map(({ prompt }) => prompt));
        }
      })(),
  ],
  [
    "sorts in place",
    "does not change what it is given",
    () =>
      new (class extends Lengths {
        override score(texts: readonly string[]) {
          (texts as string[]).sort();
          return super.score(texts);
        }
      })(),
  ],
  [
    "breaks when it is disposed of twice",
    "can be disposed of twice",
    () =>
      new (class extends Lengths {
        #held = true;
        override dispose() {
          if (!this.#held) throw new Error("there is nothing left");
          this.#held = false;
        }
      })(),
  ],
];

describe("a broken rule is named", () => {
  test.each(BROKEN)("%s", async (_, rule, make) => {
    const error: unknown = await checkScorer(make).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ContractError);
    expect((error as Error).message).toContain(rule);
  });

  test("reports what it cannot score", async () => {
    await expect(checkScorer(() => new Lengths(), { unscorable: "?" })).rejects.toThrow(
      /reports what it cannot score as data/u,
    );
    await expect(checkScorer(() => new Lengths(), { harmful: "a", harmless: "bb" })).rejects.toThrow(
      /scores harmful text higher: "a" must score higher than "bb", got 0.001 and 0.002/u,
    );
  });

  test("each rule is a separate test", () => {
    const names = scorerChecks(() => new Lengths()).map(({ name }) => name);
    expect(names.length).toBeGreaterThan(8);
    expect(new Set(names).size).toBe(names.length);
  });
});
