import { describe, expect, it } from "vitest";
import { KeywordScorer } from "@astra-rl/scorers";
import { breaking } from "../../../base/test/support/breaking.js";
import type { Graph, Node } from "../../src/tree/index.js";
import { ASTSampler, turnsOfTree } from "../../src/sampler/index.js";
import { samplerContract } from "../../../scorers/test/contract/sampler.contract.js";
import { ToySystem } from "../support/toy-system.js";

const PROMPTS = ["One. ", "Two. ", "Three. "];
const toy = () => new ToySystem(new KeywordScorer([{ term: "bad", weight: 0.9 }]));
const starts = Array.from({ length: 8 }, (_, episode) => ({ seed: 3, episode }));
const levels = (graph: Graph): Node[][] => {
  const all: Node[][] = [];
  for (let nodes = [...graph.children]; nodes.length > 0; nodes = nodes.flatMap(({ children }) => children))
    all.push(nodes);
  return all;
};

describe("a pruned tree", () => {
  const sampler = (keep?: number) =>
    new ASTSampler(toy(), PROMPTS, { width: 3, depth: 4, ...(keep === undefined ? {} : { keep }) });

  it("has at most `keep` turns with children per level, each with all children", async () => {
    for (const graph of await sampler(2).rolloutMany(starts)) {
      expect(levels(graph).map((nodes) => nodes.length)).toEqual([3, 6, 6, 6]);
      const grown = levels(graph).map((nodes) => nodes.filter(({ children }) => children.length > 0));
      expect(grown.map((nodes) => nodes.length)).toEqual([2, 2, 2, 0]);
      for (const { children } of grown.flat()) expect(children).toHaveLength(3);
    }
  });

  it("is a part of the whole tree, with different turns in different trees, for any batch", async () => {
    const [whole, pruned] = [await sampler().rolloutMany(starts), await sampler(2).rolloutMany(starts)];
    const holds = (large: readonly Node[], small: readonly Node[]): boolean =>
      small.length === 0 ||
      (small.length === large.length &&
        small.every(
          (node, at) =>
            node.probe.text === large[at]!.probe.text && holds(large[at]!.children, node.children),
        ));
    for (const [at, graph] of pruned.entries()) expect(holds(whole[at]!.children, graph.children)).toBe(true);
    const chosen = pruned.map((graph) => graph.children.map(({ children }) => children.length > 0).join());
    expect(new Set(chosen).size).toBeGreaterThan(1);
    const alone = await sampler(2).rolloutMany([starts[5]!]);
    expect(JSON.stringify(alone[0])).toBe(JSON.stringify(pruned[5]));
  });

  it("does not affect evaluations", async () => {
    expect(JSON.stringify(await sampler(1).evalRollout(PROMPTS[0]!))).toBe(
      JSON.stringify(await sampler().evalRollout(PROMPTS[0]!)),
    );
  });

  it("is counted as pruned", () => {
    expect(turnsOfTree(3, 4, 2)).toBe(3 + 6 + 6 + 6);
    expect(turnsOfTree(2, 3)).toBe(2 + 4 + 8);
    expect(turnsOfTree(1, 7)).toBe(7);
    expect(turnsOfTree(4, 5, 4)).toBe(4 + 16 + 16 + 16 + 16);
    expect(() => new ASTSampler(toy(), PROMPTS, { width: 3, depth: 4, keep: 2, maxTurns: 20 })).toThrow(
      breaking("tree-too-large", "21"),
    );
  });
});

samplerContract("ASTSampler that keeps as many as there are", {
  create: async (options) => new ASTSampler(toy(), PROMPTS, { ...options, keep: 1000 }),
  prompts: PROMPTS,
});
