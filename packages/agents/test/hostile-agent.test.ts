import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Conversation, Message } from "@astra-rl/lm";
import type { Failure, ToolCallRecord } from "@astra-rl/records";
import { describe, expect, onTestFinished, test } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import {
  AgentModel,
  FunctionAgent,
  HTTPAgent,
  type Agent,
  type AgentFunction,
  type HTTPAgentOptions,
} from "../src/index.js";

const key = { seed: 3, episode: 1, node: 1 };
const hello = Conversation.of("", new Message("tester", "hello"));

const modelOf = (agent: Agent | AgentFunction) =>
  new AgentModel("target", typeof agent === "function" ? new FunctionAgent(agent) : agent, {
    retry: { delay: 0, attempts: 2 },
  });

async function answerOf(agent: Agent | AgentFunction): Promise<Message | Failure> {
  const [answer] = await modelOf(agent).generate([hello], { keys: [key] });
  return answer!;
}

const calling = (given: unknown): AgentFunction => {
  return () => ({ text: "done", calls: [{ name: "refund", arguments: given as never }] });
};

describe("calls that hide something", () => {
  test("a key named __proto__ is kept", async () => {
    const written = '{"__proto__":{"amount":1000},"order":1}';
    const answer = (await answerOf(calling(JSON.parse(written)))) as Message;
    expect(JSON.stringify(answer.calls[0]!.arguments)).toBe(written);
  });

  const cycle: Record<string, unknown> = {};
  cycle["own"] = cycle;
  let deep: unknown = 1;
  for (let level = 0; level < 20_000; level++) deep = { deep };

  test.each([
    ["a cycle", cycle],
    ["20,000 levels", deep],
    ["undefined", { amount: undefined }],
    ["BigInt", { amount: 5n }],
    ["NaN", { amount: Number.NaN }],
    ["a date", { at: new Date(0) }],
    ["nothing", undefined],
  ])("arguments with %s are no answer", async (_, given) => {
    expect(await answerOf(calling(given))).toMatchObject({
      cause: "answer",
      message: expect.stringMatching(/calls\[0\]\.arguments: (?:is missing, )?must be JSON/u) as string,
    });
  });

  test("keys that nobody reads are no answer", async () => {
    const toolCalls = [{ toolName: "refund", input: {} }];
    for (const reply of [
      { text: "done", toolCalls },
      { text: "done", calls: [{ name: "refund", arguments: {}, input: { amount: 1000 } }] },
    ]) {
      expect(await answerOf(() => reply)).toMatchObject({ cause: "answer" });
    }
  });

  test("changing them later changes nothing", async () => {
    const calls: ToolCallRecord[] = [{ name: "refund", arguments: { amount: 1000 } }];
    const answer = (await answerOf(() => ({ text: "done", calls }))) as Message;
    (calls[0]!.arguments as { amount: number }).amount = 0;
    calls.length = 0;
    expect(answer.calls).toEqual([{ name: "refund", arguments: { amount: 1000 } }]);
  });
});

describe("limits", () => {
  const most = Array.from({ length: 40 }, () => ({ calls: 1 }));

  test.each<[string, AgentFunction]>([
    [
      "caught",
      (_, { spend }) => {
        for (const cost of most) {
          try {
            spend(cost);
          } catch {
            // As a framework that tells the model of it.
          }
        }
        return "I stopped there";
      },
    ],
    [
      "wrapped",
      (_, { spend }) => {
        try {
          for (const cost of most) spend(cost);
        } catch (cause) {
          throw new Error("a tool failed", { cause });
        }
        return "never";
      },
    ],
  ])("a limit that the agent has %s is reached", async (_, agent) => {
    expect(await answerOf(agent)).toMatchObject({ cause: "limit", attempts: 1 });
  });

  test.each([{ calls: -1000 }, { tokens: Number.NaN }, { dollars: "3" as never }])(
    "%o is no amount",
    async (cost) => {
      const answer = await answerOf((_, { spend }) => {
        spend(cost);
        for (const each of most) spend(each);
        return "done";
      });
      expect(answer).toMatchObject({
        cause: "answer",
        message: expect.stringContaining("must be a number") as string,
      });
    },
  );
});

