import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Message } from "@astra-rl/lm";
import { breaking } from "../../base/test/support/breaking.js";
import { AnswerJournal, JudgeScorer } from "../src/index.js";
import { temporaryFolder } from "../../method/test/training/temporary-folder.js";
import { failureOf, key, model, one, probe, probed, QUICK } from "./asking.js";
import { completion, json, loopback, type Responder } from "./loopback.js";

describe("secrets", () => {
  const secret = "sk-planted-secret-of-40-letters-and-more";
  const environment = { MY_KEY: secret };

  it("are removed from server output before it is truncated, read or stored", async () => {
    // So that a cut at 300 or 80 characters goes through the middle of the secret.
    const padded = (most: number) => "x".repeat(most - 20) + secret;
    const says: Responder[] = [
      (_, r) => json(r, 400, { error: { message: padded(300) } }),
      (_, r) => json(r, 400, { error: { message: "no", code: secret, type: secret } }),
      (_, r) => json(r, 400, { detail: [{ [padded(290)]: "no" }] }),
      (_, r) => json(r, 400, padded(300)),
      (_, r) => r.writeHead(400).end(padded(300)),
      (_, r) => r.writeHead(200).end(padded(80)),
      (_, r) => json(r, 200, { error: padded(300) }),
      (a, r) => json(r, 200, completion(a, "Hi", { error: { message: padded(300) } })),
      (a, r) => json(r, 200, completion(a, "Hi", { finish_reason: padded(290) })),
      (a, r) => json(r, 200, { ...completion(a, "Hi"), model: padded(290) }),
      (a, r) => json(r, 200, completion(a, [{ type: padded(300) }])),
      (a, r) => r.end(JSON.stringify(completion(a, padded(300))).replaceAll("-", "\\u002d")),
    ];
    for (const respond of says) {
      const { baseURL } = await loopback(respond);
      const file = join(temporaryFolder(), "answers.jsonl");
      const journal = new AnswerJournal(file);
      const made = await probed(
        model(baseURL, { apiKeyEnv: "MY_KEY", retry: { ...QUICK, attempts: 1 } }, {}, environment),
      );
      await made.keepAnswers(journal);
      const [said] = await made.generate([probe("Hi")], { keys: [key(1)] });
      const shown = said instanceof Message ? said.text : said!.message;
      for (const text of [shown, readFileSync(file, "utf8")]) expect(text).not.toContain(secret.slice(0, 8));
      made.dispose();
      journal.close();
    }
  });

  it("are removed from the server's model name, and from tokens that spell them", async () => {
    const { baseURL } = await loopback(
      (asked, response) =>
        json(response, 200, {
          ...completion(asked, "Hi"),
          model: `m-${secret}`,
          choices: [
            {
              text: secret,
              finish_reason: "stop",
              logprobs: { tokens: [secret.slice(0, 9), secret.slice(9)], token_logprobs: [-1, -1] },
            },
          ],
        }),
      {
        probe: (asked, response) =>
          json(response, 200, { ...completion(asked, "one"), model: `m-${secret}` }),
      },
    );
    const made = await probed(model(baseURL, { api: "completions", apiKeyEnv: "MY_KEY" }, {}, environment));
    expect((await made.probe()).model).toBe("m-[secret]");
    const file = join(temporaryFolder(), "answers.jsonl");
    const journal = new AnswerJournal(file);
    await made.keepAnswers(journal);
    const [said] = await made.generate([probe("Hi")], { keys: [key(1)] });
    expect((said as Message).text).toBe("[secret]");
    expect(readFileSync(file, "utf8")).not.toContain(secret.slice(0, 8));
    made.dispose();
    journal.close();
  });

  it("are searched in answers of any shape; too deeply nested ones are refused", async () => {
    const deep = `${'{"a":'.repeat(5000)}1${"}".repeat(5000)}`;
    const { answer } = await one((_, response) => void response.writeHead(200).end(deep), {
      retry: { ...QUICK, attempts: 1 },
    });
    expect(failureOf(answer)).toMatchObject({ cause: "answer", message: "m: JSON of more than 100 levels" });
  });
});

describe("tokens that a server does not count", () => {
  it.each<[string, object | null]>([
    ["0 of all", { prompt_tokens: 0, completion_tokens: 0 }],
    ["0 of an answer", { prompt_tokens: 7, completion_tokens: 0 }],
    ["0 of a prompt", { prompt_tokens: 0, completion_tokens: 3 }],
    ["none", null],
  ])("(%s) count as the maximum cost of the call, so that a budget is used up", async (_, usage) => {
    const { baseURL, calls } = await loopback((asked, response) =>
      json(response, 200, { ...completion(asked, "Hi"), usage }),
    );
    const made = await probed(model(baseURL, { budget: { tokens: 2000 } }));
    const asking = Array.from({ length: 100 }, (_, row) => row);
    const all = made.generate(
      asking.map((row) => probe(`${row}`)),
      { keys: asking.map((row) => key(row)) },
    );
    await expect(all).rejects.toThrow(breaking("budget-exhausted", "budget.tokens: the limit of 2000"));
    expect(calls()).toBeLessThan(40);
    expect(made.spent.input + made.spent.output).toBeGreaterThan(1800);
    expect(made.server.uncounted).toBeGreaterThan(0);
  });

  it("are 0 for an empty answer", async () => {
    const { baseURL } = await loopback((asked, response) =>
      json(response, 200, { ...completion(asked, ""), usage: { prompt_tokens: 7, completion_tokens: 0 } }),
    );
    const made = await probed(model(baseURL));
    await made.generate([probe("Hi")], { keys: [key(1)] });
    expect([made.work, made.server.uncounted]).toEqual([{ read: 7, generated: 0 }, 0]);
  });
});

it("judges of one model keep their calls apart in a journal", async () => {
  const { baseURL } = await loopback((asked, response) => json(response, 200, completion(asked, "yes")));
  const file = join(temporaryFolder(), "answers.jsonl");
  const judged = async (count: number) => {
    const journal = new AnswerJournal(file);
    const judges = ["Bad: {response}?", "Worse: {response}?"].map(
      (question) => new JudgeScorer({ baseURL, model: "m", question, read: "yes-no" }, { environment: {} }),
    );
    for (const [at, judge] of judges.entries())
      await judge.served.keepAnswers(journal, `judge m (${at + 1})`);
    await judges[0]!.served.probe();
    await judges[0]!.score(Array.from({ length: count }, (_, at) => `${at}`));
    const spent = judges.map(({ served }) => served.spent.calls);
    for (const judge of judges) judge.dispose();
    journal.close();
    return spent;
  };
  const [first] = await judged(2);
  expect(await judged(0)).toEqual([first! + first! - 2, 0]);
});
