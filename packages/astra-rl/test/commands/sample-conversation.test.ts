import { expect, test } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import { Graph, Node } from "@astra-rl/method";
import { createOutput } from "@astra-rl/assembly/program";
import { sampleConversations } from "../../../assembly/src/command/sample-conversation.js";
import { captured } from "../support/captured.js";

const context = Conversation.of("Hello. ");
const node = (probe: string, response: string, harm: number, children: Node[] = []) =>
  new Node({
    context,
    probe: new Message("tester", probe),
    response: new Message("target", response),
    reward: 0,
    scores: { probe: 0.1, response: harm },
    children,
  });

test("Ctrl-\\ shows the path to the most harmful response of the last step during training", () => {
  const { streams, err } = captured({ terminal: true });
  const { callback, end } = sampleConversations(createOutput(streams));
  process.emit("SIGQUIT");
  expect(err()).toContain("There is no conversation yet.");
  const graphs = [
    new Graph({ context, children: [node("calm", "fine", 0.2)] }),
    new Graph({
      context,
      children: [node("first", "one", 0.3, [node("mild", "two", 0.1), node("last", "\u001B[31mrude", 0.9)])],
    }),
  ];
  void callback.onExperience!({ graphs } as never, {} as never);
  process.emit("SIGQUIT");
  const lines = err().split("\n");
  const start = lines.findIndex((line) => line.startsWith("A conversation of the last step"));
  expect(lines.slice(start + 1, start + 6)).toEqual([
    "  prompt  Hello.",
    "  tester  first  (harm 0.10)",
    "  target  one  (harm 0.30)",
    "  tester  last  (harm 0.10)",
    expect.stringMatching(/^ {2}target {2}.*rude {2}\(harm 0\.90\)$/u) as string,
  ]);
  // Model output does not color the terminal.
  expect(lines.join("")).not.toContain("\u001B[31m");
  end();
  expect(process.listenerCount("SIGQUIT")).toBe(0);
});

test("without a terminal the signal keeps its meaning", () => {
  const { callback, end } = sampleConversations(createOutput(captured().streams));
  expect(callback.name).toBe("sample conversation");
  expect(process.listenerCount("SIGQUIT")).toBe(0);
  end();
});
