import { expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import type { Model } from "../../src/models/index.js";
import { ModelPool } from "../../src/system/index.js";

function resolvers() {
  let resolve!: () => void;
  let reject!: (error: Error) => void;
  const promise = new Promise<void>((fulfil, fail) => {
    resolve = fulfil;
    reject = fail;
  });
  return { promise, resolve, reject };
}

/** A model that answers on command. */
function waiting(name: string) {
  const answer = resolvers();
  const asked: string[] = [];
  const model: Model = {
    name,
    role: "target",
    tellsLikelihood: false,
    work: { read: 0, generated: 0 },
    async generate(conversations) {
      asked.push(...conversations.map(String));
      await answer.promise;
      return conversations.map((conversation) => new Message("target", `${name} to ${conversation}`));
    },
    release() {},
    dispose() {},
  };
  return { model, asked, answer };
}

const given = ["a", "b", "c", "d"].map((text) => Conversation.of(text));
const keys = given.map((_, node) => ({ seed: 0, episode: node, node }));
const pool = (...members: Model[]) => new ModelPool(members, ({ episode }) => episode % 2);

it("members are called concurrently, and their answers are in the order of the rows", async () => {
  const [one, other] = [waiting("one"), waiting("other")];
  const answers = pool(one.model, other.model).generate(given, { keys });
  await new Promise(setImmediate);
  expect([one.asked, other.asked]).toEqual([
    ["a", "c"],
    ["b", "d"],
  ]);
  other.answer.resolve();
  one.answer.resolve();
  expect((await answers).map((each) => (each as Message).text)).toEqual([
    "one to a",
    "other to b",
    "one to c",
    "other to d",
  ]);
});

it("a failing member is reported after the others have ended", async () => {
  const [one, other] = [waiting("one"), waiting("other")];
  const ended = { how: "" };
  const answers = pool(one.model, other.model)
    .generate(given, { keys })
    .catch((error: Error) => (ended.how = error.message));
  one.answer.reject(new Error("spent"));
  await new Promise(setImmediate);
  expect(ended.how).toBe("");
  other.answer.resolve();
  await answers;
  expect(ended.how).toBe("spent");
});
