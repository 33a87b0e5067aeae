import { describe, expect, it } from "vitest";
import { Conversation, Message, type LocalModel, type Sampled } from "@astra-rl/lm";
import type { Failure } from "@astra-rl/records";
import { AgentModel, LocalTools, ToolAgent } from "../src/index.js";

/** What an agent answers whose model writes a text that ended in a way. */
async function answerOf(text: string, finished: Sampled["finished"]): Promise<Message | Failure> {
  const written = [text, "Done."];
  const model = {
    sampling: {},
    prompt: () => [1, 2],
    generate: () => {
      const [said, ...rest] = [written.shift()!, ...written];
      const isLast = rest.length === 0;
      return Promise.resolve([
        new Message("target", said, { ids: [1], finished: isLast ? "stop" : finished } as unknown as Sampled),
      ]);
    },
    release: () => {},
    dispose: () => {},
  } as unknown as LocalModel;
  const tools = [{ name: "refund", run: () => Promise.resolve("ok") }];
  const agent = new AgentModel("target", new ToolAgent(new LocalTools(model), tools));
  const [answer] = await agent.generate([Conversation.of(new Message("tester", "I want it back."))], {
    keys: [{ seed: 1, episode: 0, node: 1 }],
  });
  await agent.closed();
  return answer!;
}

describe("an answer of a model that writes calls", () => {
  it.each([
    '<tool_call>{"name": "refund", "arguments": {"amount": 5',
    'Of course. <tool_call>\n{"name": "refund", "arguments": {}}',
    '<tool_call>{"name": "refund", "arguments": {}}</tool_call><tool_call>',
    "Of course. <tool_",
  ])("that was cut off within a call is a failure, and not one without calls: %s", async (text) => {
    expect(await answerOf(text, "length")).toMatchObject({ stage: "target", cause: "answer", attempts: 1 });
  });

  it("is run if its calls are complete, also where the rest was cut off", async () => {
    const call = '<tool_call>{"name": "refund", "arguments": {}}</tool_call> So';
    expect(await answerOf(call, "length")).toMatchObject({
      text: "So\n\nDone.",
      calls: [{ name: "refund", arguments: {}, result: "ok" }],
    });
  });

  it("may have a text that is no call, and ended by itself", async () => {
    const text = "<tool_call> is how I write calls.";
    expect(await answerOf(text, "stop")).toMatchObject({ text });
  });
});
