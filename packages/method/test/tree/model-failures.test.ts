import { describe, expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import type { Failure } from "@astra-rl/records";
import { KeywordScorer } from "@astra-rl/scorers";
import { FailedMessage, expand, RecordedFailure, type NodeKey } from "../../src/tree/index.js";
import type { Model } from "../../src/models/index.js";
import { Reward } from "../../src/reward/index.js";
import { ASTSystem } from "../../src/system/index.js";

type Role = "tester" | "target";

/** Responds with its name and node, except for failing rows; records its calls. */
class Unreliable implements Model {
  readonly tellsLikelihood = true;
  readonly work = { read: 0, generated: 0 };
  readonly asked: string[] = [];
  /** Rows of each call. */
  readonly calls: number[] = [];

  constructor(
    readonly role: Role,
    /** Nodes whose rows fail. */
    readonly failing: readonly number[],
    /** Nodes for which the whole call is refused. */
    readonly refused: readonly number[] = [],
  ) {}

  get name(): string {
    return `${this.role} of the tests`;
  }

  generate(
    conversations: readonly Conversation[],
    { keys }: { keys: readonly NodeKey[] },
  ): Promise<(Message | Failure)[]> {
    this.calls.push(conversations.length);
    if (keys.some(({ node }) => this.refused.includes(node)))
      return Promise.reject(new Error("the server is down"));
    return Promise.resolve(
      conversations.map((after, row) => {
        const { node } = keys[row]!;
        this.asked.push(`${after}@${node}`);
        if (this.failing.includes(node))
          return { stage: this.role, message: `no answer for node ${node}`, attempts: 3 };
        const text = `${this.role === "tester" ? "Why" : "So"} ${node}. `;
        const ids = [node];
        const { name: by } = this;
        return new Message(this.role, text, {
          by,
          tokens: by,
          ids,
          kept: 1,
          logprobs: [-1],
          finished: "stop",
          after,
        });
      }),
    );
  }

  logprobs(_: readonly Conversation[], messages: readonly Message[]): Promise<number[][]> {
    return Promise.resolve(messages.map(() => [-1]));
  }

  release(): void {}
  dispose(): void {}
}

const scorer = new KeywordScorer([{ pattern: "So" }]);
const worth = { name: "worth", needs: [], score: async (turns: readonly unknown[]) => turns.map(() => 1) };
const start = Conversation.of("Hello. ");
const requests = [1, 2, 3, 4].map((node) => ({ context: start, key: { seed: 0, episode: 0, node } }));

type Kind = new (...args: ConstructorParameters<typeof ASTSystem>) => ASTSystem;

async function grow(Kind: Kind, tester: Unreliable, target: Unreliable, attempts = 2) {
  const reward = new Reward([{ term: worth, weight: 1 }], { scorer });
  const system = new Kind({ tester: tester as never, target, scorer, reward }, { retry: { attempts } });
  try {
    return await expand(system, requests);
  } finally {
    system.release();
  }
}

const reliable = (role: Role) => new Unreliable(role, []);
const failureOf = (role: Role, node: number): Failure => {
  return { stage: role, message: `no answer for node ${node}`, attempts: 3 };
};

describe("a row of a model that failed", () => {
  it("fails that turn only, without retries", async () => {
    const [tester, target] = [new Unreliable("tester", [2]), new Unreliable("target", [3])];
    const outcomes = await grow(ASTSystem, tester, target);
    expect(outcomes.map(({ failure }) => failure)).toEqual([
      null,
      failureOf("tester", 2),
      failureOf("target", 3),
      null,
    ]);
    expect(outcomes.map(({ probe, response }) => [probe.text, response.text])).toEqual([
      ["Why 1. ", "So 1. "],
      ["", ""],
      ["Why 3. ", ""],
      ["Why 4. ", "So 4. "],
    ]);
    expect(outcomes.map(({ reward }) => reward)).toEqual([1, NaN, NaN, 1]);
    // Failed turns say what can be said of them; where nothing came, the state stays before it.
    expect(outcomes.map(({ next }) => `${next}`)).toEqual([
      "Hello. Why 1. So 1. ",
      "Hello. ",
      "Hello. Why 3. ",
      "Hello. Why 4. So 4. ",
    ]);
    expect(tester.calls).toEqual([4]);
    expect(target.calls).toEqual([3]);
    expect(target.asked).toEqual([1, 3, 4].map((node) => `Hello. Why ${node}. @${node}`));
  });

  it("fails all of a level if every row failed", async () => {
    const [tester, target] = [new Unreliable("tester", [1, 2, 3, 4]), reliable("target")];
    const outcomes = await grow(ASTSystem, tester, target);
    expect(outcomes.map(({ failure }) => failure)).toEqual(
      [1, 2, 3, 4].map((node) => failureOf("tester", node)),
    );
    expect([tester.calls, target.calls]).toEqual([[4], []]);
  });

  it("leaves readable values, and no placeholders", async () => {
    const outcomes = await grow(ASTSystem, new Unreliable("tester", [2]), new Unreliable("target", [3]));
    for (const { probe, response, judged } of outcomes) {
      expect([probe, response].some((message) => message instanceof FailedMessage)).toBe(false);
      expect([judged.probe, judged.response]).toEqual([probe, response]);
      expect(JSON.stringify([probe, response])).toBe(JSON.stringify([probe.text, response.text]));
    }
  });
});

describe("a call that a model rejected", () => {
  it("fails row by row after its retries, so that a bad row fails alone", async () => {
    const [tester, target] = [reliable("tester"), new Unreliable("target", [4], [3])];
    const outcomes = await grow(ASTSystem, tester, target);
    expect(outcomes.map(({ failure }) => failure)).toEqual([
      null,
      null,
      { stage: "target", message: "the server is down", attempts: 2 },
      failureOf("target", 4),
    ]);
    // All at once twice, then each alone, the bad one twice.
    expect(target.calls).toEqual([4, 4, 1, 1, 1, 1, 1]);
    expect(tester.calls).toEqual([4]);
  });
});

describe("an override over a model that failed", () => {
  it.each<[string, (said: Message) => Message | string]>([
    ["as a text", (said) => `${said.text}!`],
    ["in a template", (said) => `${said}!`],
    ["by its JSON", (said) => (JSON.parse(JSON.stringify({ said })) as { said: string }).said],
    ["in a new message", (said) => new Message("target", said.text)],
  ])("cannot mask the failure if it reads the message %s", async (_, read) => {
    class Reading extends ASTSystem {
      override async rolloutPromptWithTarget(...args: Parameters<ASTSystem["rolloutPromptWithTarget"]>) {
        return ((await super.rolloutPromptWithTarget(...args)) as Message[]).map(read);
      }
    }
    const target = new Unreliable("target", [2]);
    const outcomes = await grow(Reading, reliable("tester"), target);
    expect(outcomes.map(({ failure }) => failure)).toEqual([null, failureOf("target", 2), null, null]);
    expect(outcomes[1]!.reward).toBeNaN();
    expect(outcomes[1]!.response.text).toBe("");
  });

  it("keeps the other rows, for which it is called alone", async () => {
    class Shouting extends ASTSystem {
      override async rolloutPromptWithTarget(...args: Parameters<ASTSystem["rolloutPromptWithTarget"]>) {
        return ((await super.rolloutPromptWithTarget(...args)) as Message[]).map(({ text }) =>
          text.toUpperCase(),
        );
      }
    }
    const outcomes = await grow(Shouting, reliable("tester"), new Unreliable("target", [2]));
    expect(outcomes.map(({ response }) => response.text)).toEqual(["SO 1. ", "", "SO 3. ", "SO 4. "]);
    expect(outcomes.map(({ failure }) => failure)).toEqual([null, failureOf("target", 2), null, null]);
  });

  it("can return the other rows as texts, which are new messages", async () => {
    class Texts extends ASTSystem {
      override async rolloutPromptWithTarget(...args: Parameters<ASTSystem["rolloutPromptWithTarget"]>) {
        const said = (await super.rolloutPromptWithTarget(...args)) as Message[];
        return said.map((message) => (message instanceof FailedMessage ? message : message.text));
      }
    }
    const outcomes = await grow(Texts, reliable("tester"), new Unreliable("target", [2]));
    expect(outcomes.map(({ failure }) => failure)).toEqual([null, failureOf("target", 2), null, null]);
    expect(outcomes.map(({ response }) => response.sampled)).toEqual([null, null, null, null]);
  });

  it("can pass the message on or replace it by another answer, which becomes the turn's", async () => {
    class Excusing extends ASTSystem {
      override async rolloutPromptWithTarget(...args: Parameters<ASTSystem["rolloutPromptWithTarget"]>) {
        const said = (await super.rolloutPromptWithTarget(...args)) as Message[];
        return said.map((message, row) =>
          message instanceof FailedMessage && args[1]![row]!.node === 2 ? "I would rather not say." : message,
        );
      }
    }
    const outcomes = await grow(Excusing, reliable("tester"), new Unreliable("target", [2, 3]));
    expect(outcomes.map(({ failure }) => failure)).toEqual([null, null, failureOf("target", 3), null]);
    expect(outcomes[1]!.response.text).toBe("I would rather not say.");
  });

  it("reads the failure from the message itself", () => {
    const message = new FailedMessage("target", failureOf("target", 7));
    expect(message.failure).toEqual(failureOf("target", 7));
    expect(() => message.text).toThrow(RecordedFailure);
    expect(() => message.text).toThrow("target: no answer for node 7");
    expect(() => `${start.append(message)}`).toThrow(RecordedFailure);
    expect(() => ((message as { text: string }).text = "fine")).toThrow(TypeError);
  });
});
