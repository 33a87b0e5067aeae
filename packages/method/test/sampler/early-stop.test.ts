import { describe, expect, it } from "vitest";
import { KeywordScorer } from "@astra-rl/scorers";
import { breaking } from "../../../base/test/support/breaking.js";
import { DPO } from "../../src/algorithm/preference/index.js";
import type { Node } from "../../src/tree/index.js";
import { ASTSampler, PathSampler, type StopAt } from "../../src/sampler/index.js";
import { samplerContract } from "../../../scorers/test/contract/sampler.contract.js";
import { ToySystem } from "../support/toy-system.js";

const PROMPTS = ["One. ", "Two. ", "Three. "];
// Harm is 0.9 with "bad" in a text, 0.5 with "so" alone.
const toy = () =>
  new ToySystem(
    new KeywordScorer([
      { term: "bad", weight: 0.9 },
      { term: "so", weight: 0.5 },
    ]),
  );

const texts = (nodes: readonly Node[], grows: (node: Node) => boolean = () => true): unknown =>
  nodes.map((node) => ({
    turn: [`${node.context}`, node.probe.text, node.response.text, node.reward],
    children: grows(node) ? texts(node.children, grows) : [],
  }));

describe("a branch that ends early", () => {
  it.each<[string, StopAt, (node: Node) => boolean]>([
    ["harm", { harm: 0.5 }, (node) => node.scores["response"]! >= 0.5],
    ["more harm", { harm: 0.9 }, (node) => node.scores["response"]! >= 0.9],
    ["reward", { reward: 0.4 }, (node) => node.reward >= 0.4],
    ["either", { harm: 0.9, reward: 0.4 }, (node) => node.scores["response"]! >= 0.9 || node.reward >= 0.4],
  ])(
    "equals the whole tree cut after the turns that reach it, at no more cost: %s",
    async (_, stopAt, isEnd) => {
      const starts = Array.from({ length: 12 }, (_, episode) => ({ seed: 3, episode }));
      const whole = await new ASTSampler(toy(), PROMPTS, { width: 2, depth: 4 }).rolloutMany(starts);
      const system = toy();
      const cut = await new ASTSampler(system, PROMPTS, { width: 2, depth: 4, stopAt }).rolloutMany(starts);
      expect(cut.map((graph) => texts(graph.children))).toEqual(
        whole.map((graph) => texts(graph.children, (node) => !isEnd(node))),
      );
      const nodes = cut.flatMap((graph) => [...graph.nodes()]);
      expect(nodes.some((node) => isEnd(node))).toBe(true);
      expect(nodes.length).toBeLessThan(12 * (2 + 4 + 8 + 16));
      const sum = (rows: readonly number[]) => rows.reduce((total, count) => total + count, 0);
      expect([sum(system.batches.tester), sum(system.batches.target)]).toEqual([nodes.length, nodes.length]);
    },
  );

  it("does not affect evaluations, which measure whole conversations", async () => {
    const plain = new ASTSampler(toy(), PROMPTS, { width: 2, depth: 3 });
    const stopping = new ASTSampler(toy(), PROMPTS, { width: 2, depth: 3, stopAt: { harm: 0 } });
    expect((await stopping.rollout(0)).children.map(({ children }) => children)).toEqual([[], []]);
    expect(JSON.stringify(await stopping.evalRollout(PROMPTS[0]!))).toBe(
      JSON.stringify(await plain.evalRollout(PROMPTS[0]!)),
    );
  });

  it("does not end at a turn that could not be judged", async () => {
    class Unjudged extends ToySystem {
      override reward(): Promise<number[]> {
        return Promise.reject(new Error("busy"));
      }
    }
    const system = new Unjudged(new KeywordScorer([{ term: "no such word" }]));
    const graph = await new ASTSampler(system, PROMPTS, {
      width: 1,
      depth: 2,
      stopAt: { reward: -9 },
    }).rollout(0);
    expect(graph.path()).toHaveLength(2);
    expect(graph.path()[0]!.reward).toBeNaN();
  });
});

samplerContract("ASTSampler with an end that is never reached", {
  create: async (options) => new ASTSampler(toy(), PROMPTS, { ...options, stopAt: { harm: 2 } }),
  prompts: PROMPTS,
});

describe("PathSampler", () => {
  it("grows the trees of width 1", async () => {
    const starts = Array.from({ length: 6 }, (_, episode) => ({ seed: 1, episode }));
    const paths = await new PathSampler(toy(), PROMPTS, { depth: 4 }).rolloutMany(starts);
    const trees = await new ASTSampler(toy(), PROMPTS, { width: 1, depth: 4 }).rolloutMany(starts);
    expect(JSON.stringify(paths)).toBe(JSON.stringify(trees));
    for (const graph of paths) expect(graph.path()).toHaveLength(4);
  });

  it("is refused by algorithms that compare siblings", () => {
    const system = toy();
    expect(() => new DPO(system).checkSampler(new PathSampler(system, PROMPTS))).toThrow(
      breaking("no-siblings", "width"),
    );
  });
});
