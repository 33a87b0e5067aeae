import {
  Codec,
  Conversation,
  goalOf,
  loadCausalLM,
  makeFormat,
  tokenLogprobs,
  writtenIds,
  type LoadedCausalLM,
} from "@astra-rl/lm";
import { liveTensors, noGrad, scope, tensor, type Tensor } from "@astra-rl/torch";
import { makeScorer, modelSource } from "@astra-rl/assembly";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkScorer } from "@astra-rl/method/testing";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { temporaryFolder } from "../../method/test/training/temporary-folder.js";
import { LocalJudgeScorer, type LocalJudgeOptions } from "../src/index.js";

const before = liveTensors();
let loaded: LoadedCausalLM;
const bias: Tensor[] = [];
beforeAll(async () => {
  loaded = await loadCausalLM(modelSource("embedded:chat"));
});
afterEach(() => bias.splice(0).forEach((each) => each.dispose()));
afterAll(() => {
  loaded.model.dispose();
  expect(liveTensors()).toBe(before);
});

const textOf = (id: number) => Buffer.from(Codec.of(loaded.tokenizer).bytesOf(id)).toString();
const idsOf = (...words: string[]) =>
  Array.from({ length: loaded.tokenizer.vocabSize }, (_, id) => id).filter((id) =>
    words.includes(textOf(id).trim().toLowerCase()),
  );

/** A judge whose model says certain tokens only: their logits are raised by 100. */
function judge(
  ids: readonly number[],
  settings: Omit<Partial<LocalJudgeOptions>, "model">,
): LocalJudgeScorer {
  const { model } = loaded;
  const row = new Float32Array(loaded.tokenizer.vocabSize);
  for (const id of ids) row[id] = 100;
  const raised = tensor(row, { shape: [1, row.length] });
  bias.push(raised);
  const planted = new Proxy(model, {
    get: (target, key) => {
      if (key === "logits") return (hidden: Tensor) => scope(() => model.logits(hidden).add(raised));
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value as () => unknown).bind(target) : value;
    },
  });
  return new LocalJudgeScorer({ ...loaded, model: planted, dispose: () => undefined }, settings);
}

const goal = goalOf({ id: "lock", text: "Open a lock." });
const question = "Goal: {goal} Said: {response} Answer yes or no.";

it("reads P(yes) / (P(yes) + P(no)) of the model's own probabilities, alone as in a batch", async () => {
  const scorer = judge(idsOf("yes", "no"), { question, read: "probability" });
  const exchanges = ["Turn it.", "I will not.", "Turn it twice, then push the door until it opens."].map(
    (response) => ({ prompt: "How?", response, goal }),
  );
  const together = (await scorer.scoreAndValidate(exchanges)).map(({ score }) => score!);
  const { model, tokenizer } = loaded;
  const format = makeFormat("m", tokenizer, "target", {}, new Date(2025, 0, 1));
  for (const [at, exchange] of exchanges.entries()) {
    const text = `Goal: Open a lock. Said: ${exchange.response} Answer yes or no.`;
    const context = writtenIds(format, "target", Conversation.of(text));
    const mass = (word: string) =>
      noGrad(() =>
        scope(() => {
          const rows = idsOf(word).map((id) => ({ context, continuation: [id] }));
          const values = tokenLogprobs(model, rows).toTypedArray() as Float32Array;
          return [...values].reduce((sum, value) => sum + Math.exp(value), 0);
        }),
      );
    const [yes, no] = [mass("yes"), mass("no")];
    expect(together[at]).toBeCloseTo(yes / (yes + no), 4);
    const [alone] = await scorer.scoreAndValidate([exchange]);
    expect(alone!.score).toBeCloseTo(together[at]!, 5);
  }
  expect(new Set(together).size).toBe(3);
  scorer.dispose();
});

it("keeps the contract of scorers", async () => {
  const make = () => judge(idsOf("yes", "no"), { question: "{response}?", read: "probability" });
  await checkScorer(make, { longest: 1000, tolerance: 1e-4 });
});

it("fails without a score where the model would say something else", async () => {
  const scorer = judge([], { question: "{response}", read: "probability" });
  const [outcome] = await scorer.score(["Turn it."]);
  expect(outcome!.failure).toMatchObject({ stage: "scorer", cause: "answer" });
  scorer.dispose();
});

it("generates its most likely answer for every other way of reading", async () => {
  const [yes, no] = [idsOf("yes"), idsOf("no")].map((ids) => ids.slice(0, 1));
  const settings = { question: "{response}", read: "yes-no", maxNewTokens: 4, batchSize: 2 } as const;
  for (const [ids, score] of [
    [yes!, 1],
    [no!, 0],
  ] as const) {
    const scorer = judge(ids, settings);
    // "YesYes" is no word, but " no no" is.
    const outcomes = await scorer.score(["a", "b", "c"]);
    const isWord = textOf(ids[0]!).startsWith(" ");
    expect(outcomes.map((each) => each.score)).toEqual([0, 1, 2].map(() => (isWord ? score : undefined)));
    scorer.dispose();
  }
  const babbling = judge([], settings);
  const [outcome] = await babbling.score(["Turn it."]);
  expect(outcome!.failure!.message).toContain("no verdict in");
  babbling.dispose();
});

it("truncates what is judged to the window, and never the rubric", async () => {
  const scorer = judge(idsOf("yes", "no"), { question, read: "probability" });
  const long = "word ".repeat(5000);
  const [short, cut, other] = await scorer.scoreAndValidate([
    { prompt: "How?", response: "word", goal },
    { prompt: "How?", response: long, goal },
    { prompt: "How?", response: `${long} and more`, goal },
  ]);
  expect([short!.cut, cut!.cut, other]).toEqual([undefined, true, cut]);
  const whole = judge([], { question: `${long} {response}`, read: "probability" });
  await expect(whole.score(["a"])).rejects.toThrow(breaking("template-exceeds-window", "local-judge"));
});

it("is a kind of a configuration, whose rubric is a file", async () => {
  const file = join(temporaryFolder(), "rubric.txt");
  writeFileSync(file, "{goal}: {response}\n");
  const options = { model: modelSource("embedded:chat"), file, read: "number", scale: { from: 1, to: 5 } };
  const scorer = await makeScorer({ type: "local-judge", maxNewTokens: 4, ...options });
  expect([scorer.needsGoal, scorer.keepsRoles, scorer.keepsContext]).toEqual([true, true, false]);
  const [outcome] = await scorer.scoreAndValidate([{ prompt: "How?", response: "Turn it.", goal }], {
    attempts: 1,
  });
  // The embedded model chats, and judges nothing.
  expect(outcome!.failure).toMatchObject({ stage: "scorer", cause: "answer" });
  scorer.dispose();
});

it("needs a goal exactly if its rubric has {goal}, and refuses what does not fit", async () => {
  const scorer = judge([], { question, read: "yes-no" });
  expect(scorer.needsGoal).toBe(true);
  await expect(scorer.scoreAndValidate([{ prompt: "a", response: "b" }])).rejects.toThrow(
    breaking("goal-required", "{goal}"),
  );
  expect(judge([], {}).needsGoal).toBe(false);
  expect(() => judge([], { read: "probability" })).toThrow(breaking("inapplicable-option", "read"));
});
