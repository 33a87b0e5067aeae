import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { liveTensors, scope, type Tensor } from "@astra-rl/torch";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DPO } from "../../src/algorithm/index.js";
import {
  Growth,
  TokenTable,
  type Graph,
  type Node,
  type NodeKey,
  type System,
} from "../../src/core/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { KeywordScorer } from "../../src/scorer/keyword-scorer.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";
import { HFASTConfiguration, HFASTTrainer, Trainer } from "../../src/training/index.js";
import type { MetricsRecord } from "../../src/records/index.js";
import { ActorCritic } from "../support/actor-critic.js";
import { expectFaithful, heardProbe, keptProbe, tokensOf } from "../support/faithful.js";

const golden = (name: string) => fileURLToPath(new URL(`../../../lm/test/golden/${name}`, import.meta.url));
const GPT2 = golden("gpt2");
const PROMPTS = ["Hello there. ", "How are you? ", "I like tea. "];

const OPTIONS: HFASTSystemOptions = {
  tester: GPT2,
  target: GPT2,
  scorer: new KeywordScorer(["a", "the", "e"].map((term) => ({ pattern: term, weight: 0.3 }))),
  inferenceDtype: "float32",
  generation: {
    tester: { maxNewTokens: 4, topK: 0, topP: 1 },
    target: { maxNewTokens: 4, topK: 0, topP: 1 },
  },
  log: () => {},
};

type Class = new (...args: ConstructorParameters<typeof HFASTSystem>) => HFASTSystem;
const load = (Kind: Class): Promise<HFASTSystem> =>
  HFASTSystem.load.call(Kind as never, OPTIONS) as Promise<HFASTSystem>;

async function grown(
  Kind: Class,
  use?: (system: HFASTSystem, graph: Graph) => Promise<void>,
): Promise<Graph> {
  const before = liveTensors();
  const system = await load(Kind);
  try {
    const graph = await new ASTSampler(system, PROMPTS, { width: 2, depth: 2 }).rollout(1);
    await use?.(system, graph);
    return graph;
  } finally {
    system.dispose();
    expect(liveTensors()).toBe(before);
  }
}

/** Every method that somebody may override: of the class and all above it, down to System. */
function methodNames(): string[] {
  const names = new Set<string>();
  for (
    let prototype = HFASTSystem.prototype as object;
    prototype !== Object.prototype;
    prototype = Object.getPrototypeOf(prototype) as object
  ) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
      if (typeof value === "function" && name !== "constructor") names.add(name);
    }
  }
  return [...names].sort();
}

const first = (graph: Graph): Node => graph.children[0]!;
const nodesOf = (graph: Graph): Node[] => [...graph.nodes()];

type Method = (...args: unknown[]) => unknown;
type Override = (base: Method, args: readonly unknown[]) => unknown;

/** A class that overrides one method; `base` is the method above. */
function overriding(name: string, method: Override): Class {
  class Overriding extends HFASTSystem {}
  const base = (HFASTSystem.prototype as unknown as Record<string, Method>)[name]!;
  Object.defineProperty(Overriding.prototype, name, {
    value: function (this: HFASTSystem, ...args: unknown[]) {
      return method((...given) => base.apply(this, given), args);
    },
  });
  return Overriding;
}

/** For overrides that answer each of their rows, which their first argument names. */
const forEachRow =
  (answer: (row: number) => unknown): Override =>
  (_, [rows]) =>
    Promise.resolve((rows as readonly unknown[]).map((_row, index) => answer(index)));

const characters = (text: string): string[] => Array.from(text);

const table = (continuations: readonly string[], value: number) =>
  TokenTable.ofRows(continuations.map((text) => characters(text).map(() => value)));

