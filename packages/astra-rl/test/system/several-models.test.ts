import { fileURLToPath } from "node:url";
import { keyedUniform } from "@astra-rl/lm";
import { liveTensors } from "@astra-rl/torch";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DPO } from "../../src/algorithm/index.js";
import {
  rewardCredit,
  type Conversation,
  type Graph,
  type Message,
  type Node,
  type NodeKey,
} from "../../src/core/index.js";
import { graphFromRecord, parseGraphRecord, stringifyGraph } from "../../src/records/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { KeywordScorer } from "../../src/scorer/keyword-scorer.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";

const golden = (name: string) => fileURLToPath(new URL(`../../../lm/test/golden/${name}`, import.meta.url));
const GPT2 = golden("gpt2");
const QWEN = golden("families/qwen2");
const PROMPTS = ["How are you? ", "Hello there. "];
const STARTS = Array.from({ length: 6 }, (_, episode) => ({ seed: 5, episode }));

type Loadable<T> = (new (...args: ConstructorParameters<typeof HFASTSystem>) => T) &
  Pick<typeof HFASTSystem, "load">;
/** Targets are greedy, so that what one says depends on nothing but what it reads. */
const loader =
  (options: Partial<HFASTSystemOptions> = {}) =>
  <T extends HFASTSystem>(Class: Loadable<T>): Promise<T> =>
    Class.load({
      tester: GPT2,
      target: GPT2,
      scorer: new KeywordScorer(["a", "e"].map((term) => ({ pattern: term, weight: 0.3 }))),
      inferenceDtype: "float32",
      generation: { tester: { maxNewTokens: 4, topK: 0 }, target: { maxNewTokens: 4, greedy: true } },
      log: () => {},
      ...options,
    });
const load = (options: Partial<HFASTSystemOptions> = {}) => loader(options)(HFASTSystem);
const grow = (system: HFASTSystem, starts = STARTS) =>
  new ASTSampler(system, PROMPTS, { width: 2, depth: 2 }).rolloutMany(starts);

/** The definition: the draw of an episode says who has it. */
const memberOf = ({ seed, episode }: Graph, stream: string, count: number) =>
  Math.floor(keyedUniform({ seed, stream, episode, node: 0 }, 0) * count);

const turns = (graph: Graph) =>
  [...graph.nodes()].map(({ context, probe, response }) => [`${context}`, probe.text, response.text]);
const rewards = (graph: Graph) => [...graph.nodes()].map(({ reward }) => reward);

function expectClose(actual: readonly number[], expected: readonly number[]): void {
  expect(actual).toHaveLength(expected.length);
  actual.forEach((value, at) => expect(Math.abs(value - expected[at]!)).toBeLessThan(1e-4));
}

let start: number;
beforeAll(() => void (start = liveTensors()));
afterAll(() => expect(liveTensors()).toBe(start));

describe("several targets, one in each episode", () => {
  it.each([
    ["the same tokenizer", GPT2],
    ["another tokenizer", QWEN],
  ])("are each what a system with that target alone grows, at no more work: %s", async (_, second) => {
    const system = await load({ otherTargets: [second] });
    const graphs = await grow(system);
    const names = graphs.map(({ models }) => models["target"]);
    expect(names).toEqual(
      graphs.map((graph) => ["target", "target-2"][memberOf(graph, "choice of target", 2)]),
    );
    expect(new Set(names).size).toBe(2);
    const work = { read: 0, generated: 0, trained: 0 };
    for (const [target, name] of [
      [GPT2, "target"],
      [second, "target-2"],
    ] as const) {
      const alone = await load({ target });
      const mine = STARTS.filter((_start, at) => names[at] === name);
      const expected = await grow(alone, mine);
      const actual = graphs.filter(({ models }) => models["target"] === name);
      expect(actual.map(turns)).toEqual(expected.map(turns));
      actual.forEach((graph, at) => expectClose(rewards(graph), rewards(expected[at]!)));
      const { target: done } = alone.counters();
      work.read += done!.read;
      work.generated += done!.generated;
      alone.dispose();
    }
    expect(system.counters().target).toEqual(work);
    system.dispose();
  });

  it("grow each episode of a batch as it grows alone, and are named in records", async () => {
    const system = await load({ otherTargets: [QWEN] });
    const together = await grow(system);
    for (const [at, episode] of STARTS.entries()) {
      const [alone] = await grow(system, [episode]);
      expect(turns(alone!)).toEqual(turns(together[at]!));
      expect(alone!.models).toEqual(together[at]!.models);
    }
    const record = parseGraphRecord(stringifyGraph(together[0]!));
    expect(record.models).toEqual(together[0]!.models);
    expect(graphFromRecord(record).models).toEqual(together[0]!.models);
    system.dispose();
  });

  it("leave graphs of a single target as they were", async () => {
    const system = await load();
    const [graph] = await grow(system, [STARTS[0]!]);
    expect(JSON.parse(stringifyGraph(graph!))).not.toHaveProperty("models");
    expect(stringifyGraph(graph!)).not.toContain("answers");
    system.dispose();
  });
});

