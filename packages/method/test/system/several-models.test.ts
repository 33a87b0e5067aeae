import { fileURLToPath } from "node:url";
import { keyedUniform } from "@astra-rl/base";
import { liveTensors } from "@astra-rl/torch";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Conversation } from "@astra-rl/lm";
import { parseGraphRecord } from "@astra-rl/records";
import { KeywordScorer } from "@astra-rl/scorers";
import { breaking } from "../../../base/test/support/breaking.js";
import { DPO } from "../../src/algorithm/preference/index.js";
import {
  rewardCredit,
  graphFromRecord,
  stringifyGraph,
  type Graph,
  type NodeKey,
} from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";

const golden = (name: string) => fileURLToPath(new URL(`../../../lm/test/golden/${name}`, import.meta.url));
const GPT2 = golden("gpt2");
const QWEN = golden("families/qwen2");
const PROMPTS = ["How are you? ", "Hello there. "];
const STARTS = Array.from({ length: 6 }, (_, episode) => ({ seed: 5, episode }));

type Loadable<T> = (new (...args: ConstructorParameters<typeof HFASTSystem>) => T) &
  Pick<typeof HFASTSystem, "load">;
/** Targets are greedy, so that their responses depend only on their input. */
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

/** The definition: the draw of an episode selects the model. */
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
  ])("give the same results as a system with that target only, at no more work: %s", async (_, second) => {
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

  it("give the same episode in a batch as alone, and are named in records", async () => {
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

  it("do not change graphs of a single target", async () => {
    const system = await load();
    const [graph] = await grow(system, [STARTS[0]!]);
    expect(JSON.parse(stringifyGraph(graph!))).not.toHaveProperty("models");
    system.dispose();
  });
});

describe("an override of the target's method", () => {
  it("applies to every target, and rewards use its result", async () => {
    class Filtered extends HFASTSystem {
      readonly asked: number[] = [];

      override async rolloutPromptWithTarget(
        prompts: readonly Conversation[],
        keys: readonly NodeKey[] = [],
      ) {
        const said = await super.rolloutPromptWithTarget(prompts, keys);
        this.asked.push(said.length);
        return said.map(() => "");
      }
    }
    const system = await loader({ otherTargets: [QWEN] })(Filtered);
    const graphs = await grow(system);
    expect(new Set(graphs.map(({ models }) => models["target"]))).toEqual(new Set(["target", "target-2"]));
    const nodes = graphs.flatMap((graph) => [...graph.nodes()]);
    expect(system.asked.reduce((sum, rows) => sum + rows)).toBe(nodes.length);
    for (const { response, scores } of nodes) {
      expect(response.text).toBe("");
      expect(scores["response"]).toBe(0);
    }
    system.dispose();
  });
});

describe("several testers", () => {
  it("generate in their share of the training episodes, and only the tester in evaluations", async () => {
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

  it("train the tester on their messages, token for token, with gradients into the tester only", async () => {
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
    const table = await system.checked.getTesterLogprobs([node.context], [node.probe]);
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
    await expect(load({ otherTesters: [QWEN] })).rejects.toThrow(breaking("other-tokenizer", "tester-2"));
    await expect(load({ otherTesters: [GPT2], otherTesterShare: 2 })).rejects.toThrow(
      breaking("out-of-range", "otherTesterShare"),
    );
  });
});
