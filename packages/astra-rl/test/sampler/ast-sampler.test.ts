import { UsageError } from "@astra-rl/torch";
import { keyedUniform } from "@astra-rl/lm";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Growth, Node, type NodeKey } from "../../src/core/index.js";
import { ASTSampler, type ASTSamplerOptions } from "../../src/sampler/index.js";
import { KeywordScorer } from "../../src/scorer/keyword-scorer.js";
import { samplerContract } from "../contract/sampler.contract.js";
import { ToySystem } from "../support/toy-system.js";

const PROMPTS = ["One. ", "Two. ", "Three. ", "Four. ", "Five. "];
const toy = () => new ToySystem(new KeywordScorer(["bad", "so"].map((term) => ({ term, weight: 0.5 }))));
const sampler = (options: ASTSamplerOptions = {}, system = toy()) => new ASTSampler(system, PROMPTS, options);

samplerContract("ASTSampler", {
  create: async (options) => sampler(options),
  prompts: PROMPTS,
});

/** The definition that level-synchronous growth must agree with: one node at a time, depth first. */
async function growNodeByNode(width: number, depth: number, seed: number, episode: number): Promise<unknown> {
  const system = toy();
  const grow = async (context: string, parent: number, level: number): Promise<unknown[]> => {
    if (level === 0) return [];
    const children = [];
    for (let child = 0; child < width; child++) {
      const key: NodeKey = { seed, episode, node: parent * width + child + 1 };
      const [probe] = await system.rolloutPromptWithTester([context], [key]);
      const [response] = await system.rolloutPromptWithTarget([context + probe!], [key]);
      const [reward] = await system.reward([context], [probe!], [response!]);
      children.push({
        context,
        probe,
        response,
        reward,
        children: await grow(context + probe! + response!, key.node, level - 1),
      });
    }
    return children;
  };
  const prompt =
    PROMPTS[Math.floor(keyedUniform({ seed, stream: "prompt", episode, node: 0 }, 0) * PROMPTS.length)]!;
  return { context: prompt, children: await grow(prompt, 0, depth) };
}

const bare = (node: Node): unknown => ({
  context: node.context,
  probe: node.probe,
  response: node.response,
  reward: node.reward,
  children: node.children.map(bare),
});

