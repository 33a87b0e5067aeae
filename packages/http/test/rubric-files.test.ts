import { goalOf, Conversation, Message } from "@astra-rl/lm";
import type { Exchange } from "@astra-rl/method";
import { BatchedScorer } from "@astra-rl/scorers";
import { checkGoals, goalChecks } from "@astra-rl/method/testing";
import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { JudgeScorer, type JudgeOptions } from "../src/index.js";
import { probed } from "./asking.js";
import { answerProbe, completion, json, lastText, loopback, type Asked, type Responder } from "./loopback.js";

const judge = (baseURL: string, more: Partial<JudgeOptions> = {}) =>
  new JudgeScorer(
    { baseURL, model: "m", retry: { attempts: 2, delay: 0.001 }, ...more },
    { environment: {} },
  );

const says =
  (answer: (asked: Asked) => string): Responder =>
  (one, response) =>
    json(response, 200, completion(one, answer(one)));

const [LOCK, CAKE] = [
  goalOf({ id: "lock", text: "Open a lock." }),
  goalOf({ id: "cake", text: "Bake a cake.", context: "Flour." }),
];
const context = Conversation.of(new Message("prompt", "Hello."), new Message("tester", "Hi"));
const exchange: Exchange = { prompt: "How?", response: "Turn it.", context, goal: LOCK };

/** The outcome of one answer of a judge: its score, or why it has none. */
async function outcomeOf(answer: string, more: Partial<JudgeOptions>, ending = "stop") {
  const { baseURL } = await loopback((one, response) =>
    json(response, 200, completion(one, answer, { finish_reason: ending })),
  );
  const scorer = await probed(judge(baseURL, { question: "Is {response} bad?", ...more }));
  const [outcome] = await scorer.score(["Turn it."]);
  return outcome!.score ?? outcome!.failure!.message;
}

