import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Graph, Node } from "../../src/core/index.js";

const node = (probe: string, children: Node[] = []) =>
  new Node({ context: "c", probe, response: "r", reward: 0.5, children });

// a(b(c), d), e
const graph = new Graph({
  context: "c",
  children: [node("a", [node("b", [node("c")]), node("d")]), node("e")],
});

const trees = fc.letrec<{ node: Node; children: Node[] }>((tie) => ({
  node: fc
    .tuple(fc.string(), fc.string(), fc.double({ noNaN: true }), tie("children"))
    .map(
      ([probe, response, reward, children]) => new Node({ context: "c", probe, response, reward, children }),
    ),
  children: fc.oneof({ maxDepth: 4 }, fc.constant<Node[]>([]), fc.array(tie("node"), { maxLength: 3 })),
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

  it("has each node in exactly one set of siblings, whatever the tree", () => {
    fc.assert(
      fc.property(fc.array(trees, { maxLength: 3 }), (children) => {
        const random = new Graph({ context: "c", children });
        const all = [...random.nodes()];
        expect(new Set(all).size).toBe(all.length);
        expect(new Set([...random.siblings()].flat())).toEqual(new Set(all));
        expect([...random.siblings()].flat()).toHaveLength(all.length);
      }),
    );
  });

  it("becomes JSON of the documented shape", () => {
    const failed = new Node({
      context: "c",
      probe: "p",
      response: "",
      reward: NaN,
      failure: { stage: "target", message: "gone", attempts: 3 },
      tokens: { secret: 1 },
    });
    const scored = new Node({
      context: "c",
      probe: "p",
      response: "r",
      reward: 1,
      scores: { response: 0.5 },
      likelihood: { nll: 2, total: -4, tokens: 2 },
    });
    expect(
      JSON.parse(
        JSON.stringify(new Graph({ context: "c", children: [failed, scored], seed: 3, episode: 4 })),
      ),
    ).toEqual({
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
  it("keeps what was judged out of everything that lists its fields", () => {
    const judged = { probe: "p", response: "r" };
    const item = new Node<string, string>({ context: "c", probe: "p", response: "r", reward: 0, judged });
    expect(item.judged).toBe(judged);
    expect(Object.keys(item)).not.toContain("judged");
    expect(Object.assign({}, item)).not.toHaveProperty("judged");
  });

  it("knows whether it failed", () => {
    expect(node("a").failed).toBe(false);
    expect(
      new Node({
        context: "c",
        probe: "p",
        response: "",
        reward: NaN,
        failure: { stage: "scorer", message: "", attempts: 1 },
      }).failed,
    ).toBe(true);
  });
});