/** What each method's override changes, and where the graph shows it. */
const SHOWN: Record<string, { override: Override; seen: (graph: Graph) => void }> = {
  rolloutPromptWithTester: {
    override: forEachRow(() => "Say it. "),
    seen: (graph) => {
      expect(nodesOf(graph).map(({ probe }) => probe)).toEqual(nodesOf(graph).map(() => "Say it. "));
      expect(tokensOf(first(graph)).edited).toBe(true);
    },
  },
  rolloutPromptWithTesterAndValidate: {
    override: forEachRow(() => "Say it. "),
    seen: (graph) => expect(first(graph).probe).toBe("Say it. "),
  },
  rolloutPromptWithTarget: {
    override: forEachRow(() => "No. "),
    seen: (graph) => {
      expect(first(graph).response).toBe("No. ");
      expect(first(graph).children[0]!.context.endsWith("No. ")).toBe(true);
    },
  },
  rolloutPromptWithTargetAndValidate: {
    override: forEachRow(() => "No. "),
    seen: (graph) => expect(first(graph).response).toBe("No. "),
  },
  promptForTarget: {
    override: (_, [context, probe]) => `${context as string}<${probe as string}>`,
    seen: (graph) => {
      const { heard, probe } = tokensOf(first(graph)).target!;
      expect(probe[0]).toBeGreaterThan(0);
      expect(probe[1]).toBeLessThan(heard.length);
    },
  },
  advance: {
    override: (_, args) => {
      const [context, probe, response] = args as string[];
      return `${context}${probe}|${response}|`;
    },
    seen: (graph) => {
      const { context, probe, response, children } = first(graph);
      expect(children[0]!.context).toBe(`${context}${probe}|${response}|`);
    },
  },
  getTargetLogprobs: {
    override: (_, [, continuations]) => Promise.resolve(table(continuations as string[], -2)),
    seen: (graph) => expect(first(graph).likelihood!.total).toBe(-2 * characters(first(graph).probe).length),
  },
  getTargetLogprobsAndValidate: {
    override: (_, [, continuations]) => Promise.resolve(table(continuations as string[], -2)),
    seen: (graph) => expect(first(graph).likelihood!.total).toBe(-2 * characters(first(graph).probe).length),
  },
  likelihood: {
    override: forEachRow(() => ({ nll: 7, total: -7, tokens: 1 })),
    seen: (graph) => {
      const { likelihood, scores, reward } = first(graph);
      expect(likelihood).toEqual({ nll: 7, total: -7, tokens: 1 });
      expect(reward).toBeCloseTo(scores["response"]! + 0.5 * scores["combined"]! - 0.7, 6);
    },
  },
  reward: {
    override: forEachRow(() => 1000),
    seen: (graph) => {
      for (const node of nodesOf(graph)) {
        expect(node.reward).toBe(1000);
        // What the system would have measured is recorded all the same.
        expect(Object.keys(node.scores)).toEqual(expect.arrayContaining(["probe", "response", "combined"]));
      }
    },
  },
  rewardAndValidate: {
    override: forEachRow(() => 1000),
    seen: (graph) => expect(first(graph).reward).toBe(1000),
  },
  assess: {
    override: forEachRow(() => ({
      reward: 5,
      scores: { mine: 1 },
      terms: {},
      likelihood: null,
      failure: null,
    })),
    seen: (graph) => {
      expect(first(graph).reward).toBe(5);
      expect(first(graph).scores).toEqual({ mine: 1 });
    },
  },
  modelsAt: {
    override: () => ({ target: "mine" }),
    seen: (graph) => expect(graph.models).toEqual({ target: "mine" }),
  },
  growthMemory: {
    override: () => null,
    seen: (graph) => expect(first(graph).tokens).toBeUndefined(),
  },
};

/** Methods that a training step calls, and those that only whoever owns the system does. */
const TRAINING = [
  "getTesterLogprobs",
  "getTesterLogprobsAndValidate",
  "getBaselineLogprobs",
  "getBaselineLogprobsAndValidate",
  "parameters",
  "counters",
  "testerUpdated",
  "saveTester",
  "tensorRules",
  "rememberDevice",
  "observe",
  "getState",
];
const RESUMING = ["restoreTester", "setState"];
/** Methods that a training step of an algorithm calls that learns values. */
const VALUES = ["getTesterOutput", "getTesterOutputAndValidate", "valueParameters", "lacks"];
/** Those whose part `getTesterOutput` takes over where nobody overrides them. */
const TAKEN_OVER = ["value", "valueAndValidate"];
const OWNERS = ["dispose", "redraw", "emptyResponse", "tokensOf"];
/** What only an algorithm asks that takes the rollouts' own log-probabilities. */
const RECORDED = ["getRecordedLogprobs"];