/** A target that is made to have said something else: what it would have said itself is kept by node. */
class Forced extends HFASTSystem {
  answers: ReadonlyMap<string, string> = new Map();
  readonly own = new Map<string, string>();

  override async rolloutPromptWithTarget(prompts: readonly Conversation[], keys: readonly NodeKey[] = []) {
    const said = await super.rolloutPromptWithTarget(prompts, keys);
    return said.map((own, row) => {
      const name = `${keys[row]!.episode} ${prompts[row]}`;
      this.own.set(name, String(own));
      return this.answers.get(name) ?? own;
    });
  }
}

describe("several targets that all answer", () => {
  it.each([
    ["max", QWEN],
    ["mean", QWEN],
    ["min", QWEN],
    ["max", GPT2],
  ] as const)(
    "are worth the %s of what each is worth, in the conversation of the one that leads (%s)",
    async (op, second) => {
      const system = await load({ otherTargets: [second], targetAnswers: op });
      const graphs = await grow(system);
      const nodes = graphs.flatMap((graph) => [...graph.nodes()].map((node) => ({ graph, node })));
      const name = ({ graph, node }: { graph: Graph; node: Node }) =>
        `${graph.episode} ${node.context}${node.probe}`;
      const leads = nodes.map(({ graph }) => memberOf(graph, "choice of target", 2));
      expect(new Set(leads).size).toBe(2);
      // Each target by itself, made to go on with what the leading one said.
      const answers = new Map(nodes.map((place) => [name(place), place.node.response.text]));
      const expected: { said: ReadonlyMap<string, string>; system: Forced }[] = [];
      const work = { read: 0, generated: 0, trained: 0 };
      for (const target of [GPT2, second]) {
        const forced = await loader({ target })(Forced);
        forced.answers = answers;
        await grow(forced);
        expected.push({ said: forced.own, system: forced });
        work.read += forced.counters().target!.read;
        work.generated += forced.counters().target!.generated;
      }
      for (const [at, place] of nodes.entries()) {
        const { node } = place;
        const [own, other] = [leads[at]!, 1 - leads[at]!];
        expect(node.response.text).toBe(expected[own]!.said.get(name(place)));
        const [answer] = node.answers;
        expect(node.answers).toHaveLength(1);
        expect(answer!.model).toBe(["target", "target-2"][other]);
        // Where tokenizers differ, the same texts may be read as other ids once somebody else has spoken.
        if (second === GPT2 || (own === 0 && graphs.some(({ children }) => children.includes(node)))) {
          expect(answer!.response.text).toBe(expected[other]!.said.get(name(place)));
        }
        // The likelihood is what the leading target thinks of the probe, whoever answers.
        const nll = node.likelihood!.nll ?? 10;
        const harm = async (response: string) => {
          const texts = [response, `${node.probe}${response}`];
          const scored = await system.scorer!.score(texts);
          const [alone, both] = scored.map((outcome) => (outcome as { score: number }).score);
          return alone! + 0.5 * both! - 0.1 * nll;
        };
        const worth = [await harm(node.response.text), await harm(answer!.response.text)];
        const combined = {
          max: Math.max(...worth),
          min: Math.min(...worth),
          mean: (worth[0]! + worth[1]!) / 2,
        };
        expect(node.reward).toBeCloseTo(combined[op], 5);
        expect(answer!.reward).toBeCloseTo(worth[1]!, 5);
      }
      // No target reads a token more than it would alone.
      if (second === GPT2) expect(system.counters().target).toEqual(work);
      const record = parseGraphRecord(stringifyGraph(graphs[0]!));
      expect(JSON.stringify(graphFromRecord(record).children[0]!.answers)).toEqual(
        JSON.stringify(graphs[0]!.children[0]!.answers),
      );
      for (const { system: forced } of expected) forced.dispose();
      system.dispose();
    },
  );

  it("count what an override of reward or of the target's method says", async () => {
    class Own extends HFASTSystem {
      override async reward(
        _: readonly Conversation[],
        __: readonly Message[],
        responses: readonly Message[],
      ) {
        return responses.map(({ text }) => text.length);
      }
    }
    const system = await loader({ otherTargets: [QWEN], targetAnswers: "max" })(Own);
    for (const graph of await grow(system)) {
      for (const { reward, response, answers } of graph.nodes()) {
        expect(reward).toBe(Math.max(response.text.length, answers[0]!.response.text.length));
      }
    }
    system.dispose();
  });

  it("are filtered, too, by an override of the target's method, and paid for what is left", async () => {
    class Filtered extends HFASTSystem {
      override async rolloutPromptWithTarget(
        prompts: readonly Conversation[],
        keys: readonly NodeKey[] = [],
      ) {
        const said = await super.rolloutPromptWithTarget(prompts, keys);
        return said.map(() => "");
      }
    }
    const system = await loader({ otherTargets: [QWEN], targetAnswers: "max" })(Filtered);
    for (const graph of await grow(system)) {
      for (const { answers, response } of graph.nodes()) {
        expect([response.text, answers[0]!.response.text]).toEqual(["", ""]);
        expect(answers[0]!.scores["response"]).toBe(0);
      }
    }
    system.dispose();
  });

  it("leave a turn without a reward where another target failed, and name its failure", async () => {
    class Down extends HFASTSystem {
      override rolloutPromptWithTarget(prompts: readonly Conversation[], keys: readonly NodeKey[] = []) {
        if (keys.some(({ member }) => member !== undefined)) return Promise.reject(new Error("down"));
        return super.rolloutPromptWithTarget(prompts, keys);
      }
    }
    const system = await loader({ otherTargets: [QWEN], targetAnswers: "max" })(Down);
    const [graph] = await grow(system, [STARTS[0]!]);
    expect(graph!.children[0]!.failure).toEqual({ stage: "target", message: "down", attempts: 3 });
    expect(graph!.children[0]!.reward).toBeNaN();
    system.dispose();
  });

  it("leave a turn without a reward where an answer could not be judged", async () => {
    const system = await load({ otherTargets: [QWEN], targetAnswers: "mean" });
    const graphs = await grow(system, [STARTS[0]!]);
    const spoiled = graphs[0]!.children[0]!.answers[0]!.response.text;
    system.dispose();
    class Failing extends HFASTSystem {
      override async reward(...turns: Parameters<HFASTSystem["reward"]>): Promise<number[]> {
        if (turns[2].some(({ text }) => text === spoiled)) throw new Error("busy");
        return turns[2].map(() => 1);
      }
    }
    const failing = await loader({ otherTargets: [QWEN], targetAnswers: "mean" })(Failing);
    const [graph] = await grow(failing, [STARTS[0]!]);
    const node = graph!.children[0]!;
    expect(node.failure).toMatchObject({ stage: "scorer", message: "busy" });
    expect(node.reward).toBeNaN();
    failing.dispose();
  });
});

