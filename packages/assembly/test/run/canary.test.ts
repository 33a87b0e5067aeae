import { Message, type Conversation } from "@astra-rl/lm";
import type { Model, NodeKey } from "@astra-rl/method";
import { ASTSystem, ReplayTester } from "@astra-rl/method";
import { expect, test } from "vitest";
import { askCanary } from "../../src/command/index.js";

/** Says something else to each question, with its name; a dead one says nothing. */
class NamedTarget implements Model {
  readonly role = "target";
  readonly tellsLikelihood = false;
  readonly work = { read: 0, generated: 0 };

  constructor(
    readonly name: string,
    readonly isDead: boolean,
  ) {}

  generate(conversations: readonly Conversation[]): Promise<Message[]> {
    const said = (each: Conversation) => (this.isDead ? "" : `${this.name} heard ${each.toString().length}`);
    return Promise.resolve(conversations.map((each) => new Message("target", said(each))));
  }

  release(): void {}

  dispose(): void {}
}

/** Chooses the second target in one of a million episodes. */
class Choosy extends ASTSystem {
  override modelsAt({ episode }: NodeKey): Readonly<Record<string, string>> {
    return { target: isRare(episode) ? "target-2" : "target" };
  }

  override rolloutPromptWithTarget(prompts: readonly Conversation[], keys: readonly NodeKey[]) {
    const { target, otherTargets } = this.parts;
    const chosen = isRare(keys[0]!.episode) ? otherTargets![0]! : target!;
    return chosen.generate(prompts, { keys }) as Promise<Message[]>;
  }
}

const isRare = (episode: number) => episode % 1_000_000 === 999_999;

test.each([
  [false, []],
  [true, ["target-silent"]],
])("a target that a custom choice rarely makes is asked as well (dead: %s)", async (isDead, rules) => {
  const [target, other] = [new NamedTarget("target", false), new NamedTarget("target-2", isDead)];
  const system = new Choosy({ tester: new ReplayTester(), target, otherTargets: [other] } as never);
  const configuration = { seed: 1 } as Parameters<typeof askCanary>[0];
  const { answers, doubts } = await askCanary(configuration, { system, evaluators: {} as never }, {});
  expect(answers!.questions.map(({ target: name, response }) => [name, response.split(" ")[0]])).toEqual([
    ["target", "target"],
    ["target", "target"],
    ["target-2", isDead ? "" : "target-2"],
    ["target-2", isDead ? "" : "target-2"],
  ]);
  expect(doubts.map(({ rule }) => rule)).toEqual(rules);
});