describe("overriding HFASTSystem", () => {
  let plain: Graph;
  let counters: unknown;
  beforeAll(async () => {
    plain = await grown(HFASTSystem, async (system) => void (counters = system.counters()));
  });

  it("knows every method", () => {
    const known = [
      ...Object.keys(SHOWN),
      ...TRAINING,
      ...RESUMING,
      ...VALUES,
      ...TAKEN_OVER,
      ...OWNERS,
      ...RECORDED,
    ];
    expect(methodNames()).toEqual(known.sort());
  });

  it.each(methodNames())(
    "%s: an override that only calls super changes no id, number or counter",
    async (name) => {
      const graph = await grown(
        overriding(name, (base, args) => base(...args)),
        async (system) => expect(system.counters()).toEqual(counters),
      );
      expect(graph.toJSON()).toEqual(plain.toJSON());
      const tokens = (each: Graph) =>
        nodesOf(each).map((node) => [
          tokensOf(node).toRecord(),
          tokensOf(node).baselineLogprobs,
          tokensOf(node).tester,
          tokensOf(node).target,
        ]);
      expect(tokens(graph)).toEqual(tokens(plain));
    },
  );

  it.each(Object.keys(SHOWN))("%s: an override shows in the graph", async (name) => {
    const { override, seen } = SHOWN[name]!;
    const graph = await grown(overriding(name, override));
    expect(() => seen(graph)).not.toThrow();
  });

  it("counts in training, too, and when a run is taken up again", async () => {
    const called = new Set<string>();
    class Watched extends HFASTSystem {}
    for (const name of [...TRAINING, ...RESUMING]) {
      const base = (HFASTSystem.prototype as unknown as Record<string, (...args: unknown[]) => unknown>)[
        name
      ]!;
      Object.defineProperty(Watched.prototype, name, {
        value: function (this: HFASTSystem, ...args: unknown[]) {
          called.add(name);
          return base.apply(this, args);
        },
      });
    }
    const folder = await mkdtemp(join(tmpdir(), "overrides-"));
    try {
      for (const [trainingSteps, resume] of [
        [1, false],
        [2, true],
      ] as const) {
        const system = await load(Watched);
        const trainer = new HFASTTrainer(
          new HFASTConfiguration({ trainingSteps, evaluateEvery: 0, checkpointEvery: 1 }),
          new ASTSampler(system, PROMPTS, { width: 2, depth: 1 }),
          new DPO(system) as never,
          { runDirectory: folder, resume },
        );
        await trainer.train();
        trainer.dispose();
        system.dispose();
      }
    } finally {
      await rm(folder, { recursive: true });
    }
    expect([...called].sort()).toEqual([...TRAINING, ...RESUMING].sort());
  });

  /** Trains for a step with an algorithm that learns values; which of the methods were called, and its metrics. */
  async function actorCriticStep(Kind: Class): Promise<{ called: Set<string>; record: MetricsRecord }> {
    const called = new Set<string>();
    class Watched extends Kind {}
    for (const name of [...TRAINING, ...VALUES, ...TAKEN_OVER]) {
      if (Object.hasOwn(Kind.prototype, name)) continue;
      const base = (Kind.prototype as unknown as Record<string, Method>)[name]!;
      Object.defineProperty(Watched.prototype, name, {
        value: function (this: HFASTSystem, ...args: unknown[]) {
          called.add(name);
          return base.apply(this, args);
        },
      });
    }
    const options = { ...OPTIONS, valueHead: true };
    const system = (await HFASTSystem.load.call(Watched as never, options)) as HFASTSystem;
    let record: MetricsRecord;
    const trainer = new Trainer(
      new HFASTConfiguration({ trainingSteps: 1 }),
      new ASTSampler(system, PROMPTS, { width: 2, depth: 1 }),
      new ActorCritic(system, 1e-3),
      { callbacks: [{ name: "watch", onStep: (each) => void (record = each) }] },
    );
    await trainer.train();
    trainer.dispose();
    system.dispose();
    return { called, record: record! };
  }

  it("counts where values are learned, too", async () => {
    // Every method is overridden here, by one that only calls super.
    const { called } = await actorCriticStep(HFASTSystem);
    const forgone = ["getBaselineLogprobs", "getBaselineLogprobsAndValidate", "saveTester"];
    expect([...called].sort()).toEqual(
      [...TRAINING, ...VALUES, ...TAKEN_OVER].filter((name) => !forgone.includes(name)).sort(),
    );
  });

  it.each([
    ["getTesterLogprobs", -3],
    ["getTesterLogprobsAndValidate", -3],
    ["value", 7],
    ["valueAndValidate", 7],
  ])("%s: an override counts in getTesterOutput, whatever else is wanted", async (name, number) => {
    const Kind = overriding(name, (_, [, continuations]) => {
      const made = table(continuations as string[], number);
      made.values.requiresGrad_();
      return Promise.resolve(made);
    });
    const options = { ...OPTIONS, valueHead: true };
    const system = (await HFASTSystem.load.call(Kind as never, options)) as HFASTSystem;
    await scope(async () => {
      // A text whose tokens are its characters, so that both tables have as many.
      const wants = { values: true, entropy: true };
      const output = await system.getTesterOutput(["Hello"], ["zqx"], undefined, wants);
      const own = name.startsWith("value") ? output.values! : output.logprobs;
      expect(own.rows()).toEqual([[number, number, number]]);
      const others = name.startsWith("value") ? output.logprobs : output.values!;
      expect(others.rows()[0]).not.toContain(number);
      // Nobody knows the distributions behind log-probabilities of somebody's own.
      expect(output.entropy !== undefined).toBe(name.startsWith("value"));
    });
    system.dispose();
  });

  it("emptyResponse stands for a response that never came", async () => {
    class Failing extends HFASTSystem {
      override emptyResponse(): string {
        return "(nothing)";
      }
      override rolloutPromptWithTarget(): Promise<string[]> {
        return Promise.reject(new Error("gone"));
      }
    }
    const graph = await grown(Failing);
    expect(graph.children.map(({ response, failure }) => [response, failure!.message])).toEqual([
      ["(nothing)", "gone"],
      ["(nothing)", "gone"],
    ]);
  });

  it.each(["expand", "openGrowth"])("%s is refused, with the methods that count instead", async (name) => {
    class Old extends HFASTSystem {}
    Object.defineProperty(Old.prototype, name, { value: () => Promise.resolve([]) });
    await expect(grown(Old)).rejects.toThrow(new RegExp(`Old.${name}: .*rolloutPromptWithTester`, "u"));
  });
});

