import { fileURLToPath } from "node:url";
import { liveTensors } from "@astra-rl/torch";
import { describe, expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import { KeywordScorer } from "@astra-rl/scorers";
import { Graph, Node, type EpisodeSeed, type NodeKey } from "../../src/tree/index.js";
import { Sampler, ASTSampler, type Tip } from "../../src/sampler/index.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));
const sampling = { maxNewTokens: 6, topK: 0, topP: 1 };
const OPTIONS: HFASTSystemOptions = {
  tester: GPT2,
  target: GPT2,
  scorer: new KeywordScorer([{ pattern: "e", weight: 0.3 }]),
  inferenceDtype: "float32",
  generation: { tester: sampling, target: sampling },
  log: () => {},
};

async function using<T>(Kind: typeof HFASTSystem, use: (system: HFASTSystem) => Promise<T>): Promise<T> {
  const before = liveTensors();
  const system = (await HFASTSystem.load.call(Kind as never, OPTIONS)) as HFASTSystem;
  try {
    return await use(system);
  } finally {
    system.dispose();
    expect(liveTensors()).toBe(before);
  }
}

/** A minimal sampler with two turns. */
class OwnPaths extends Sampler {
  override async rollout(start: EpisodeSeed = 0): Promise<Graph> {
    const { seed, episode } = typeof start === "number" ? { seed: start, episode: 0 } : start;
    let context = Conversation.of("Hello there. ");
    const graph = new Graph({ context, seed, episode });
    let siblings = graph.children;
    for (let turn = 0; turn < 2; turn++) {
      const [probe] = await this.system.rolloutPromptWithTesterAndValidate([context]);
      const prompt = this.system.promptForTargetAndValidate(context, probe!);
      const [response] = await this.system.rolloutPromptWithTargetAndValidate([prompt]);
      const [reward] = await this.system.rewardAndValidate([context], [probe!], [response!]);
      const node = new Node({ context, probe: probe!, response: response!, reward: reward! });
      siblings.push(node);
      siblings = node.children;
      context = this.system.advanceAndValidate(context, probe!, response!);
    }
    return graph;
  }
}

const texts = (graphs: readonly Graph[]) => graphs.map(({ children }) => JSON.stringify(children));

describe("a sampler with only rollout that passes no keys", () => {
  const starts = Array.from({ length: 6 }, (_, episode) => ({ seed: 4, episode }));

  it("grows a different graph for each episode, and the same one for the same episode", async () => {
    await using(HFASTSystem, async (system) => {
      const sampler = new OwnPaths(system);
      const graphs = texts(await sampler.rolloutMany(starts));
      expect(new Set(graphs).size).toBe(6);
      expect(texts(await sampler.rolloutMany(starts))).toEqual(graphs);
      expect(texts(await sampler.rolloutMany(starts.toReversed())).toReversed()).toEqual(graphs);
      const others = texts(await sampler.rolloutMany(starts.map(({ episode }) => ({ seed: 5, episode }))));
      expect(new Set([...graphs, ...others]).size).toBe(12);
    });
  });

  it("grows the same graph for the same start if its rollout is called directly", async () => {
    await using(HFASTSystem, async (system) => {
      const sampler = new OwnPaths(system);
      const graphs: Graph[] = [];
      for (const start of starts) graphs.push(await sampler.rollout(start));
      expect(new Set(texts(graphs)).size).toBe(6);
      expect(texts(graphs)).toEqual(texts(await sampler.rolloutMany(starts)));
      const [one, two] = [await sampler.rollout(7), await sampler.rollout(7)];
      expect(texts([two])).toEqual(texts([one]));
      expect(texts(await sampler.rolloutMany([7]))).toEqual(texts([one]));
      // Called without a start, it has no episode: each call draws anew.
      expect(texts([await sampler.rollout()])).not.toEqual(texts([await sampler.rollout()]));
    });
  });

  it("grows the graph of each start if rollouts are called directly and concurrently", async () => {
    await using(HFASTSystem, async (system) => {
      const sampler = new OwnPaths(system);
      const said = (graphs: readonly Graph[]) =>
        graphs.map((graph) => graph.path().map(({ probe, response }) => [probe.text, response.text]));
      const apart = said(await sampler.rolloutMany(starts.slice(0, 4)));
      const atOnce = await Promise.all(
        [...starts.slice(0, 4), starts[0]!].map((start) => sampler.rollout(start)),
      );
      expect(said(atOnce)).toEqual([...apart, apart[0]]);
    });
  });

  it("keeps concurrent episodes separate", async () => {
    await using(HFASTSystem, async (system) => {
      const sampler = new OwnPaths(system);
      const said = (graphs: readonly Graph[]) =>
        graphs.map((graph) => graph.path().map(({ probe, response }) => [probe.text, response.text]));
      const apart = said(await sampler.rolloutMany(starts.slice(0, 4)));
      const atOnce = await Promise.all(starts.slice(0, 4).map((start) => sampler.rolloutMany([start])));
      expect(said(atOnce.flat())).toEqual(apart);
    });
  });
});

/** Grows its levels by the system's methods, all rows in one call or one by one, and gives no keys. */
class OwnLevels extends ASTSampler {
  oneByOne = false;

  protected override async growLevel(tips: readonly Tip[], { width }: { width: number }): Promise<Tip[]> {
    const { system } = this;
    const rows = tips.flatMap((tip) => Array.from({ length: width }, (_, child) => ({ tip, child })));
    const calls = this.oneByOne ? rows.map((row) => [row]) : [rows];
    const next: Tip[] = [];
    for (const call of calls) {
      const contexts = call.map(({ tip }) => tip.context);
      const probes = await system.rolloutPromptWithTesterAndValidate(contexts);
      const prompts = probes.map((probe, row) => system.promptForTargetAndValidate(contexts[row]!, probe));
      const responses = await system.rolloutPromptWithTargetAndValidate(prompts);
      const rewards = await system.rewardAndValidate(contexts, probes, responses);
      for (const [row, { tip, child }] of call.entries()) {
        const [probe, response] = [probes[row]!, responses[row]!];
        const node = new Node({ context: contexts[row]!, probe, response, reward: rewards[row]! });
        (tip.parent ?? tip.graph).children.push(node);
        const context = system.advanceAndValidate(tip.context, probe, response);
        next.push({ graph: tip.graph, parent: node, context, number: tip.number * width + child + 1 });
      }
    }
    return next;
  }
}

/** Grows its own tree of one level, whatever its width and depth. */
class OwnRollout extends ASTSampler {
  override async rollout(start: EpisodeSeed = this.nextEpisode()): Promise<Graph> {
    const graph = this.begin(start);
    for (let child = 0; child < 3; child++) {
      const [probe] = await this.system.rolloutPromptWithTesterAndValidate([graph.context]);
      const response = new Message("target", "Yes. ");
      graph.children.push(new Node({ context: graph.context, probe: probe!, response, reward: 0 }));
    }
    return graph;
  }
}

const idsOf = (graphs: readonly Graph[]) =>
  graphs.map((graph) =>
    [...graph.nodes()].map(({ probe, response }) => [probe.sampled?.ids, response.sampled?.ids]),
  );

describe("an override of ASTSampler that passes no keys", () => {
  for (const oneByOne of [false, true]) {
    it(`grows the same graph for the same seed, with its rows ${oneByOne ? "one by one" : "in one call"}`, async () => {
      await using(HFASTSystem, async (system) => {
        const sampler = new OwnLevels(system, ["Hello there. ", "Tea? "], { width: 2, depth: 2 });
        sampler.oneByOne = oneByOne;
        const graphs: Graph[] = [];
        for (let call = 0; call < 5; call++) graphs.push(await sampler.rollout(7));
        expect(new Set(idsOf(graphs).map((ids) => JSON.stringify(ids))).size).toBe(1);
        // All of its nodes have draws of their own, in both levels.
        const { probe, response } = { probe: 0, response: 1 };
        for (const role of [probe, response]) {
          expect(new Set(idsOf(graphs)[0]!.map((ids) => String(ids[role]))).size).toBe(6);
        }
        const others = idsOf(await Promise.all([8, 9, 7].map((seed) => sampler.rollout(seed))));
        expect(others[2]).toEqual(idsOf(graphs)[0]);
        expect(new Set(others.map((ids) => JSON.stringify(ids))).size).toBe(3);
        const path = idsOf([await sampler.evalRollout("Tea? ", { seed: 3 })]);
        expect(idsOf([await sampler.evalRollout("Tea? ", { seed: 3 })])).toEqual(path);
      });
    });
  }

  it("grows the same graph alone and with others, with one row per node", async () => {
    await using(HFASTSystem, async (system) => {
      const sampler = new OwnLevels(system, ["Hello there. "], { width: 2, depth: 2 });
      const together = idsOf(await sampler.rolloutMany([6, 7, 8]));
      expect(idsOf([await sampler.rollout(7)])).toEqual([together[1]]);
    });
  });

  it("grows the same graph for the same seed where it is its rollout, and its own sequence of them", async () => {
    await using(HFASTSystem, async (system) => {
      const make = () => new OwnRollout(system, ["Hello there. "], { seed: 5 });
      const sampler = make();
      const [one, two] = [await sampler.rollout(7), await sampler.rollout(7)];
      expect(idsOf([two])).toEqual(idsOf([one]));
      expect(new Set(one.children.map(({ probe }) => String(probe.sampled!.ids))).size).toBe(3);
      const sequence = [await sampler.rollout(), await sampler.rollout()];
      expect(sequence.map(({ seed, episode }) => [seed, episode])).toEqual([
        [5, 0],
        [5, 1],
      ]);
      const again = make();
      expect(idsOf([await again.rollout(), await again.rollout()])).toEqual(idsOf(sequence));
    });
  });

  it("tells a reward with state what an evaluation grows", async () => {
    const purposes: unknown[] = [];
    class Noting extends HFASTSystem {
      override async reward(...turns: Parameters<HFASTSystem["reward"]>): Promise<number[]> {
        purposes.push(...turns[3]!.map(({ purpose }) => purpose));
        return super.reward(...turns);
      }
    }
    await using(Noting, async (system) => {
      const sampler = new OwnPaths(system);
      await sampler.rollout(1);
      await sampler.evalRollout(1);
      expect(purposes).toEqual(["train", "train", "evaluate", "evaluate"]);
    });
  });
});

/** As in Python: without keys. */
class WithoutKeys extends HFASTSystem {
  override rolloutPromptWithTester(contexts: readonly Conversation[]) {
    return super.rolloutPromptWithTester(contexts);
  }
  override rolloutPromptWithTarget(prompts: readonly Conversation[]) {
    return super.rolloutPromptWithTarget(prompts);
  }
}

describe("an override that drops the keys", () => {
  const grown = (Kind: typeof HFASTSystem) =>
    using(Kind, async (system) => {
      const sampler = new ASTSampler(system, ["Hello there. ", "How are you? "], { width: 2, depth: 2 });
      const graphs: Graph[] = [];
      for (const seed of [1, 2, 3, 4, 5, 6]) graphs.push(await sampler.rollout(seed));
      const evaluated = await sampler.evalRolloutMany(["Tea? ", 7], { seed: 3 });
      return [...graphs, ...evaluated].map((graph) => ({
        text: JSON.stringify(graph),
        ids: [...graph.nodes()].flatMap(({ probe, response }) => [probe.sampled!.ids, response.sampled!.ids]),
      }));
    });

  it("grows the same graphs as the method itself, different for each seed", async () => {
    const own = await grown(HFASTSystem);
    expect(await grown(WithoutKeys)).toEqual(own);
    expect(new Set(own.map(({ ids }) => JSON.stringify(ids))).size).toBe(own.length);
  });

  it("gives different answers to two calls, the first as with keys", async () => {
    const answers: Message[][] = [];
    class Twice extends HFASTSystem {
      override async rolloutPromptWithTester(contexts: readonly Conversation[], keys?: readonly NodeKey[]) {
        const calls = [
          await super.rolloutPromptWithTester(contexts),
          await super.rolloutPromptWithTester(contexts),
          await super.rolloutPromptWithTester(contexts, keys),
        ] as Message[][];
        answers.push(...calls);
        return calls[1]!;
      }
    }
    await using(Twice, async (system) => {
      const sampler = new ASTSampler(system, ["Hello there. "], { width: 3, depth: 1 });
      const { children } = await sampler.rollout(1);
      const said = answers.map((messages) => messages.map(({ sampled }) => sampled!.ids));
      expect(said[1]).not.toEqual(said[0]);
      expect(said[2]).toEqual(said[0]);
      // No sibling repeats another one either.
      expect(new Set(said.slice(0, 2).flat().map(String)).size).toBe(6);
      expect(children.map(({ probe }) => probe)).toEqual(answers[1]);
      const again = await sampler.rollout(1);
      expect(texts([again])).toEqual([JSON.stringify(children)]);
    });
  });

  it("gives different answers outside of any rollout as well", async () => {
    await using(HFASTSystem, async (system) => {
      const contexts = [Conversation.of("Hello there. "), Conversation.of("Tea? ")];
      const [first, second] = [
        await system.rolloutPromptWithTester(contexts),
        await system.rolloutPromptWithTester(contexts),
      ] as Message[][];
      expect(new Set([...first!, ...second!].map(({ sampled }) => String(sampled!.ids))).size).toBe(4);
      system.release();
    });
  });
});
