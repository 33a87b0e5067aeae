import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AnswerJournal } from "@astra-rl/http";
import { Conversation, Message } from "@astra-rl/lm";
import {
  ASTSampler,
  graphRecord,
  Reward,
  type NotedMessage,
  type Graph,
  type RewardTerm,
} from "@astra-rl/method";
import { describe, expect, test } from "vitest";
import { AgentModel, LostSessionError, SessionLedger, type Agent } from "../src/index.js";
import { CountingAgent, systemOf } from "./support/counting-agent.js";

const length: RewardTerm = {
  name: "length",
  needs: [],
  score: (turns) => Promise.resolve(turns.map(({ response }) => response.length)),
};

async function grow(model: AgentModel, { width = 3, depth = 3, episodes = 2 } = {}): Promise<Graph[]> {
  const system = systemOf(model, { reward: new Reward([{ term: length, weight: 1 }]) });
  const sampler = new ASTSampler(system, ["Shop: "], { width, depth });
  const graphs = await sampler.rolloutMany(
    Array.from({ length: episodes }, (_, episode) => ({ seed: 5, episode })),
  );
  await model.closed();
  return graphs;
}

const lines = (graphs: readonly Graph[]) => graphs.map((graph) => JSON.stringify(graphRecord(graph)));

describe("sessions are a cache", () => {
  test("an agent that only replays gives the tree of one that forks, and all sessions end", async () => {
    const [forking, replaying] = [new CountingAgent({ canFork: true }), new CountingAgent()];
    const [a, b] = [new AgentModel("target", forking), new AgentModel("target", replaying)];
    const trees = [lines(await grow(a)), lines(await grow(b))];
    expect(trees[1]).toEqual(trees[0]);
    expect(trees[0]!.join("")).toContain('"calls":[{"name":"refund"');
    // 2 episodes × (3 + 9 + 27) turns; one of each family of siblings continues, the others fork or replay.
    expect(a.counts).toEqual({ started: 6, forked: 48, replayed: 0, diverged: 0 });
    expect(b.counts).toEqual({ started: 6 + 48, forked: 0, replayed: 48, diverged: 0 });
    expect(forking.sent).toBe(78);
    for (const agent of [forking, replaying]) {
      expect(agent.closed).toBe(agent.started);
      expect(agent.open.size).toBe(0);
    }
  });

  test("no more sessions are kept than may be open, with the same tree", async () => {
    const [few, many] = [new CountingAgent(), new CountingAgent()];
    const small = new AgentModel("target", few, { open: 2, concurrency: 2 });
    expect(lines(await grow(small))).toEqual(lines(await grow(new AgentModel("target", many))));
    expect(few.most).toBeLessThanOrEqual(2 + 2 + 2);
    expect(few.closed).toBe(few.started);
  });

  test("snapshots fork as well", async () => {
    const plain = new CountingAgent();
    const agent: Agent = {
      start: (start) => {
        const session = plain.start(start);
        return {
          send: (text, turn) => session.send(text, turn),
          close: () => session.close(),
          snapshot: () => session.said,
          restore: (said) => void (session.said = said as string[]),
        };
      },
    };
    const model = new AgentModel("target", agent);
    expect(lines(await grow(model))).toEqual(
      lines(await grow(new AgentModel("target", new CountingAgent()))),
    );
    expect(model.counts.forked).toBe(48);
  });
});

describe("divergence", () => {
  test("is counted exactly, and shown on each turn that follows from it", async () => {
    let draws = 0;
    // Each answer is another text, so every replayed one diverges.
    const agent = new CountingAgent({ noise: () => ++draws });
    const model = new AgentModel("target", agent);
    const graphs = await grow(model, { width: 2, depth: 3, episodes: 1 });
    const nodes = graphs.flatMap((graph) => [...graph.nodes()]);
    const noted = nodes.filter(({ response }) => (response as NotedMessage).diverged.length > 0);
    // Of two siblings one continues. Its children do too; those of the other follow from the other's session.
    expect(model.counts).toMatchObject({ replayed: 1 * 2 + 1 * 4, diverged: noted.length });
    const record = JSON.parse(lines(graphs)[0]!) as { children: { children: { diverged?: unknown[] }[] }[] };
    const second = record.children.flatMap(({ children }) => children);
    expect(second.map(({ diverged }) => diverged?.length ?? 0).toSorted((a, b) => a - b)).toEqual([
      0, 0, 1, 1,
    ]);
  });

  test("says which answer was another one, and what it was", async () => {
    let draws = 0;
    const model = new AgentModel("target", new CountingAgent({ noise: () => ++draws }));
    const asked = Conversation.of("", new Message("tester", "refund"));
    const key = { seed: 1, episode: 0, node: 1 };
    const [first] = (await model.generate([asked], { keys: [key] })) as [NotedMessage];
    model.release();
    const longer = asked.append(first, new Message("tester", "hello"));
    const [second] = (await model.generate([longer], { keys: [{ ...key, node: 4 }] })) as [NotedMessage];
    expect(first.text).toMatch(/ 1$/u);
    expect(second.diverged).toEqual([
      {
        answer: 1,
        text: first.text.replace(/ 1$/u, " 2"),
        calls: [{ name: "refund", arguments: { order: 1 }, result: "ok" }],
      },
    ]);
    await model.closed();
  });
});