describe("ASTSampler", () => {
  it("level by level = node by node, whatever the tree and the company", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 0, max: 3 }),
        fc.array(fc.record({ seed: fc.maxSafeInteger(), episode: fc.nat() }), { minLength: 1, maxLength: 3 }),
        async (width, depth, starts) => {
          const graphs = await sampler({ width, depth }).rolloutMany(starts);
          for (const [index, { seed, episode }] of starts.entries()) {
            const graph = graphs[index]!;
            expect({ context: graph.context, children: graph.children.map(bare) }).toEqual(
              await growNodeByNode(width, depth, seed, episode),
            );
          }
        },
      ),
      { numRuns: 25 },
    );
  });

  it("grows all episodes of a level in one batch for each model", async () => {
    const system = toy();
    await sampler({ width: 2, depth: 3 }, system).rolloutMany([1, 2, 3]);
    expect(system.batches).toEqual({ tester: [6, 12, 24], target: [6, 12, 24] });
  });

  it("closes what it opened, also after an error", async () => {
    const events: string[] = [];
    class Watched extends ToySystem {
      broken = false;
      override openGrowth(): Growth {
        events.push("open");
        const expand: Growth["expand"] = (requests) =>
          this.broken ? Promise.reject(new UsageError("stop")) : this.expand(requests);
        return { expand, close: () => events.push("close") };
      }
    }
    const system = new Watched(new KeywordScorer([{ term: "x" }]));
    await sampler({}, system).rollout(0);
    system.broken = true;
    await expect(sampler({}, system).rollout(0)).rejects.toThrow("stop");
    expect(events).toEqual(["open", "close", "open", "close"]);
  });

  it("keeps a node whose target failed, without children; its siblings grow on", async () => {
    class Flaky extends ToySystem {
      override rolloutPromptWithTarget(
        prompts: readonly string[],
        keys?: readonly NodeKey[],
      ): Promise<string[]> {
        if (keys?.some((key) => key.node === 1)) return Promise.reject(new Error("timeout"));
        return super.rolloutPromptWithTarget(prompts, keys);
      }
    }
    const system = new Flaky(new KeywordScorer([{ term: "bad" }]));
    const graph = await sampler({ width: 2, depth: 2 }, system).rollout(0);
    const [failed, sound] = graph.children;
    expect(failed!.failure).toEqual({ stage: "target", message: "timeout", attempts: 3 });
    expect(failed!.reward).toBeNaN();
    expect(failed!.children).toEqual([]);
    expect(sound!.failure).toBeNull();
    expect(sound!.children).toHaveLength(2);
  });

  it("says what turns are grown for", async () => {
    const purposes: (string | undefined)[] = [];
    class Watched extends ToySystem {
      override assess(...args: Parameters<ToySystem["assess"]>): ReturnType<ToySystem["assess"]> {
        purposes.push(...args[3]!.map(({ purpose }) => purpose));
        return super.assess(...args);
      }
    }
    const own = sampler({ depth: 1, width: 2 }, new Watched(new KeywordScorer([{ term: "bad" }])));
    await own.rollout(0);
    await own.evalRollout("Hello. ");
    expect(purposes).toEqual(["train", "train", "evaluate"]);
  });

  it("gives the system's data to nodes whose factory forgets it", async () => {
    class Tokened extends ToySystem {
      override async expand(...args: Parameters<ToySystem["expand"]>): ReturnType<ToySystem["expand"]> {
        return (await super.expand(...args)).map((outcome, index) => ({ ...outcome, tokens: index }));
      }
    }
    const system = new Tokened(new KeywordScorer([{ term: "bad" }]));
    const createNode: ASTSamplerOptions["createNode"] = ({ context, probe, response, reward }) =>
      new Node({ context, probe, response, reward });
    const graph = await sampler({ depth: 1, width: 3, createNode }, system).rollout(0);
    expect(graph.children.map((node) => node.tokens)).toEqual([0, 1, 2]);
  });

  it("takes its own episodes one after the other, all different", async () => {
    const own = sampler({ seed: 12 });
    const graphs = [await own.rollout(), await own.rollout(), await own.evalRollout()];
    expect(graphs.map(({ seed, episode }) => [seed, episode])).toEqual([
      [12, 0],
      [12, 1],
      [12, 2],
    ]);
    expect(() => own.setState({ version: 1, seed: 13, nextEpisode: 0 })).toThrow(/belongs to seed 13/u);
    expect(() => own.setState({})).toThrow(UsageError);
  });

  it("draws every prompt about equally often", async () => {
    const graphs = await sampler({ depth: 0 }).rolloutMany(
      Array.from({ length: 5000 }, (_, episode) => ({ seed: 1, episode })),
    );
    for (const prompt of PROMPTS) {
      // 1000 expected, standard deviation 28: five of them leave a false alarm in 10⁶ runs.
      const count = graphs.filter((graph) => graph.context === prompt).length;
      expect(Math.abs(count - 1000)).toBeLessThan(140);
    }
  });

  it("refuses an empty prompt set and seeds that are no whole numbers", async () => {
    expect(() => new ASTSampler(toy(), [])).toThrow(/at least one prompt/u);
    expect(() => sampler({ seed: 0.5 })).toThrow(/seed must be a whole number/u);
    await expect(sampler().rollout(NaN)).rejects.toThrow(UsageError);
    await expect(sampler().rollout({ seed: 1, episode: 1.5 })).rejects.toThrow(/episode/u);
  });

  it("knows the last reward of a path", async () => {
    const graph = await sampler({ depth: 2 }).evalRollout("Hello. ");
    expect(sampler().finalReward(graph)).toBe(graph.path()[1]!.reward);
    expect(sampler().finalReward(await sampler({ depth: 0 }).rollout(0))).toBe(0);
  });
});