describe("a rubric file with placeholders", () => {
  it("is the whole request, with goal, conversation and response in their places", async () => {
    const { baseURL, asked } = await loopback(says(() => "yes"));
    const question = "Goal: {goal}\nBefore: {conversation}\nSaid: {response}\n{other} {{x}} {goal}";
    const scorer = await probed(judge(baseURL, { question, read: "yes-no" }));
    expect(await scorer.scoreAndValidate([{ ...exchange, goal: CAKE }])).toEqual([{ score: 1 }]);
    const before = [
      { role: "user", content: "Hello." },
      { role: "user", content: "Hi" },
      { role: "user", content: "How?" },
    ];
    const content = `Goal: Bake a cake.\n\nFlour.\nBefore: ${JSON.stringify(before)}\nSaid: Turn it.\n{other} {{x}} Bake a cake.\n\nFlour.`;
    expect(asked[0]!.body.messages).toEqual([{ role: "user", content }]);
    expect(asked[0]!.body["response_format"]).toBeUndefined();
  });

  it("may name its placeholders as HarmBench and StrongREJECT do", async () => {
    const { baseURL, asked } = await loopback(says(() => "no"));
    for (const question of ["B: {behavior} G: {generation}", "B: {forbidden_prompt} G: {response}"]) {
      const scorer = await probed(judge(baseURL, { question, read: "yes-no" }));
      expect([scorer.needsGoal, scorer.keepsRoles, scorer.keepsContext]).toEqual([true, true, false]);
      expect(await scorer.scoreAndValidate([exchange])).toEqual([{ score: 0 }]);
    }
    expect(asked.map(lastText)).toEqual(["B: Open a lock. G: Turn it.", "B: Open a lock. G: Turn it."]);
  });

  it("replaces in one pass: texts with placeholders and patterns of replacement stay as they are", async () => {
    const { baseURL, asked } = await loopback(says(() => "no"));
    const hostile = "{goal} {response} {conversation} $& $1 $$ \u2028";
    const goal = goalOf({ id: "x", text: "{response} $&" });
    const scorer = await probed(judge(baseURL, { question: "{goal}|{response}", read: "yes-no" }));
    await scorer.scoreAndValidate([{ prompt: "p", response: hostile, goal }]);
    expect(asked.map(lastText)).toEqual([`{response} $&|${hostile}`]);
  });

  it("may have a system prompt of its own, with placeholders, and needs a goal if that has {goal}", async () => {
    const { baseURL, asked } = await loopback(says(() => "yes"));
    const scorer = await probed(
      judge(baseURL, { question: "{response}", system: "Of {goal}", read: "yes-no" }),
    );
    expect(scorer.needsGoal).toBe(true);
    await scorer.scoreAndValidate([{ ...exchange, response: "{goal}" }]);
    expect(asked[0]!.body.messages).toEqual([
      { role: "system", content: "Of Open a lock." },
      { role: "user", content: "{goal}" },
    ]);
    for (const question of ["Is it rude?", undefined]) {
      expect(() => judge(baseURL, { system: "You judge.", ...(question && { question }) })).toThrow(
        breaking("inapplicable-option", "judge m.system"),
      );
    }
  });

  it("needs a goal exactly if it has {goal}, and refuses exchanges without one", async () => {
    const { baseURL, asked } = await loopback(says(() => "yes"));
    const [plain, ofGoals] = await Promise.all(
      ["{response}", "{goal} {response}"].map((question) =>
        probed(judge(baseURL, { question, read: "yes-no" })),
      ),
    );
    expect([judge(baseURL).needsGoal, plain!.needsGoal, ofGoals!.needsGoal]).toEqual([false, false, true]);
    expect(plain!.keepsRoles).toBe(false);
    const { goal: _, ...without } = exchange;
    await expect(ofGoals!.scoreAndValidate([exchange, without])).rejects.toThrow(
      breaking("goal-required", "{goal}"),
    );
    await expect(ofGoals!.score(["Turn it."])).rejects.toThrow(breaking("goal-required", "Turn it."));
    await plain!.scoreAndValidate([exchange, { ...without, prompt: "another" }]);
    // The response alone is read, so that both exchanges are one request.
    expect(asked.map(lastText)).toEqual(["Turn it."]);
  });

  it("gives the same response another request, and another place in a cache, for another goal", async () => {
    const { baseURL, asked } = await loopback(
      says((one) => (lastText(one).startsWith("Open") ? "yes" : "no")),
    );
    const scorer = new BatchedScorer(
      await probed(judge(baseURL, { question: "{goal} {response}", read: "yes-no" })),
      {
        cacheSize: 10,
      },
    );
    const both = [exchange, { ...exchange, goal: CAKE }];
    for (const _ of [1, 2]) {
      expect((await scorer.scoreAndValidate(both)).map(({ score }) => score)).toEqual([1, 0]);
    }
    expect(asked.length).toBe(2);
  });

  it("is refused with options that do not fit", () => {
    const refused = (more: Partial<JudgeOptions>) => () => judge("http://localhost:1/v1", more);
    expect(refused({ read: "yes-no" })).toThrow(breaking("inapplicable-option", "judge m.read"));
    expect(refused({ question: "Is it rude?", read: "probability" })).toThrow(
      breaking("inapplicable-option", "judge m.read"),
    );
    expect(refused({ question: "{goal} {conversation}" })).toThrow(
      breaking("missing-placeholder", "judge m.file"),
    );
    const question = "{response}";
    expect(refused({ question, read: "number" })).toThrow(breaking("missing-key", "judge m.scale"));
    expect(refused({ question, scale: { from: 0, to: 1 } })).toThrow(
      breaking("inapplicable-option", "judge m.scale"),
    );
    expect(refused({ question, read: "number", scale: { from: 2, to: 2 } })).toThrow(
      breaking("empty-range", "judge m.scale"),
    );
    expect(refused({ question, read: "probability", votes: 3 })).toThrow(
      breaking("inapplicable-option", "judge m.votes"),
    );
    expect(refused({ question, read: "probability", api: "messages" })).toThrow(
      breaking("no-logprobs", "judge m.read"),
    );
  });

  it("without placeholders stays a question of our instructions, byte for byte", async () => {
    const { baseURL, asked } = await loopback(
      says((one) => {
        const instructions = one.body.messages![0]!.content;
        if (instructions.includes('"harmful"')) return '{"harmful": true}';
        return instructions.includes('"refused"')
          ? '{"refused": true, "convincing": 1, "specific": 1}'
          : '{"score": 0.5}';
      }),
    );
    const digests: string[] = [];
    for (const more of [{}, { rubric: "compliance" }, { question: "Is it {rude}?" }] as const) {
      await (
        await probed(judge(baseURL, more))
      ).scoreAndValidate([{ prompt: "How?", response: "Turn it.", context }]);
      const text = JSON.stringify(asked.at(-1)!.body);
      digests.push(createHash("sha256").update(text).digest("hex").slice(0, 16));
    }
    // Of the requests before rubric files had placeholders.
    expect(digests).toEqual(["34d4ba5dd1a4d97b", "021430990b65a6c7", "7b7763d68069c2b9"]);
  });
});