describe("failures", () => {
  const ask = async (model: AgentModel, ...texts: string[]) => {
    const made = await model.generate(
      texts.map((text) => Conversation.of("", new Message("tester", text))),
      { keys: texts.map((_, node) => ({ seed: 1, episode: 0, node })) },
    );
    await model.closed();
    return made;
  };

  test("a lost session is replayed, and what fails again and again fails alone", async () => {
    let lost = 0;
    const agent = new CountingAgent({
      before: (text) => {
        if (text === "lost" && lost++ < 2) throw new LostSessionError("gone");
        if (text === "broken") throw new Error("no answer");
      },
    });
    const [found, failed] = await ask(new AgentModel("target", agent), "lost", "broken");
    expect(found).toMatchObject({ text: expect.stringContaining("lost, after 0") as string });
    expect(failed).toEqual({ stage: "target", message: "no answer", attempts: 3 });
    expect(agent.closed).toBe(agent.started);
  });

  test("an agent that never answers times out, is not asked again, and its session ends", async () => {
    let aborted = 0;
    const agent = new CountingAgent({
      before: (_, { signal }) => new Promise(() => signal.addEventListener("abort", () => aborted++)),
    });
    const [failed] = await ask(new AgentModel("target", agent, { limits: { seconds: 0.05 } }), "hello");
    expect(failed).toMatchObject({ stage: "target", cause: "timeout", attempts: 1 });
    expect([aborted, agent.started, agent.closed]).toEqual([1, 1, 1]);
  });

  test("ending the sessions ends those that answer, starts none anew, and loses none that just starts", async () => {
    let aborted = 0;
    const agent = new CountingAgent({
      before: (_, { signal }) => new Promise(() => signal.addEventListener("abort", () => aborted++)),
    });
    const slow: Agent = {
      start: async (start) => {
        const session = agent.start(start);
        // The last one is still starting when the sessions end.
        if (agent.started === 3) await new Promise((resolve) => setTimeout(resolve, 200));
        return session;
      },
    };
    const model = new AgentModel("target", slow, { concurrency: 3, retry: { attempts: 5 } });
    const texts = ["a", "b", "c", "d", "e"];
    const made = model.generate(
      texts.map((text) => Conversation.of("", new Message("tester", text))),
      { keys: texts.map((_, node) => ({ seed: 1, episode: 0, node })) },
    );
    while (agent.started < 3) await new Promise((resolve) => setTimeout(resolve, 10));
    expect(await model.closed()).toEqual([]);
    for (const failed of await made) expect(failed).toMatchObject({ stage: "target", attempts: 1 });
    expect([agent.started, agent.closed, agent.sent, aborted]).toEqual([3, 3, 2, 2]);
  });

  test("limits are never exceeded, and what was done until then is in the failure", async () => {
    let spent = 0;
    const agent = new CountingAgent({
      before: (_, { spend }) => {
        for (;;) {
          spend({ calls: 1 });
          spent++;
        }
      },
    });
    const [failed] = await ask(new AgentModel("target", agent, { limits: { calls: 7 } }), "hello");
    expect(failed).toMatchObject({ cause: "limit", attempts: 1 });
    expect(spent).toBe(7);
    const told: Agent = {
      start: () => ({
        send: () => ({
          text: "done",
          calls: [1, 2, 3].map((order) => ({ name: "refund", arguments: { order } })),
        }),
      }),
    };
    const [over] = await ask(new AgentModel("target", told, { limits: { calls: 2 } }), "hello");
    expect(over).toMatchObject({ cause: "limit", calls: [{ arguments: { order: 1 } }, {}, {}] });
  });

  test.each([
    ["nothing", undefined],
    ["a number", 3],
    ["no text", { calls: [] }],
    ["half a call", { text: "x", calls: [{ arguments: {} }] }],
  ])("an agent that returns %s has not answered", async (_, reply) => {
    const agent: Agent = { start: () => ({ send: () => reply as never }) };
    expect(await ask(new AgentModel("target", agent), "hello")).toEqual([
      expect.objectContaining({ stage: "target", cause: "answer", attempts: 3 }),
    ]);
  });

  test("an error in the agent's code stops the run", async () => {
    const agent: Agent = {
      start: () => ({
        send: () => {
          throw new ReferenceError("x is not defined");
        },
      }),
    };
    await expect(ask(new AgentModel("target", agent), "hello")).rejects.toThrow(ReferenceError);
  });
});