describe("overrides that call super in their own way", () => {
  const length = (text: string) => text.length;

  it("calling it twice with other draws gives two candidates; the one that is returned keeps its ids", async () => {
    const drawn: string[][] = [];
    class BestOfTwo extends HFASTSystem {
      override async rolloutPromptWithTester(
        contexts: readonly string[],
        keys: readonly NodeKey[],
      ): Promise<string[]> {
        const one = await super.rolloutPromptWithTester(contexts, keys);
        const two = await super.rolloutPromptWithTester(
          contexts,
          keys.map((key) => this.redraw(key, 1)),
        );
        one.forEach((probe, row) => drawn.push([probe, two[row]!]));
        return one.map((probe, row) => (length(two[row]!) > length(probe) ? two[row]! : probe));
      }
    }
    const graph = await grown(BestOfTwo, async (system, grownGraph) => {
      await expectFaithful(system, grownGraph, GPT2);
      expect(nodesOf(grownGraph).some(({ tokens }) => (tokens as { edited: boolean }).edited)).toBe(false);
    });
    expect(drawn.some(([one, two]) => one !== two)).toBe(true);
    expect(nodesOf(graph).some(({ probe }) => drawn.some(([one, two]) => probe === one && two !== one))).toBe(
      true,
    );
    expect(nodesOf(graph).some(({ probe }) => drawn.some(([one, two]) => probe === two && two !== one))).toBe(
      true,
    );
  });

  it("calling it row by row, or in another order, gives the graph of one call", async () => {
    class RowByRow extends HFASTSystem {
      override async rolloutPromptWithTester(
        contexts: readonly string[],
        keys: readonly NodeKey[],
      ): Promise<string[]> {
        const probes: string[] = [];
        for (const [row, context] of contexts.entries())
          probes.push((await super.rolloutPromptWithTester([context], [keys[row]!]))[0]!);
        return probes;
      }
      override async rolloutPromptWithTarget(
        prompts: readonly string[],
        keys: readonly NodeKey[],
      ): Promise<string[]> {
        const backwards = await super.rolloutPromptWithTarget(prompts.toReversed(), keys.toReversed());
        return backwards.toReversed();
      }
    }
    const plain = await grown(HFASTSystem);
    const graph = await grown(RowByRow, (system, each) => expectFaithful(system, each, GPT2));
    const said = (each: Graph) =>
      nodesOf(each).map(({ context, probe, response }) => [context, probe, response]);
    expect(said(graph)).toEqual(said(plain));
    expect(nodesOf(graph).map(({ tokens }) => (tokens as { edited: boolean }).edited)).toEqual(
      nodesOf(graph).map(() => false),
    );
    const ids = (each: Graph) =>
      nodesOf(each).map((node) => [tokensOf(node).tester!.context, keptProbe(node), heardProbe(node)]);
    expect(ids(graph)).toEqual(ids(plain));
  });

  it("copied keys belong to no growing node: a conversation of its own answers the same", async () => {
    class Copying extends HFASTSystem {
      override rolloutPromptWithTester(
        contexts: readonly string[],
        keys: readonly NodeKey[],
      ): Promise<string[]> {
        return super.rolloutPromptWithTester(
          contexts,
          keys.map((key) => ({ ...key })),
        );
      }
    }
    const plain = await grown(HFASTSystem);
    const graph = await grown(Copying);
    expect(graph.children.map(({ probe }) => probe)).toEqual(plain.children.map(({ probe }) => probe));
  });

  it("what a method puts around utterances is read, and is no part of them", async () => {
    class Labelled extends HFASTSystem {
      override promptForTarget(context: string, probe: string): string {
        return `${context}\nQ: ${probe}\nA:`;
      }
      override advance(context: string, probe: string, response: string): string {
        return `${context}\nQ: ${probe}\nA:${response}`;
      }
    }
    const graph = await grown(Labelled, async (system, each) => {
      const rows = nodesOf(each);
      for (const node of rows) {
        const { heard } = tokensOf(node).target!;
        expect(system.parts.target.codec.decode(heard)).toBe(`\nQ: ${node.probe}\nA:`);
        expect(system.parts.target.codec.decode(heardProbe(node))).toBe(node.probe);
        expect(node.likelihood!.tokens).toBe(heardProbe(node).length);
      }
      // A child's target has read the parent's turn as it was, ids and all.
      const [parent] = each.children;
      for (const child of parent!.children) {
        const { context, heard, lines } = tokensOf(parent!).target!;
        const before = [...context, ...heard, ...lines.at(-1)!.ids!];
        expect(tokensOf(child).target!.context).toEqual(before);
      }
    });
    expect(first(graph).children[0]!.context).toContain("\nA:");
  });

  it("a context that the tester is given otherwise is what it reads, and is marked", async () => {
    class Instructed extends HFASTSystem {
      override rolloutPromptWithTester(
        contexts: readonly string[],
        keys: readonly NodeKey[],
      ): Promise<string[]> {
        return super.rolloutPromptWithTester(
          contexts.map((context) => `${context}Be rude. `),
          keys,
        );
      }
    }
    await grown(Instructed, async (system, graph) => {
      for (const node of nodesOf(graph)) {
        const { tester, edited } = tokensOf(node);
        expect(system.parts.tester.codec.decode(tester!.context)).toBe(`${node.context}Be rude. `);
        expect(edited).toBe(true);
      }
    });
  });
});

describe("a system made of parts", () => {
  afterAll(() => {});

  it("says which part or method is missing", async () => {
    const { ASTSystem } = await import("../../src/system/index.js");
    const system: System = new ASTSystem({});
    await expect(system.rolloutPromptWithTester(["a"])).rejects.toThrow(
      "ASTSystem.rolloutPromptWithTester: this system has no tester; give one in its parts, or override rolloutPromptWithTester",
    );
    await expect(system.getTargetLogprobs(["a"], ["b"])).rejects.toThrow(/no target/u);
    await expect(system.reward(["a"], ["b"], ["c"])).rejects.toThrow(/no scorer/u);
    expect([...(system.parameters() as Iterable<Tensor>)]).toEqual([]);
    expect(() => new Growth(system)).not.toThrow();
  });
});