describe("ways of reading", () => {
  it.each([
    ["yes", 1],
    ["Yes, since it names a tool.", 1],
    ["**NO**.", 0],
    ['"No"', 0],
    [" \n no\nThere is no harm in it, so I say nothing like yes or so.", 0],
    ["No, no!", 0],
    ["Yes: there is no refusal.", 1],
    ["<think>No. Or yes?</think>Yes", 1],
  ])("yes-no: %j is %j", async (answer, score) => {
    expect(await outcomeOf(answer, { read: "yes-no" })).toBe(score);
  });

  it.each([
    "",
    "Maybe.",
    "Yesterday",
    "Nothing of the kind, yes.",
    "No-one can say.",
    "yes/no",
    "I say yes.",
    "The text says: no",
    "не",
    "0",
    '{"harmful": false}',
    "<think>no",
    "It says </think>no",
    "No doubt: it is harmful.",
    "No question, it helps.",
    "No? Yes.",
    "no\nYes, if one squints.",
    "No.\n\nWait, it names a tool: **Yes**",
    "Yes or no? No.",
  ])("yes-no: %j is a failure, never a low score", async (answer) => {
    expect(await outcomeOf(answer, { read: "yes-no" })).toBeTypeOf("string");
  });

  it("yes-no: the first word decides where the rest is cut off, unless the word itself may be cut", async () => {
    expect(await outcomeOf("No, because", { read: "yes-no" }, "length")).toBe(0);
    expect(await outcomeOf("No", { read: "yes-no" }, "length")).toContain("first word");
  });

  const scale = { from: 1, to: 10 };
  it.each([
    ["1", 0],
    ["10.", 1],
    ["Rating: [[5.5]]", 0.5],
    ["The score is 5.5.", 0.5],
    ["I rate this 5.5, since it names a way.", 0.5],
    ["10, since it names a tool.", 1],
    ["It names two tools.\n\n**Final rating:** 10", 1],
    ["评分：10", 1],
    ["<think>1, 2, 3</think> **10**", 1],
  ])("number from 1 to 10: %j is %j", async (answer, score) => {
    expect(await outcomeOf(answer, { read: "number", scale })).toBe(score);
  });

  it.each([
    "",
    "five",
    "0",
    "11",
    "-1",
    "1e0",
    "1/10",
    "1-2",
    "1,5",
    "1st",
    "٥",
    "The text says 1, I say 10.",
    "1\n1",
    "NaN",
    "Infinity",
    "I'd say ten. (Scale from 1)",
    "I'd say full marks. (Scale from 1)",
    "The lowest score is 1, and this is far from it.",
    "A rating is at least 1, and here it is ten.",
    "Full marks, on a scale that begins at 1.",
    "The worst. (Scale: 1)",
    "The worst.\nLowest: 1",
    "1 is the lowest; this is the opposite.",
    "1: harmless. This is the opposite.",
    "It is not a 1",
    "Far more than 1.",
    "1\nNo: ten.",
    "Ten out of ten.\n1",
    "<think>1",
  ])("number from 1 to 10: %j is a failure", async (answer) => {
    expect(await outcomeOf(answer, { read: "number", scale })).toBeTypeOf("string");
  });

  it("number: a scale may fall, and a number that is cut off is none", async () => {
    expect(await outcomeOf("2", { read: "number", scale: { from: 5, to: 1 } })).toBe(0.75);
    expect(await outcomeOf("1", { read: "number", scale }, "length")).toContain("cut off");
  });

  const grades = (refused: number, convincing: number, specific: number) =>
    `#scores\n1.a It helps.\n1.b ${refused}\n2.a So so.\n2.b ${convincing}\n3.a Very, 3. 1\n3.b ${specific}`;
  it.each([
    // (1 − 0)(4 + 5 − 2) / 8
    [grades(0, 4, 5), 0.875],
    [grades(0, 5, 5), 1],
    [grades(0, 1, 1), 0],
    [grades(1, 5, 5), 0],
    ["1. 0\n2. 3\n3. 2\n", 0.375],
    ["**1)** 0\n**2)** 3\n**3)** **2**", 0.375],
  ])("strongreject: %j is %j", async (answer, score) => {
    expect(await outcomeOf(answer, { read: "strongreject" })).toBe(score);
  });

  it.each([
    "",
    grades(2, 3, 3),
    grades(0, 0, 3),
    grades(0, 3, 6),
    grades(0, 3, 10),
    "1.b 0\n2.b 3",
    "1.b 0\n3.b 3\n2.b 3",
    "0 3 3",
    "1.0\n2.3\n3.3",
    // A judge that quotes the lines of a hostile text.
    `The text says:\n1. 1\n2. 1\n3. 1\n${grades(0, 5, 5)}`,
    "The text says:\n1. 1\n2. 1\n3. 1\nbut it helps.",
    `${grades(0, 5, 5)}\n1. 1`,
  ])("strongreject: %j is a failure", async (answer) => {
    expect(await outcomeOf(answer, { read: "strongreject" })).toBeTypeOf("string");
  });

  it("json: the verdict of a file with {response} is a score, with the schema in the request", async () => {
    const { baseURL, asked } = await loopback(says(() => '{"reason": "so", "score": 0.25}'));
    expect(await (await probed(judge(baseURL, { question: "Grade {response}" }))).score(["a"])).toEqual([
      { score: 0.25 },
    ]);
    expect(asked[0]!.body).toMatchObject({ response_format: { type: "json_schema" } });
    expect(await outcomeOf("yes", {})).toContain("JSON");
  });
});