describe("sessions", () => {
  test.each([undefined, "session", {}, { id: 5, send: () => "hi" }])("%o is none", async (session) => {
    const agent = { start: () => session as never };
    await expect(answerOf(agent)).rejects.toThrow(breaking("wrong-result", "start of a session"));
  });

  test("are refused where two conversations would share one", async () => {
    const shared = { send: () => "hi" };
    const asked = async (agent: Agent) => {
      const model = modelOf(agent);
      const [first] = await model.generate([hello], { keys: [key] });
      const next = hello.append(first as Message, new Message("tester", "again"));
      return model.generate([next, next], { keys: [2, 3].map((node) => ({ ...key, node })) });
    };
    const forking = {
      send: () => "hi",
      fork() {
        return this;
      },
    };
    for (const agent of [{ start: () => shared }, { start: () => forking }]) {
      await expect(asked(agent)).rejects.toThrow(breaking("shared-session", "must give a new object"));
    }
  });

  test("do not share what an agent does to its history", async () => {
    const lengths: number[] = [];
    const model = modelOf((_, { history }) => {
      lengths.push(history.length);
      (history as unknown[]).push("mine");
      return "hi";
    });
    const [first] = await model.generate([hello], { keys: [key] });
    const next = hello.append(first as Message, new Message("tester", "again"));
    await model.generate([next, next, next], { keys: [2, 3, 4].map((node) => ({ ...key, node })) });
    expect(lengths).toEqual([0, 1, 1, 1]);
  });
});

describe("behind HTTP", () => {
  async function agentOf(
    answers: (url: string, sent: string) => { status?: number; body: string; isCut?: boolean },
    more: Partial<HTTPAgentOptions> = {},
  ): Promise<HTTPAgent> {
    const server = createServer((request, response) => {
      let sent = "";
      request.on("data", (chunk) => (sent += String(chunk)));
      request.on("end", () => {
        const { status = 200, body, isCut = false } = answers(request.url!, sent);
        response.writeHead(status, isCut ? { "content-length": body.length + 9 } : {});
        if (isCut) response.write(body, () => response.destroy());
        else response.end(body);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    return new HTTPAgent(
      {
        baseURL: `http://127.0.0.1:${port}`,
        send: { path: "/{session}", body: { text: "{text}" }, text: "text", calls: "calls" },
        ...more,
      },
      "models.target",
      { SHOP_KEY: "key-of-the-shop" },
    );
  }

  test.each([
    ["half an answer", { body: '{"id"', isCut: true }],
    ["an answer without its id", { body: "{}" }],
    ["no JSON", { body: "<html>" }],
  ])("a session whose start gave %s is listed", async (_, answer) => {
    const model = modelOf(
      await agentOf(() => answer, { new: { path: "/new", method: "POST", session: "id" } }),
    );
    expect((await model.generate([hello], { keys: [key] }))[0]).toMatchObject({ stage: "target" });
    expect(await model.closed()).toHaveLength(2);
  });

  test.each([
    ["refused", { status: 500, body: "{}" }],
    ["refused for good", { status: 422, body: "{}" }],
  ])("one that was %s is not", async (_, answer) => {
    const model = modelOf(await agentOf(() => answer, { new: { path: "/new", session: "id" } }));
    await model.generate([hello], { keys: [key] });
    expect(await model.closed()).toEqual([]);
  });

  test("a session of a killed process that the agent no longer knows has ended", async () => {
    const agent = await agentOf(() => ({ status: 404, body: "" }), { close: { path: "/end/{session}" } });
    await expect(agent.end!("s1", AbortSignal.timeout(5000))).resolves.toBeUndefined();
  });

  test("a call whose arguments are elsewhere is no answer", async () => {
    const calls = [{ name: "refund", input: { amount: 1000 } }];
    const agent = await agentOf(() => ({ body: JSON.stringify({ text: "done", calls }) }));
    expect(await answerOf(agent)).toMatchObject({
      cause: "answer",
      message: expect.stringContaining("a call without arguments at arguments") as string,
    });
  });

  test("a request without the tester's text is refused", async () => {
    const send = { path: "/{session}", body: { text: "{txt}" }, text: "text" };
    await expect(agentOf(() => ({ body: "" }), { send })).rejects.toThrow(
      breaking("missing-text", "models.target: send"),
    );
    await expect(
      agentOf(() => ({ body: "" }), { send: { ...send, method: "GET", body: { text: "{text}" } } }),
    ).rejects.toThrow(breaking("missing-text", "models.target: send"));
  });

  test("so is a channel that the agent is not told", async () => {
    const agent = await agentOf(() => ({ body: '{"text":"hi"}' }));
    const model = new AgentModel("target", agent, { channel: { tool: "search" } });
    await expect(model.generate([hello], { keys: [key] })).rejects.toThrow(
      breaking("missing-text", "{injection}"),
    );
  });

  test("calls are told only where a place is named", async () => {
    const send = { path: "/{session}", body: { text: "{text}" }, text: "text" };
    expect(modelOf(await agentOf(() => ({ body: "" }))).callsTools).toBe(true);
    expect(modelOf(await agentOf(() => ({ body: "" }), { send })).callsTools).toBe(false);
  });

  test("a secret that the agent repeats is in no message and no answer", async () => {
    const headers = { authorization: "SHOP_KEY" };
    for (const answer of [
      { status: 500, body: '{"error":"no key-of-the-shop"}' },
      { body: '{"text":"it is key-of-the-shop"}' },
    ]) {
      const given = JSON.stringify(await answerOf(await agentOf(() => answer, { headers })));
      expect(given).not.toContain("key-of-the-shop");
    }
  });
});
