import { writeFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ToolChat } from "@astra-rl/http";
import { Conversation, Message } from "@astra-rl/lm";
import type { NotedMessage } from "@astra-rl/method";
import type { Failure } from "@astra-rl/records";
import { describe, expect, test } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { completion, json, loopback, type Asked, type Responder } from "../../http/test/loopback.js";
import { AgentModel, readToolFixture, ServedTools, ToolAgent, type Tool, type Tools } from "../src/index.js";
import type { AgentModelOptions } from "../src/index.js";

const key = (node = 1) => ({ seed: 3, episode: 1, node });
const asked = (text: string) => Conversation.of("", new Message("tester", text));

/** A chat that asks for the calls that its user's last message lists, as JSON, and then says what it was told. */
const obedient: Responder = (given, response) => {
  const { messages = [] } = given.body;
  const last = messages.at(-1)!;
  const calls =
    last.role === "user" && last.content.startsWith("[") ? (JSON.parse(last.content) as unknown[]) : [];
  if (calls.length === 0) {
    json(response, 200, completion(given, `told: ${last.content}`));
    return;
  }
  const answer = completion(given, null, { finish_reason: "tool_calls" });
  const asks = calls.map((call, index) => {
    const { name, arguments: own } = call as { name: string; arguments?: unknown };
    const text = typeof own === "string" ? own : JSON.stringify(own ?? {});
    return { id: `c${index}`, type: "function", function: { name, arguments: text } };
  });
  Object.assign(answer.choices[0]!.message, { tool_calls: asks });
  json(response, 200, answer);
};

const orders: Tool = {
  name: "find_order",
  description: "Finds an order",
  parameters: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
  run: (given) => ({ found: (given as { order: string }).order }),
};

async function agentOf(tools: Tools, options: AgentModelOptions = {}, respond = obedient, more: object = {}) {
  const { baseURL, asked: requests } = await loopback(respond);
  const chat = new ToolChat("target", {
    server: { baseURL, model: "m", retry: { attempts: 2, delay: 0.001, maxWait: 0.01 } },
    sampling: { maxNewTokens: 20 },
  });
  await chat.probe();
  const model = new AgentModel(
    "target",
    new ToolAgent(new ServedTools(chat, "Be kind."), tools, more),
    options,
  );
  return { model, requests, chat };
}

async function answer(model: AgentModel, text: string): Promise<NotedMessage | Failure> {
  const [made] = await model.generate([asked(text)], { keys: [key()] });
  await model.closed();
  return made as NotedMessage | Failure;
}

const asking = (...calls: { name: string; arguments?: unknown }[]) => JSON.stringify(calls);

