import { describe, expect, it } from "vitest";
import { rewardCredit, type Algorithm, type NodeFields } from "@astra-rl/method";
import { TextGraph, TextNode } from "../../../method/test/support/texts.js";

export interface AlgorithmContract<Step, Batch> {
  create: () => Algorithm<string, string, Step, Batch>;
  /** The nodes of a graph that a step of it is made of. */
  nodesOf: (step: Step, graph: TextGraph) => readonly TextNode[];
}

class Marked extends TextNode {
  mark = "mine";
}

/** A full tree of the given width and depth with distinct rewards, its nodes of a subclass. */
export function markedTree(width: number, depth: number): TextGraph {
  let count = 0;
  const grow = (context: string, level: number): TextNode[] =>
    level === 0
      ? []
      : Array.from({ length: width }, () => {
          const number = count++;
          const fields: NodeFields<string, string> = {
            context,
            probe: `p${number}. `,
            response: `r${number}. `,
            reward: number,
          };
          const node = new Marked(fields);
          node.children = grow(context + node.probe + node.response, level - 1);
          return node;
        });
  return new TextGraph({ context: "Start. ", children: grow("Start. ", depth) });
}

/** Rules of every algorithm's path from graph to batch. */
export function algorithmContract<Step, Batch>(
  name: string,
  { create, nodesOf }: AlgorithmContract<Step, Batch>,
): void {
  describe(`${name} as an algorithm`, () => {
    const flatten = (graph: TextGraph) => create().flatten(graph, rewardCredit(graph));
    const learned = (graph: TextGraph, steps = flatten(graph)) =>
      steps.flatMap((step) => nodesOf(step, graph));

    it("reaches every level of the tree, with the node objects of the graph", () => {
      const graph = markedTree(3, 3);
      const used = new Set(learned(graph));
      const contexts = new Set([...graph.nodes()].map((node) => node.context));
      expect(new Set([...used].map((node) => node.context))).toEqual(contexts);
      const all = new Set(graph.nodes());
      for (const node of used) {
        expect(all.has(node)).toBe(true);
        expect(node).toBeInstanceOf(Marked);
      }
    });

    it("skips failed nodes and still reaches those below them", () => {
      const graph = markedTree(3, 2);
      const failed = graph.children[0]!;
      failed.failure = { stage: "scorer", message: "down", attempts: 3 };
      failed.reward = NaN;
      const used = new Set(learned(graph));
      expect(used.has(failed)).toBe(false);
      expect([...used].some((node) => failed.children.includes(node))).toBe(true);
    });

    it("uses credit, not rewards", () => {
      const graph = markedTree(3, 3);
      const credit = rewardCredit(graph);
      const unknown = markedTree(3, 3);
      const [nodes, others] = [[...graph.nodes()], [...unknown.nodes()]];
      for (const node of others) node.reward = 0;
      const moved = new Map(others.map((node, index) => [node, credit.get(nodes[index]!)!]));
      expect(learned(unknown, create().flatten(unknown, moved)).map((node) => others.indexOf(node))).toEqual(
        learned(graph).map((node) => nodes.indexOf(node)),
      );
      expect(create().flatten(graph, new Map())).toEqual([]);
    });

    it("does not change nodes", () => {
      const graph = markedTree(3, 3);
      const expected = JSON.stringify(graph);
      for (const node of graph.nodes()) {
        Object.freeze(node.children);
        Object.freeze(node);
      }
      Object.freeze(graph);
      const steps = flatten(graph);
      expect(steps.length).toBeGreaterThan(0);
      create().collate(steps);
      create().graphMetrics([graph], [rewardCredit(graph)]);
      expect(JSON.stringify(graph)).toBe(expected);
    });

    it("makes no steps from a graph without turns", () => {
      expect(flatten(new TextGraph({ context: "Start. " }))).toEqual([]);
    });

    it("gives the same steps for the same graph", () => {
      const graph = markedTree(2, 3);
      expect(flatten(graph)).toEqual(flatten(graph));
    });
  });
}
