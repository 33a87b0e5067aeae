import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import { Graph, Node } from "../../src/tree/index.js";
import { TextGraph, TextNode, fieldsOf } from "../support/texts.js";

const node = (probe: string, children: TextNode[] = []) =>
  new TextNode({ context: "c", probe, response: "r", reward: 0.5, children });

// a(b(c), d), e
const graph = new TextGraph({
  context: "c",
  children: [node("a", [node("b", [node("c")]), node("d")]), node("e")],
});

const trees = fc.letrec<{ node: TextNode; children: TextNode[] }>((tie) => ({
  node: fc
    .tuple(fc.string(), fc.string(), fc.double({ noNaN: true }), tie("children"))
    .map(
      ([probe, response, reward, children]) =>
        new TextNode({ context: "c", probe, response, reward, children }),
    ),
  children: fc.oneof({ maxDepth: 4 }, fc.constant<TextNode[]>([]), fc.array(tie("node"), { maxLength: 3 })),
})).node;

describe("Graph", () => {
  it("walks parents before children, siblings in order", () => {
    expect([...graph.nodes()].map((item) => item.probe)).toEqual(["a", "b", "c", "d", "e"]);
    expect([...graph.siblings()].map((group) => group.map((item) => item.probe))).toEqual([
      ["a", "e"],
      ["b", "d"],
      ["c"],
    ]);
    expect(graph.path().map((item) => item.probe)).toEqual(["a", "b", "c"]);
  });

  it("has each node in exactly one set of siblings, for any tree", () => {
    fc.assert(
      fc.property(fc.array(trees, { maxLength: 3 }), (children) => {
        const random = new TextGraph({ context: "c", children });
        const all = [...random.nodes()];
        expect(new Set(all).size).toBe(all.length);
        expect(new Set([...random.siblings()].flat())).toEqual(new Set(all));
        expect([...random.siblings()].flat()).toHaveLength(all.length);
      }),
    );
  });

  it("converts to JSON of the documented shape", () => {
    const texts = { context: "c", probe: "p", response: "r" };
    const failed = {
      ...texts,
      response: "",
      reward: NaN,
      failure: { stage: "target" as const, message: "gone", attempts: 3 },
    };
    const scored = {
      ...texts,
      reward: 1,
      scores: { response: 0.5 },
      likelihood: { nll: 2, total: -4, tokens: 2 },
      judged: { probe: "p", response: "r" },
    };
    const said = (text: string) => new Message("target", text);
    const conversations = new Graph({
      context: Conversation.of("c"),
      children: [
        new Node(fieldsOf(failed)),
        new Node(
          fieldsOf({
            ...scored,
            judged: { probe: new Message("tester", "p"), response: said("r") },
          }),
        ),
      ],
      seed: 3,
      episode: 4,
    });
    const children = [new TextNode(failed), new TextNode(scored)];
    const ofTexts = new TextGraph({ context: "c", children, seed: 3, episode: 4 });
    expect(JSON.stringify(conversations)).toBe(JSON.stringify(ofTexts));
    expect(JSON.parse(JSON.stringify(conversations))).toEqual({
      context: "c",
      seed: 3,
      episode: 4,
      children: [
        {
          context: "c",
          probe: "p",
          response: "",
          reward: null,
          failure: { stage: "target", message: "gone", attempts: 3 },
          children: [],
        },
        {
          context: "c",
          probe: "p",
          response: "r",
          reward: 1,
          scores: { response: 0.5 },
          likelihood: { nll: 2, total: -4, tokens: 2 },
          children: [],
        },
      ],
    });
  });
});

describe("Node", () => {
  it("hides `judged` from everything that lists its fields", () => {
    const judged = { probe: "p", response: "r" };
    const item = new TextNode({ context: "c", probe: "p", response: "r", reward: 0, judged });
    expect(item.judged).toBe(judged);
    expect(Object.keys(item)).not.toContain("judged");
    expect(Object.assign({}, item)).not.toHaveProperty("judged");
  });

  it("converts texts to messages if its context is a conversation", () => {
    const fields = { context: Conversation.of("c"), probe: "p", response: "r", reward: 0 } as const;
    const { probe, response } = new Node(fields as never);
    expect([probe, response]).toEqual([new Message("tester", "p"), new Message("target", "r")]);
  });

  it("returns the context that its probe was sampled from", () => {
    const [context, other] = [Conversation.of("c"), Conversation.of("other")];
    const item = new Node({ ...fieldsOf({ context: "", probe: "p", response: "r", reward: 0 }), context });
    expect(item.probeContext).toBe(context);
    const sampled = {
      by: "t",
      tokens: "",
      ids: [],
      kept: 0,
      logprobs: [],
      finished: "stop",
      after: other,
    } as const;
    item.probe = new Message("tester", "p", sampled);
    expect(item.probeContext).toBe(other);
    expect(node("a").probeContext).toBe("c");
  });

  it("reports whether it failed", () => {
    expect(node("a").failed).toBe(false);
    expect(
      new TextNode({
        context: "c",
        probe: "p",
        response: "",
        reward: NaN,
        failure: { stage: "scorer", message: "", attempts: 1 },
      }).failed,
    ).toBe(true);
  });
});