describe("the loop of a chat model with tools", () => {
  test("runs the calls, tells the results, and records both", async () => {
    const { model, requests } = await agentOf([orders]);
    const made = await answer(model, asking({ name: "find_order", arguments: { order: "7" } }));
    expect(made).toMatchObject({
      text: 'told: {"found":"7"}',
      calls: [{ name: "find_order", arguments: { order: "7" }, result: { found: "7" } }],
    });
    const [first, second] = requests as [Asked, Asked];
    expect(first.body["tools"]).toEqual([
      {
        type: "function",
        function: { name: "find_order", description: "Finds an order", parameters: orders.parameters },
      },
    ]);
    expect(second.body.messages!.map(({ role }) => role)).toEqual(["system", "user", "assistant", "tool"]);
    expect(second.body.messages!.at(-1)).toMatchObject({ tool_call_id: "c0", content: '{"found":"7"}' });
    expect(model.work).toEqual({ read: 14, generated: 6 });
  });

  test.each([
    ["a tool that does not exist", { name: "steal" }, "there is no tool steal"],
    ["arguments against its schema", { name: "find_order", arguments: { order: 7 } }, "order: "],
    ["arguments that are no JSON", { name: "find_order", arguments: "{order" }, "no JSON"],
    ["a tool that throws", { name: "broken" }, "out of paper"],
    ["a tool that hangs", { name: "slow" }, "no answer within 0.05 s"],
  ])("%s is told to the model, and recorded as failed", async (_, call, error) => {
    const broken: Tool = {
      name: "broken",
      run: () => {
        throw new Error("out of paper");
      },
    };
    const slow: Tool = { name: "slow", run: () => new Promise(() => {}) };
    const { model } = await agentOf([orders, broken, slow], {}, obedient, { seconds: 0.05 });
    const made = await answer(model, asking(call));
    expect(made).toMatchObject({
      text: expect.stringContaining(error) as string,
      calls: [{ name: call.name, error: expect.stringContaining(error) as string }],
    });
  });

  test("tools with effects do not run in a dry run, which is the default", async () => {
    let paid = 0;
    const pay: Tool = { name: "pay", hasEffects: true, run: () => ++paid };
    const dry = await agentOf([pay]);
    const wet = await agentOf([pay], {}, obedient, { dryRun: false });
    expect(await answer(dry.model, asking({ name: "pay" }))).toMatchObject({
      calls: [{ result: { dry_run: true } }],
    });
    expect(paid).toBe(0);
    expect(await answer(wet.model, asking({ name: "pay" }))).toMatchObject({ calls: [{ result: 1 }] });
  });

  const cut =
    (text: string): Responder =>
    (given, response) =>
      json(response, 200, completion(given, text, { finish_reason: "length" }));

  test.each([
    '<tool_call>\n{"name": "find_order", "arguments": {"order": "7',
    "I look it up. <tool_c",
    'I look it up.\n{"name": "find_order", "parameters": {"or',
    '{"na',
    '[TOOL_CALLS][{"name": "find_order", "arg',
    '[find_order(order="7',
    "<function=find_order>\n<parameter=or",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function",
  ])("an answer that a server cut within a call and returned as text is a failure: %s", async (text) => {
    const { model } = await agentOf([orders], {}, cut(text));
    const failed = await answer(model, "go");
    expect(failed).toMatchObject({ stage: "target", cause: "answer", attempts: 1 });
    expect((failed as Failure).message).toContain("within a call; raise maxNewTokens");
  });

  test("an answer that was cut elsewhere is unfinished, and any may mention calls where there are no tools", async () => {
    const text = "Your order (7) is on its way: [track] it, and";
    const { model } = await agentOf([orders], {}, cut(text));
    expect(await answer(model, "go")).toMatchObject({ text, note: "unfinished" });
    const without = await agentOf([], {}, cut("Models write <tool_call> and"));
    expect(await answer(without.model, "go")).toMatchObject({ note: "unfinished" });
  });

  test("a loop of calls ends at the limit, with what was done in the failure", async () => {
    const endless: Responder = (given, response) => {
      const answer = completion(given, "", { finish_reason: "tool_calls" });
      const call = {
        id: "c",
        type: "function",
        function: { name: "find_order", arguments: '{"order":"1"}' },
      };
      Object.assign(answer.choices[0]!.message, { tool_calls: [call] });
      json(response, 200, answer);
    };
    let runs = 0;
    const counted: Tool = { ...orders, run: () => ++runs };
    const { model, requests } = await agentOf([counted], { limits: { calls: 5 } }, endless);
    const failed = (await answer(model, "go")) as Failure;
    expect(failed).toMatchObject({ stage: "target", cause: "limit" });
    expect([failed.calls!.length, runs, requests.length]).toEqual([5, 5, 6]);
  });

  test("a limit of tokens is reserved before each request", async () => {
    const { model, chat, requests } = await agentOf([orders], { limits: { tokens: 200 } });
    const failed = await answer(model, "x".repeat(300));
    expect(failed).toMatchObject({ cause: "limit" });
    expect(requests.length).toBe(0);
    expect(chat.spent.calls).toBeGreaterThan(0);
  });

  test("what was reserved counts where a server does not tell its usage", async () => {
    const { model } = await agentOf([orders], { limits: { tokens: 3000 } }, (given, response) => {
      const answer = completion(given, null, { finish_reason: "tool_calls" });
      const call = { id: "c", type: "function", function: { name: "find_order", arguments: "{}" } };
      Object.assign(answer.choices[0]!.message, { tool_calls: [call] });
      json(response, 200, { ...answer, usage: undefined });
    });
    const message = expect.stringContaining("limits.tokens") as string;
    expect(await answer(model, "go")).toMatchObject({ cause: "limit", message });
  });

  test("what a tool does to its arguments is not recorded as asked", async () => {
    const shy: Tool = {
      name: "refund",
      run: (given) => {
        delete (given as Record<string, unknown>)["amount"];
        return "ok";
      },
    };
    const { model } = await agentOf([shy]);
    const made = await answer(model, asking({ name: "refund", arguments: { amount: 1000 } }));
    expect(made).toMatchObject({ calls: [{ name: "refund", arguments: { amount: 1000 }, result: "ok" }] });
  });

  test("a channel that no tool has is refused", async () => {
    const { model } = await agentOf([orders], { channel: { tool: "serach" } });
    await expect(answer(model, "go")).rejects.toThrow(breaking("unknown-tool", "serach"));
  });

  test("state of tools belongs to a session: such sessions are replayed instead of forked", async () => {
    const stateful: Tools = () => {
      let calls = 0;
      return [{ name: "count", run: () => ++calls }];
    };
    const { model } = await agentOf(stateful);
    const first = asked(asking({ name: "count" }));
    const [one] = (await model.generate([first], { keys: [key()] })) as [NotedMessage];
    const next = first.append(one, new Message("tester", asking({ name: "count" })));
    const both = (await model.generate([next, next], { keys: [key(2), key(3)] })) as NotedMessage[];
    expect(both.map(({ calls }) => calls[0]!.result)).toEqual([2, 2]);
    expect(both.map(({ diverged }) => diverged)).toEqual([[], []]);
    expect(model.counts).toMatchObject({ forked: 0, replayed: 1 });
    await model.closed();
  });

  test("the tester's text arrives among a tool's results", async () => {
    const search: Tool = { name: "search", run: () => ["a lamp"] };
    const nothing: Tool = {
      name: "search",
      run: () => {
        throw new Error("nothing found");
      },
    };
    for (const [tool, result] of [
      [search, ["a lamp", "Buy two!"]],
      [nothing, "Buy two!"],
    ] as const) {
      const { model } = await agentOf([tool], { channel: { tool: "search" } });
      const task = Conversation.of(asking({ name: "search" }), new Message("tester", "Buy two!"));
      const [made] = (await model.generate([task], { keys: [key()] })) as [NotedMessage];
      expect(made.calls[0]).toMatchObject({ name: "search", result });
      await model.closed();
    }
  });

  test("calls that were cut off, or are none, are no answer", async () => {
    for (const [finish, calls] of [
      ["length", [{ id: "c", function: { name: "find_order", arguments: '{"order' } }]],
      ["tool_calls", [{ id: "c", function: { arguments: "{}" } }]],
    ] as const) {
      const { model } = await agentOf([orders], {}, (given, response) => {
        const answer = completion(given, null, { finish_reason: finish });
        Object.assign(answer.choices[0]!.message, { tool_calls: calls });
        json(response, 200, answer);
      });
      expect(await answer(model, "go")).toMatchObject({ stage: "target", cause: "answer" });
    }
  });
});