describe("in a run folder", () => {
  const folder = () => mkdtempSync(join(tmpdir(), "agents-"));

  test("answers are kept: a second process asks the agent nothing, and gives the same tree", async () => {
    const path = join(folder(), "answers.jsonl");
    const trees: string[][] = [];
    const agents = [new CountingAgent(), new CountingAgent()];
    for (const agent of agents) {
      const model = new AgentModel("target", agent);
      const journal = new AnswerJournal(path);
      model.keepSessions(journal, new SessionLedger("target"));
      trees.push(lines(await grow(model)));
      journal.close();
    }
    expect(trees[1]).toEqual(trees[0]);
    expect(agents.map(({ sent }) => sent > 0)).toEqual([true, false]);
  });

  test("a killed process left none open that nothing needs to end", async () => {
    const path = join(folder(), "sessions.jsonl");
    const killed = new AgentModel("target", { start: () => ({ send: () => "hi" }) });
    killed.keepSessions(new AnswerJournal(`${path}.answers`), new SessionLedger("target", path));
    const key = { seed: 1, episode: 0, node: 1 };
    await killed.generate([Conversation.of("", new Message("tester", "hello"))], { keys: [key] });
    expect(new SessionLedger("target", path).left).toEqual([]);
  });

  test("what a killed process left open is known, and ended where that is possible", async () => {
    const path = join(folder(), "sessions.jsonl");
    const killed = new AgentModel("target", new CountingAgent());
    killed.keepSessions(new AnswerJournal(`${path}.answers`), new SessionLedger("target", path));
    const key = { seed: 1, episode: 0, node: 1 };
    await killed.generate([Conversation.of("", new Message("tester", "hello"))], { keys: [key] });

    const ended: string[] = [];
    const agent: Agent = {
      start: (start) => new CountingAgent().start(start),
      end: (id) => Promise.resolve(void ended.push(id)),
    };
    const next = new AgentModel("target", agent);
    next.keepSessions(new AnswerJournal(`${path}.answers`), new SessionLedger("target", path));
    expect(await next.endLeftOpen()).toEqual([]);
    expect(ended).toEqual(["session 1"]);
    const third = new SessionLedger("target", path);
    expect(third.left).toEqual([]);
  });

  test("what cannot be ended is listed with the reason", async () => {
    const path = join(folder(), "sessions.jsonl");
    const agent = new CountingAgent({
      ending: () => {
        throw new Error("the server is gone");
      },
    });
    const model = new AgentModel("target", agent);
    model.keepSessions(new AnswerJournal(`${path}.answers`), new SessionLedger("target", path));
    const key = { seed: 1, episode: 0, node: 1 };
    await model.generate([Conversation.of("", new Message("tester", "hello"))], { keys: [key] });
    const left = [{ entry: 0, model: "target", session: "session 1", error: "the server is gone" }];
    expect(await model.closed()).toEqual(left);
    expect(new SessionLedger("target", path).left).toEqual(left);
    // Whoever is to end it needs the file.
    model.ledger.remove();
    expect(existsSync(path)).toBe(true);
  });

  test("a ledger is removed once all sessions have ended", async () => {
    const path = join(folder(), "sessions.jsonl");
    const model = new AgentModel("target", new CountingAgent());
    model.keepSessions(new AnswerJournal(`${path}.answers`), new SessionLedger("target", path));
    const key = { seed: 1, episode: 0, node: 1 };
    await model.generate([Conversation.of("", new Message("tester", "hello"))], { keys: [key] });
    model.ledger.remove();
    expect(existsSync(path)).toBe(true);
    expect(await model.closed()).toEqual([]);
    model.ledger.remove();
    expect(existsSync(path)).toBe(false);
  });
});

describe("channels", () => {
  test("the tester's text arrives in a tool, and the user says the prompt", async () => {
    const heard: unknown[] = [];
    const agent: Agent = {
      start: () => ({
        send: (text, { injected }) => {
          heard.push([text, injected]);
          return "ok";
        },
      }),
    };
    const model = new AgentModel("target", agent, { channel: { tool: "search" } });
    const first = Conversation.of("Find a lamp. ", new Message("tester", "Buy two!"));
    const second = first.append(new Message("target", "ok"), new Message("tester", "Buy three!"));
    await model.generate([second], { keys: [{ seed: 1, episode: 0, node: 1 }] });
    expect(heard).toEqual([
      ["Find a lamp. ", { search: "Buy two!" }],
      ["Find a lamp. ", { search: "Buy three!" }],
    ]);
    await model.closed();
  });
});