describe("several testers", () => {
  it("speak in their share of the training episodes, and only the tester in evaluations", async () => {
    const starts = Array.from({ length: 60 }, (_, episode) => ({ seed: 1, episode }));
    const system = await load({ otherTesters: [GPT2], otherTesterShare: 0.3 });
    const sampler = new ASTSampler(system, PROMPTS, { width: 1, depth: 0 });
    const named = (await sampler.rolloutMany(starts)).map(({ models }) => models["tester"]);
    const expected = starts.map((key) => {
      const draw = keyedUniform({ ...key, stream: "choice of tester", node: 0 }, 0);
      return draw < 0.3 ? "tester-2" : "tester";
    });
    expect(named).toEqual(expected);
    expect(new Set(named).size).toBe(2);
    const evaluated = (await sampler.evalRolloutMany(starts)).map(({ models }) => models["tester"]);
    expect(new Set(evaluated)).toEqual(new Set(["tester"]));
    system.dispose();
    const all = await load({ otherTesters: [GPT2], evaluateOtherTesters: true });
    const both = await new ASTSampler(all, PROMPTS, { depth: 0 }).evalRolloutMany(starts);
    expect(new Set(both.map(({ models }) => models["tester"]))).toEqual(new Set(["tester", "tester-2"]));
    all.dispose();
  });

  it("teach the tester by what they said, token for token, with gradients into the tester alone", async () => {
    const system = await load({ otherTesters: [GPT2], otherTesterShare: 1 });
    const [graph] = await grow(system, [STARTS[0]!]);
    expect(graph!.models["tester"]).toBe("tester-2");
    const plain = await load();
    const [same] = await grow(plain, [STARTS[0]!]);
    // Another name, other draws.
    expect(turns(same!)).not.toEqual(turns(graph!));
    plain.dispose();
    const node = graph!.children[0]!;
    const { tester } = system.tokensOf(node)!;
    const table = await system.getTesterLogprobsAndValidate([node.context], [node.probe]);
    expect(table.lengths).toEqual([tester!.probe.length + (tester!.end === undefined ? 0 : 1)]);
    table.dispose();
    const algorithm = new DPO(system);
    const steps = algorithm.flatten(graph!, rewardCredit(graph!));
    expect(steps.length).toBeGreaterThan(0);
    const { loss } = await algorithm.step(algorithm.collate(steps));
    // Tester and baseline are the same weights, so that every margin is 0.
    expect(loss.item()).toBeCloseTo(Math.log(2), 4);
    loss.dispose();
    system.dispose();
  });

  it("are refused with another tokenizer, and shares out of range", async () => {
    await expect(load({ otherTesters: [QWEN] })).rejects.toThrow(
      /tester-2 must have the tester's tokenizer/u,
    );
    await expect(load({ otherTesters: [GPT2], otherTesterShare: 2 })).rejects.toThrow(
      /otherTesterShare must be between 0 and 1, got 2/u,
    );
  });
});
