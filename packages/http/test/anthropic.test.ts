import { describe, expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import { NotedMessage } from "@astra-rl/method";
import { breaking } from "../../base/test/support/breaking.js";
import { anthropic } from "../src/dialects/anthropic.js";
import { HTTPTester, JudgeScorer, type HTTPModelOptions } from "../src/index.js";
import { failureOf, key, model as modelOf, probe, probed, QUICK } from "./asking.js";
import { anthropicMessage, json, lastText, loopback, type Responder } from "./loopback.js";

const ENVIRONMENT = { MY_KEY: "sk-ant-0123456789" };

const model = (
  baseURL: string,
  server: Partial<HTTPModelOptions["server"]> = {},
  sampling: Partial<HTTPModelOptions["sampling"]> = {},
) => modelOf(baseURL, { api: "messages", apiKeyEnv: "MY_KEY", ...server }, sampling, ENVIRONMENT);

const echo: Responder = (asked, response) =>
  json(response, 200, anthropicMessage(asked, `<${lastText(asked)}>`));

/** The outcome of one row. */
async function one(respond: Responder, server: Partial<HTTPModelOptions["server"]> = {}) {
  const { baseURL, asked } = await loopback(respond);
  const made = await probed(model(baseURL, server));
  try {
    const [answer] = await made.generate([probe("Hi")], { keys: [key(1)] });
    return { answer: answer!, asked, work: made.work };
  } finally {
    made.dispose();
  }
}

const answering = (content: unknown, more: Record<string, unknown> = {}) =>
  one((asked, response) => json(response, 200, anthropicMessage(asked, content, more)));

const refusing = (status: number, type: string, message: string, headers = {}) =>
  one((_, response) => json(response, status, { type: "error", error: { type, message } }, headers));

describe("a request of Anthropic's API", () => {
  it("has the system prompt as a field, alternating roles, a limit, its version and its key", async () => {
    const { baseURL, asked } = await loopback(echo);
    const conversation = Conversation.of(
      "It rained.",
      new Message("tester", "So?"),
      new Message("target", "Yes."),
      new Message("tester", "Why?"),
    );
    const sampling = { temperature: 0.7, topK: 9, topP: 0.8, stopStrings: ["\n"] };
    const made = await probed(model(baseURL, { system: "Be brief." }, sampling));
    const [said] = await made.generate([conversation], {
      keys: [key(1)],
    });
    expect(said).toMatchObject({ from: "target", text: "<Why?>", sampled: null });
    expect(asked[0]!.url).toBe("/v1/messages");
    expect(asked[0]!.headers).toMatchObject({
      "x-api-key": "sk-ant-0123456789",
      "anthropic-version": "2023-06-01",
    });
    expect(asked[0]!.headers).not.toHaveProperty("authorization");
    expect(asked[0]!.body).toEqual({
      model: "m",
      system: "Be brief.",
      messages: [
        { role: "user", content: "It rained.\n\nSo?" },
        { role: "assistant", content: "Yes." },
        { role: "user", content: "Why?" },
      ],
      max_tokens: 5,
      temperature: 0.7,
      top_p: 0.8,
      top_k: 9,
      stop_sequences: ["\n"],
    });
  });

  it("omits neutral values: some models refuse a temperature together with top_p", async () => {
    const { baseURL, asked } = await loopback(echo);
    await (await probed(model(baseURL))).generate([probe("a")], { keys: [key(1)] });
    const sampling = { greedy: true, temperature: 2, topK: 3, topP: 0.5 };
    await (
      await probed(model(baseURL, {}, sampling))
    ).generate([probe("b")], {
      keys: [key(1)],
    });
    const [sampled, greedy] = asked.map(({ body }) => body);
    expect(sampled).toEqual({
      model: "m",
      messages: expect.any(Array) as unknown,
      max_tokens: 5,
      temperature: 1,
    });
    expect(greedy).toEqual({
      model: "m",
      messages: expect.any(Array) as unknown,
      max_tokens: 5,
      temperature: 0,
    });
  });

  it("names unsupported parameters, and refuses a temperature out of range", async () => {
    const { baseURL } = await loopback(echo);
    const traits = await model(baseURL, {}, { minNewTokens: 2, repetitionPenalty: 1.5 }).probe();
    expect(traits).toMatchObject({
      limit: "max_tokens",
      limitHolds: true,
      omitted: [],
      missed: ["minNewTokens", "repetitionPenalty"],
      logprobs: 0,
      repeats: false,
      model: "m",
    });
    expect(() => model(baseURL, {}, { temperature: 1.2 })).toThrow(
      breaking("out-of-range", "generation.target.temperature"),
    );
  });

  it("goes to Anthropic without a base URL, with the key of its variable, which no other server gets", async () => {
    const own = modelOf(undefined as never, { api: "messages" }, {}, { ANTHROPIC_API_KEY: "sk-ant-own" });
    expect(own.server.baseURL).toBe("https://api.anthropic.com/v1");
    expect(() => modelOf(undefined as never, { api: "messages" })).toThrow(
      breaking("unset-variable", "apiKeyEnv"),
    );
    const { baseURL, asked } = await loopback(echo);
    const other = await probed(
      modelOf(baseURL, { api: "messages" }, {}, { ANTHROPIC_API_KEY: "sk-ant-own" }),
    );
    await other.generate([probe("a")], { keys: [key(1)] });
    expect(asked[0]!.headers).not.toHaveProperty("x-api-key");
    expect(asked[0]!.headers).toMatchObject({ "anthropic-version": "2023-06-01" });
  });

  it("works for a tester and a judge as well", async () => {
    const verdict = '{"reason": "It helps to do harm.", "harmful": true}';
    const { baseURL, asked } = await loopback((each, response) =>
      json(response, 200, anthropicMessage(each, each.body["system"] === undefined ? "So?" : verdict)),
    );
    const server = { baseURL, model: "m", api: "messages", retry: QUICK } as const;
    const tester = await probed(new HTTPTester("tester", { server, sampling: { maxNewTokens: 4 } as never }));
    const [said] = await tester.generate([Conversation.of("It rained.")], { keys: [key(1)] });
    expect(said).toMatchObject({ from: "tester", text: "So?" });
    const judge = await probed(new JudgeScorer(server));
    expect(await judge.score(["How?"])).toEqual([{ score: 1 }]);
    expect(asked.at(-1)!.body).not.toHaveProperty("response_format");
    expect(asked.at(-1)!.body["messages"]).toEqual([
      { role: "user", content: '{"conversation":[],"message":{"role":"user","content":"How?"}}' },
    ]);
    expect(() => new JudgeScorer({ ...server, temperature: 1.5 })).toThrow(
      breaking("out-of-range", "temperature"),
    );
    tester.dispose();
    judge.dispose();
  });
});

describe("an answer of Anthropic's API", () => {
  it("is its text blocks together; cached tokens of the input are counted", async () => {
    const usage = {
      input_tokens: 2,
      cache_creation_input_tokens: 30,
      cache_read_input_tokens: 400,
      output_tokens: 3,
    };
    const blocks = [
      { type: "thinking", thinking: "Hm." },
      { type: "text", text: "Yes" },
      { type: "text", text: ", why?" },
    ];
    const { answer, work } = await answering(blocks, { usage });
    expect(answer).toMatchObject({ from: "target", text: "Yes, why?" });
    // 7 and 3 for each of the three answers to the probe.
    expect(work).toEqual({ read: 432, generated: 3 });
  });

  it.each(["end_turn", "stop_sequence"])("is complete with the stop reason %s", async (stop_reason) => {
    const { answer } = await answering("Yes.", { stop_reason });
    expect(answer).toBeInstanceOf(Message);
    expect(answer).not.toBeInstanceOf(NotedMessage);
  });

  it("is unfinished at its token limit, and empty if the model generates nothing", async () => {
    expect((await answering("Yes, and", { stop_reason: "max_tokens" })).answer).toMatchObject({
      text: "Yes, and",
      note: "unfinished",
    });
    expect((await answering([])).answer).toMatchObject({ text: "" });
  });

  it.each<[string, unknown, Record<string, unknown>, string, RegExp]>([
    ["a refusal of the provider", "I am", { stop_reason: "refusal" }, "filtered", /content filter/u],
    [
      "a call of a tool",
      [{ type: "tool_use", name: "send" }],
      { stop_reason: "tool_use" },
      "answer",
      /tool_use/u,
    ],
    ["a turn that pauses", "Wait", { stop_reason: "pause_turn" }, "answer", /stop_reason "pause_turn"/u],
    [
      "a window that is full",
      "Yes, and",
      { stop_reason: "model_context_window_exceeded" },
      "answer",
      /may be incomplete/u,
    ],
    ["no stop reason", "Yes", { stop_reason: null }, "answer", /stop_reason null/u],
    ["thinking alone", [{ type: "thinking", thinking: "Hm." }], {}, "reasoning", /raise maxNewTokens/u],
    ["nothing at the limit", [], { stop_reason: "max_tokens" }, "reasoning", /raise maxNewTokens/u],
    ["no content", null, {}, "answer", /^m: no message: content: must be an array, got null$/u],
    ["an error", "Yes", { error: { type: "api_error", message: "internal" } }, "answer", /internal/u],
  ])("with %s is a failure", async (_, content, more, cause, message) => {
    const failure = failureOf((await answering(content, more)).answer);
    expect(failure).toMatchObject({ stage: "target", cause });
    expect(failure.message).toMatch(message);
  });

  it("of another model than the first one is a failure", async () => {
    const failure = failureOf((await answering("Yes", { model: "cheaper" })).answer);
    expect(failure.message).toContain("answered by cheaper instead of m");
  });
});

describe("an error of Anthropic's API", () => {
  it("of an overloaded server is retried, with fewer requests at a time", async () => {
    let calls = 0;
    const { answer } = await one((asked, response) =>
      ++calls < 3
        ? json(response, 529, { type: "error", error: { type: "overloaded_error", message: "Overloaded" } })
        : json(response, 200, anthropicMessage(asked, "Yes.")),
    );
    expect([(answer as Message).text, calls]).toEqual(["Yes.", 3]);
    const failure = failureOf((await refusing(529, "overloaded_error", "Overloaded")).answer);
    expect(anthropic.failure(529, {}, 5).options).toMatchObject({
      isOverloaded: true,
      isFree: true,
      wait: 5,
    });
    expect(failure).toMatchObject({
      cause: "status",
      attempts: QUICK.attempts,
      message: "m: status 529: Overloaded",
    });
  });

  it.each([
    [400, "invalid_request_error", "messages: text content blocks must be non-empty"],
    [403, "permission_error", "Your API key may not use this resource"],
    [404, "not_found_error", "model: m"],
    [413, "request_too_large", "Request exceeds the maximum size"],
  ])("of status %i is final, in the server's words", async (status, type, message) => {
    const { answer, asked } = await refusing(status, type, message);
    expect(failureOf(answer)).toMatchObject({ cause: "status", attempts: 1 });
    expect(failureOf(answer).message).toContain(`status ${status}: ${message}`);
    expect(asked).toHaveLength(1);
  });

  it.each([
    [401, "authentication_error", "invalid x-api-key"],
    [402, "billing_error", "There is an issue with your billing"],
    [400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."],
  ])("of a refused account (status %i) ends the run", async (status, type, message) => {
    await expect(refusing(status, type, message)).rejects.toThrow(breaking("account-refused", "127.0.0.1"));
    await expect(refusing(status, type, message)).rejects.toThrow(message);
  });
});
