import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AnswerError, AnswerJournal } from "@astra-rl/http";
import { Conversation, Message } from "@astra-rl/lm";
import { describe, expect, test } from "vitest";
import {
  AgentModel,
  HTTPAgent,
  LostSessionError,
  MOST_CHARACTERS,
  SessionLedger,
  ToolAgent,
  type Agent,
  type AgentReply,
  type SessionTurn,
  type ToolModel,
} from "../src/index.js";

type Answer = (text: string, turn: SessionTurn) => Promise<AgentReply> | AgentReply;

const agentOf = (answer: Answer): Agent => ({ start: () => ({ send: answer }) });

const REFUND = { name: "refund", arguments: { amount: 500 } };

async function ask(agent: Agent, options = {}, ...texts: string[]) {
  const model = new AgentModel("target", agent, { retry: { delay: 0 }, ...options });
  const [conversation] = (texts.length === 0 ? ["hello"] : texts).map((text) =>
    Conversation.of("", new Message("tester", text)),
  );
  const [made] = await model.generate([conversation!], { keys: [{ seed: 1, episode: 0, node: 1 }] });
  await model.closed();
  return made;
}

describe("calls before a failure are in it, and it is not tried again", () => {
  let asked = 0;
  const failing: [string, string | undefined, Answer][] = [
    [
      "a time-out",
      "timeout",
      (_, { called }) => {
        called(REFUND);
        return new Promise(() => {});
      },
    ],
    [
      "an error",
      undefined,
      (_, { called }) => {
        called(REFUND);
        throw new Error("out of memory");
      },
    ],
    [
      "a reset",
      "connection",
      (_, { called }) => {
        called(REFUND);
        throw new AnswerError("the connection was reset", "connection");
      },
    ],
    [
      "a lost session",
      "connection",
      (_, { called }) => {
        called(REFUND);
        throw new LostSessionError("gone");
      },
    ],
    [
      "a limit",
      "limit",
      (_, { called, spend }) => {
        called(REFUND);
        spend({ calls: 99 });
        return { text: "" };
      },
    ],
    ["an answer without a text", "answer", () => ({ calls: [REFUND] }) as never],
    [
      "a call with an outcome that is none",
      "answer",
      () => ({ text: "", calls: [{ ...REFUND, error: 3 }] }) as never,
    ],
    ["a further key", "answer", () => ({ text: "", calls: [{ ...REFUND, output: 1 }] }) as never],
  ];

  test.each(failing)("%s", async (_, cause, answer) => {
    asked = 0;
    const counted: Answer = (text, turn) => {
      asked++;
      return answer(text, turn);
    };
    const failed = await ask(agentOf(counted), { limits: { seconds: 0.1 } });
    expect(failed).toMatchObject({ stage: "target", attempts: 1, calls: [REFUND] });
    expect((failed as { cause?: string }).cause).toBe(cause);
    expect(asked).toBe(1);
  });

  test("an outcome that is known later is in it, and all that is told is in an answer", async () => {
    const answer: Answer = (_, { called }) => {
      const call = { ...REFUND };
      called(call);
      called(REFUND);
      Object.assign(call, { result: "ok" });
      return { text: "Done.", calls: [{ name: "mail", arguments: {} }, REFUND] };
    };
    expect(await ask(agentOf(answer))).toMatchObject({
      text: "Done.",
      calls: [REFUND, { name: "mail" }, REFUND],
    });
    const told: Answer = (_, { called }) => {
      called({ ...REFUND, result: "ok" });
      return { text: "Done." };
    };
    expect(await ask(agentOf(told))).toMatchObject({ calls: [{ ...REFUND, result: "ok" }] });
  });

  test("what is no call cannot be told", async () => {
    const answer: Answer = (_, { called }) => {
      called({ tool: "refund" } as never);
      return { text: "" };
    };
    expect(await ask(agentOf(answer))).toMatchObject({
      message: expect.stringContaining("called:") as string,
    });
  });

  test("calls that are too large fail the turn, and stay as far as there is room", async () => {
    const long = "x".repeat(MOST_CHARACTERS);
    const given = (call: object) => ask(agentOf(() => ({ text: "", calls: [call] }) as never));
    expect(await given({ ...REFUND, result: long })).toEqual({
      stage: "target",
      cause: "answer",
      attempts: 1,
      message: expect.stringContaining(`a call of refund has ${MOST_CHARACTERS + 16} characters`) as string,
      calls: [REFUND],
    });
    const failed = (await given({ name: "mail", arguments: { to: `evil ${long}` } })) as unknown as {
      calls: { arguments: string }[];
    };
    expect(failed.calls[0]!.arguments).toHaveLength(MOST_CHARACTERS);
    expect(failed.calls[0]!.arguments.slice(0, 11)).toBe('{"to":"evil');
  });

  test("a model with tools: the call in progress as well, and none after the time is up", async () => {
    const ran: string[] = [];
    const model: ToolModel<number> = {
      begin: () => 0,
      user: (at) => at,
      result: (at) => at,
      most: () => 1,
      answer: (at) =>
        Promise.resolve({
          history: at + 1,
          text: "",
          calls: ["refund", "hang", "late"].map((name) => ({ id: name, name, arguments: "{}" })),
          usage: { input: 1, output: 1 },
        }),
    };
    const tools = ["refund", "hang", "late"].map((name) => ({
      name,
      run: (): Promise<string> => {
        ran.push(name);
        return name === "hang"
          ? new Promise((resolve) => setTimeout(resolve, 200, "ok"))
          : Promise.resolve("ok");
      },
    }));
    const failed = await ask(new ToolAgent(model, tools), { limits: { seconds: 0.05 } });
    expect(failed).toMatchObject({
      cause: "timeout",
      calls: [
        { name: "refund", arguments: {}, result: "ok" },
        { name: "hang", arguments: {} },
      ],
    });
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(ran).toEqual(["refund", "hang"]);
  });

  test.each([
    [500, { actions: [{ name: "refund", arguments: { amount: 500 } }, { half: 1 }], error: "out of memory" }],
    [200, { actions: [{ name: "refund", arguments: { amount: 500 } }] }],
  ])("behind HTTP: half an answer with status %d", async (status, body) => {
    const server = createServer((_, response) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const agent = new HTTPAgent({
      baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      send: { path: "/", body: { text: "{text}" }, text: "reply", calls: "actions" },
    });
    const failed = await ask(agent);
    server.close();
    expect(failed).toMatchObject({
      cause: status === 500 ? "status" : "answer",
      attempts: 1,
      calls: [REFUND],
    });
  });

  test("a replay's are new where they differ from what is recorded", async () => {
    let sent = 0;
    const conversation = (calls: Message["calls"]) =>
      Conversation.of(
        "",
        new Message("tester", "one"),
        new Message("target", "1", null, calls),
        new Message("tester", "two"),
      );
    const failedAt = async (at: number, recorded: Message["calls"]) => {
      sent = 0;
      const agent = agentOf((_, { called }) => {
        called(REFUND);
        if (++sent === at) throw new Error("no answer");
        return { text: "other" };
      });
      const model = new AgentModel("target", agent, { retry: { attempts: 1 } });
      const [failed] = await model.generate([conversation(recorded)], {
        keys: [{ seed: 1, episode: 0, node: 4 }],
      });
      return failed as { calls?: unknown };
    };
    expect((await failedAt(1, [])).calls).toEqual([REFUND]);
    expect((await failedAt(1, [REFUND])).calls).toBeUndefined();
    expect((await failedAt(2, [])).calls).toEqual([REFUND, REFUND]);
  });

  test("a resumed run keeps the failure, and does not do it again", async () => {
    const path = join(mkdtempSync(join(tmpdir(), "agents-")), "answers.jsonl");
    const run = async () => {
      let sent = 0;
      const agent = agentOf((_, { called }) => {
        sent++;
        called(REFUND);
        throw new Error("no answer");
      });
      const model = new AgentModel("target", agent);
      const journal = new AnswerJournal(path);
      model.keepSessions(journal, new SessionLedger("target"));
      const [failed] = await model.generate([Conversation.of("", new Message("tester", "hello"))], {
        keys: [{ seed: 1, episode: 0, node: 1 }],
      });
      journal.close();
      return { sent, failed };
    };
    const [first, second] = [await run(), await run()];
    expect([first.sent, second.sent]).toEqual([1, 0]);
    expect(second.failed).toEqual(first.failed);
  });
});