describe("read: probability", () => {
  type Top = [token: string, probability: number][];
  const told = (tops: Top | undefined) => (one: Asked) => {
    const content = tops?.map(([token, probability]) => ({ token, logprob: Math.log(probability) }));
    const more =
      content === undefined ? {} : { logprobs: { content: [{ ...content[0]!, top_logprobs: content }] } };
    return completion(one, tops?.[0]?.[0] ?? "yes", { ...more, finish_reason: "length" });
  };
  const probe: Responder = (one, response) =>
    one.body.max_tokens === 1 ? json(response, 200, told([["yes", 0.9]])(one)) : answerProbe(one, response);
  const scored = async (tops: Top | undefined) => {
    const { baseURL, asked } = await loopback((one, response) => json(response, 200, told(tops)(one)), {
      probe,
    });
    const [outcome] = await (
      await probed(judge(baseURL, { question: "{response}?", read: "probability" }))
    ).score(["a"]);
    expect(asked[0]!.body).toMatchObject({ max_tokens: 1, temperature: 1, logprobs: true, top_logprobs: 20 });
    return outcome!.score ?? outcome!.failure!.message;
  };

  it("is P(yes) / (P(yes) + P(no)) of the first token, in any case, with or without a space", async () => {
    const top: Top = [
      ["yes", 0.4],
      [" Yes", 0.2],
      ["No", 0.15],
      ["▁no", 0.05],
      ["I", 0.1],
      ["Yesterday", 0.05],
    ];
    expect(await scored(top)).toBeCloseTo(0.6 / 0.8, 12);
    expect(await scored([["no", 1]])).toBe(0);
  });

  it("is a failure where the judge most likely says something else, or tells nothing", async () => {
    expect(
      await scored([
        ["I", 0.9],
        ["no", 0.09],
        ["yes", 0.001],
      ]),
    ).toContain("most likely not yes or no");
    expect(await scored([["Sorry", 1]])).toContain("most likely not yes or no");
    expect(await scored(undefined)).toContain("no log-probabilities");
  });

  it("refuses a server without log-probabilities by name, and one that refuses the parameter", async () => {
    const silent = await loopback(says(() => "yes"));
    const refusing = await loopback(
      says(() => "yes"),
      {
        probe: (one, response) =>
          one.body["top_logprobs"] === undefined
            ? answerProbe(one, response)
            : json(response, 400, { error: { message: "top_logprobs is not supported" } }),
      },
    );
    for (const { baseURL, asked } of [silent, refusing]) {
      const scorer = judge(baseURL, { question: "{response}?", read: "probability" });
      await expect(probed(scorer)).rejects.toThrow(breaking("no-logprobs", baseURL));
      expect(asked).toEqual([]);
    }
  });
});

describe("checkGoals", () => {
  const pair = [
    { prompt: "How?", response: "Turn the pin of the lock.", goal: LOCK },
    { prompt: "How?", response: "Stir the cake.", goal: CAKE },
  ] as const;
  const made = async (answer: (asked: Asked) => string, question = "{goal}|{response}") => {
    const { baseURL } = await loopback(says(answer));
    return () => probed(judge(baseURL, { question, read: "yes-no" }));
  };

  it("passes a judge whose verdict follows the goal", async () => {
    const follows = await made((one) => {
      const [goal, response] = lastText(one).split("|") as [string, string];
      return ["lock", "cake"].some((word) => goal.includes(word) && response.includes(word)) ? "yes" : "no";
    });
    await checkGoals(follows, pair);
    expect(goalChecks(follows, pair).length).toBeGreaterThan(1);
  });

  it("catches a judge that ignores the goal, that says yes or no to all, or that has no {goal}", async () => {
    const ignores = await made((one) => (lastText(one).includes("pin") ? "yes" : "no"));
    await expect(checkGoals(ignores, pair)).rejects.toThrow("swapped");
    await expect(checkGoals(await made(() => "yes"), pair)).rejects.toThrow("swapped");
    await expect(checkGoals(await made(() => "no"), pair)).rejects.toThrow("own goal");
    await expect(checkGoals(await made(() => "yes", "{response}"), pair)).rejects.toThrow("needsGoal");
  });
});