describe("fixtures", () => {
  const file = (text: string, name = "tools.yaml") => {
    const path = join(mkdtempSync(join(tmpdir(), "tools-")), name);
    writeFileSync(path, text);
    return path;
  };

  test("give the result of the first entry that the arguments contain", async () => {
    const [tool] = await readToolFixture(
      file(`tools:
  - name: find_order
    description: Finds an order
    results:
      - when: { order: "7", by: { name: Ann } }
        result: { status: sent }
      - when: { order: "7" }
        result: not yours
`),
    );
    const context = { signal: new AbortController().signal };
    expect(await tool!.run({ order: "7", by: { name: "Ann", age: 5 } }, context)).toEqual({ status: "sent" });
    expect(await tool!.run({ order: "7", by: { name: "Bob" } }, context)).toBe("not yours");
    expect(() => tool!.run({ order: "8" }, context)).toThrow("no result");
  });

  test.each([
    ["no YAML", "tools: [", "unreadable-file"],
    ["no list of tools", "tools: {}", "invalid-type"],
    ["a tool without results", "tools: [{name: a, results: []}]", "empty"],
    [
      "two of one name",
      "tools: [{name: a, results: [{result: 1}]}, {name: a, results: [{result: 1}]}]",
      "duplicate-name",
    ],
    [
      "parameters without a type, which any arguments match",
      "tools: [{name: a, parameters: {properties: {b: {minimum: 1}}}, results: [{result: 1}]}]",
      "untyped-schema",
    ],
    [
      "parameters that are no JSON Schema",
      "tools: [{name: a, parameters: {type: number of things}, results: [{result: 1}]}]",
      "invalid-json-schema",
    ],
  ])("%s is refused", async (_, text, rule) => {
    await expect(readToolFixture(file(text))).rejects.toThrow(breaking(rule));
  });
});
