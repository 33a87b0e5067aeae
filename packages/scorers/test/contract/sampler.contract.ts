import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Conversation } from "@astra-rl/lm";
import { type EpisodeSeed, type Graph, jsonOf, Node, type NodeFactory, type Sampler } from "@astra-rl/method";
import { breaking } from "../../../base/test/support/breaking.js";

export interface SamplerContract {
  create: (options: { width: number; depth: number; createNode?: NodeFactory }) => Promise<Sampler>;
  prompts: readonly string[];
  /** What a graph that begins at a prompt begins with. Default: the prompt. */
  opening?: (prompt: string) => string;
}

const STARTS: EpisodeSeed[] = [0, 1, { seed: 0, episode: 1 }, { seed: -3, episode: 2 }];
const text = (graph: Graph) => JSON.stringify(graph);

/** Batches of other shapes may round differently in the last digits; messages must not change at all. */
function expectSame(actual: readonly Graph[], expected: readonly Graph[]): void {
  const numbers: [number[], number[]] = [[], []];
  const [a, b] = [actual, expected].map((graphs, side) =>
    JSON.stringify(graphs, (_, value: unknown) => {
      if (typeof value !== "number") return value;
      numbers[side]!.push(value);
      return "number";
    }),
  );
  expect(a).toBe(b);
  const worst = numbers[0].reduce(
    (most, value, index) => Math.max(most, Math.abs(value - numbers[1][index]!)),
    0,
  );
  expect(worst).toBeLessThan(1e-4);
}

/** Rules of every tree sampler. Episodes are compared only while the tester is unchanged. */
export function samplerContract(
  name: string,
  { create, prompts, opening = (prompt) => prompt }: SamplerContract,
): void {
  describe(`${name} as a sampler`, () => {
    let sampler: Sampler;
    beforeAll(async () => void (sampler = await create({ width: 2, depth: 3 })));
    afterAll(() => sampler.system.dispose());

    it("grows the whole tree, each context the state after the parent's turn", async () => {
      const graph = await sampler.rollout(3);
      expect(prompts.map(opening)).toContain(jsonOf(graph.context));
      expect([...graph.nodes()]).toHaveLength(2 + 4 + 8);
      const check = (nodes: readonly Node[], context: Conversation, depth: number): void => {
        expect(nodes).toHaveLength(depth === 3 ? 0 : 2);
        for (const node of nodes) {
          expect(node.context).toBe(context);
          check(node.children, sampler.system.checked.advance(context, node.probe, node.response), depth + 1);
        }
      };
      check(graph.children, graph.context, 0);
    });

    it("grows byte-identical graphs from the same seed, 0 included", async () => {
      for (const start of STARTS)
        expect(text(await sampler.rollout(start))).toBe(text(await sampler.rollout(start)));
    });

    it("grows different graphs from different seeds and different episodes", async () => {
      const graphs = await sampler.rolloutMany([0, 1, 2, { seed: 0, episode: 1 }, { seed: 0, episode: 2 }]);
      const said = graphs.map((graph) => JSON.stringify(graph.children));
      expect(new Set(said).size).toBe(said.length);
    });

    it("grows each episode of a batch as it grows alone", async () => {
      const together = await sampler.rolloutMany(STARTS);
      const alone = [];
      for (const start of STARTS) alone.push(await sampler.rollout(start));
      expectSame(together, alone);
    });

    it("chooses different prompts by the seed", async () => {
      const graphs = await sampler.rolloutMany(
        Array.from({ length: 24 }, (_, episode) => ({ seed: 5, episode })),
      );
      expect(new Set(graphs.map((graph) => graph.context)).size).toBeGreaterThan(
        Math.min(2, prompts.length) - 1,
      );
    });

    it("evaluates a single path from a seed or from any prompt, batched as alone", async () => {
      const other = "Something that is no prompt of the sampler. ";
      const starts = [0, other, 4, prompts[0]!];
      const graphs = await sampler.evalRolloutMany(starts, { seed: 9, episode: 3 });
      expect(jsonOf(graphs[1]!.context)).toBe(opening(other));
      for (const [index, graph] of graphs.entries()) {
        expect([...graph.nodes()]).toEqual(graph.path());
        expect(graph.path()).toHaveLength(3);
        const alone = await sampler.evalRollout(starts[index]!, { seed: 9, episode: 3 + index });
        expectSame([alone], [graph]);
      }
    });

    it("continues its own sequence of episodes from a saved state", async () => {
      const first = await create({ width: 1, depth: 1 });
      const second = await create({ width: 1, depth: 1 });
      try {
        await first.rollout();
        await first.evalRollout();
        second.setState(JSON.parse(JSON.stringify(first.getState())) as never);
        expect(text(await second.rollout())).toBe(text(await first.rollout()));
        expect(second.getState()).toEqual(first.getState());
      } finally {
        first.system.dispose();
        second.system.dispose();
      }
    });

    it("makes no nodes at depth 0", async () => {
      const flat = await create({ width: 2, depth: 0 });
      expect((await flat.rollout(0)).children).toEqual([]);
      expect((await flat.evalRollout(prompts[0]!)).children).toEqual([]);
      flat.system.dispose();
    });

    it("makes its nodes with the factory, and keeps the system's data on them", async () => {
      class Marked extends Node {
        mark = "mine";
      }
      const marked = await create({ width: 2, depth: 2, createNode: (fields) => new Marked(fields) });
      const graph = await marked.rollout(1);
      for (const node of graph.nodes()) {
        expect(node).toBeInstanceOf(Marked);
        expect((node as Marked).mark).toBe("mine");
      }
      marked.system.dispose();
    });

    it("refuses width 0, a negative depth and fractions with a message that names them", async () => {
      await expect(create({ width: 0, depth: 1 })).rejects.toThrow(breaking("out-of-range", "width"));
      await expect(create({ width: 1, depth: -1 })).rejects.toThrow(breaking("out-of-range", "depth"));
      await expect(create({ width: 1.5, depth: 1 })).rejects.toThrow(breaking("out-of-range", "width"));
      await expect(create({ width: 1, depth: NaN })).rejects.toThrow(breaking("out-of-range", "depth"));
    });
  });
}
