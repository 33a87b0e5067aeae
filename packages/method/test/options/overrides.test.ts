import { UsageError } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import type { MetricsRecord } from "@astra-rl/records";
import { DPO } from "../../src/algorithm/preference/index.js";
import { Evaluator, ASTEvaluator, type GraphMetrics } from "../../src/evaluation/index.js";
import { Graph } from "../../src/tree/index.js";
import { Sampler, ASTSampler } from "../../src/sampler/index.js";
import { Scorer, type ScoreOutcome } from "../../src/scorer/index.js";
import { Harness, HFASTConfiguration, HFASTTrainer, Trainer } from "../../src/training/index.js";
import { variants } from "../../../../scripts/rounds.js";
import { BigramSystem } from "../support/bigram-system.js";
import { temporaryFolder } from "../training/temporary-folder.js";

// Like test/system/overrides.test.ts for systems: every override takes effect, and one that only calls super changes
// nothing.

type Method = (...args: unknown[]) => unknown;
type Override = (base: Method, args: readonly unknown[]) => unknown;
type Class = abstract new (...args: never[]) => object;

/** Methods and getters of a class and of all above it; `Descriptor` says which of the two. */
function membersOf(Kind: Class): Map<string, "method" | "getter"> {
  const members = new Map<string, "method" | "getter">();
  for (
    let prototype = Kind.prototype as object;
    prototype !== Object.prototype;
    prototype = Object.getPrototypeOf(prototype) as object
  ) {
    for (const [name, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
      if (name === "constructor") continue;
      if (typeof descriptor.value === "function") members.set(name, "method");
      else if ("get" in descriptor) members.set(name, "getter");
    }
  }
  return members;
}

/** A class that overrides one member; what the override is given as its base is the member above, bound. */
function overriding<T extends Class>(Kind: T, name: string, override: Override): T {
  const Base = Kind as unknown as new (...args: unknown[]) => object;
  class Overriding extends Base {}
  const above = (self: object) => {
    const value: unknown = Reflect.get(Base.prototype as object, name, self);
    return (...args: unknown[]): unknown =>
      typeof value === "function" && membersOf(Kind).get(name) === "method"
        ? (value as Method).apply(self, args)
        : value;
  };
  const own = function (this: object, ...args: unknown[]) {
    return override(above(this), args);
  };
  const descriptor = membersOf(Kind).get(name) === "getter" ? { get: own } : { value: own };
  Object.defineProperty(Overriding.prototype, name, { configurable: true, ...descriptor });
  return Overriding as unknown as T;
}

const passing: Override = (base, args) => base(...args);

class Letters extends Scorer {
  readonly name = "letters";
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.resolve(texts.map((text) => ({ score: text.split("a").length / 99 })));
  }
}

interface Kinds {
  Sampler: typeof ASTSampler;
  Evaluator: typeof ASTEvaluator;
  Harness: typeof Harness;
  Trainer: typeof HFASTTrainer;
  Scorer: typeof Letters;
}
const PLAIN: Kinds = {
  Sampler: ASTSampler,
  Evaluator: ASTEvaluator,
  Harness,
  Trainer: HFASTTrainer,
  Scorer: Letters,
};

/** Results of a run of two steps with evaluations, and of an evaluation and a rollout after it. */
async function shown(kinds: Partial<Kinds> = {}) {
  const { Sampler: S, Evaluator: E, Harness: H, Trainer: T, Scorer: C } = { ...PLAIN, ...kinds };
  const system = new BigramSystem();
  const scorer = new C();
  const sampler = new S(system, ["x", "y"], { width: 2, depth: 2 });
  const evaluator = new E(sampler as never, ["u", "v"], { scorer });
  class Using extends T {
    protected override makeHarness(options: object): never {
      return (
        T === HFASTTrainer && H !== Harness
          ? new H(this.sampler, this.algorithm, options)
          : super.makeHarness(options)
      ) as never;
    }
  }
  const records: MetricsRecord[] = [];
  const lines: string[] = [];
  const progress: unknown[] = [];
  const runDirectory = temporaryFolder();
  const make = (trainingSteps: number, resume: boolean) =>
    new Using(
      new HFASTConfiguration({ trainingSteps, evaluateEvery: 1, learningRate: 0.1, checkpointEvery: 1 }),
      sampler as never,
      new DPO(system) as never,
      {
        evaluator: evaluator as never,
        runDirectory,
        resume,
        clock: () => 0,
        onProgress: (event) => void progress.push(event.phase),
        logger: { info: (line) => void lines.push(line), warn: (line) => void lines.push(line) },
        callbacks: [{ name: "watch", onStep: (record) => void records.push(record) }],
      },
    );
  const trainer = make(1, false);
  await trainer.train();
  trainer.dispose();
  const further = make(2, true);
  await further.train();
  const state = { step: further.step, best: further.bestScore, last: further.lastEvaluation };
  further.dispose();
  const evaluation = await evaluator.evaluate({ seed: 5 });
  const single = await evaluator.computeMetrics((await sampler.evalRollout("w", { seed: 2 })) as never);
  const own = await sampler.rollout();
  const outcomes = await scorer.scoreAndValidate(["aaa", { prompt: "b", response: "a" }]);
  scorer.dispose();
  system.dispose();
  return JSON.parse(
    JSON.stringify({
      records,
      lines: lines.map((line) => line.replace(/^\/\S+: /u, "")),
      progress,
      state,
      evaluation,
      single,
      own,
      cursor: sampler.getState(),
      outcomes,
      keepsRoles: scorer.keepsRoles,
    }),
  ) as Record<string, unknown>;
}

/** The same of the classes as they are: one run serves all comparisons. */
let ofPlain: ReturnType<typeof shown> | undefined;
const shownPlain = () => (ofPlain ??= shown());

/** Of each class: its members, by what sees an override of them. */
const SEEN: { [K in keyof Kinds]: Record<string, Override> } = {
  Sampler: {
    rollout: (_, [start]) =>
      Promise.resolve(new Graph({ context: "mine", ...(start as { seed: number; episode: number }) })),
    rolloutMany: async (base, args) => ((await base(...args)) as Graph[]).map((graph) => marked(graph)),
    evalRollout: async (base, args) => marked((await base(...args)) as Graph),
    evalRolloutMany: async (base, args) => ((await base(...args)) as Graph[]).map((graph) => marked(graph)),
    grow: async (base, args) => ((await base(...args)) as Graph[]).map((graph) => marked(graph)),
    growEvaluation: async (base, args) => ((await base(...args)) as Graph[]).map((graph) => marked(graph)),
    nextEpisode: () => ({ seed: 77, episode: 7 }),
    finalReward: () => 42,
    observe: () => {
      throw new UsageError("out-of-range", "told of graphs");
    },
    getState: (base) => ({ ...(base() as object), mine: 1 }),
    setState: () => {
      throw new UsageError("out-of-range", "given a state");
    },
    startsFromPrompts: () => false,
    nodeFrom: (base, args) => base(...args),
    begin: (base, args) => marked(base(...args) as Graph),
    makeGraph: (base, args) => marked(base(...args) as Graph),
    growTrees: () => Promise.resolve(),
    growLevel: async (base, args) => {
      await base(...args);
      return [];
    },
    makeNode: (base, args) => Object.assign(base(...args) as object, { reward: 3 }),
    growsOn: () => false,
    prune: () => [],
  },
  Evaluator: {
    evaluate: async (base, args) => {
      const report = (await base(...args)) as { summary: { mean_reward: number } };
      return { ...report, summary: { ...report.summary, mean_reward: 42 } };
    },
    computeMetrics: async (base, args) => worth42((await base(...args)) as GraphMetrics),
    computeMetricsMany: async (base, args) => ((await base(...args)) as GraphMetrics[]).map(worth42),
    measure: async (base, args) => ((await base(...args)) as GraphMetrics[]).map(worth42),
    aggregateMetrics: async (base, args) => ({ ...((await base(...args)) as object), mine: 1 }),
    checkControls: () => Promise.resolve({ n: 42, n_found: 42 }),
    measurePath: (base, args) => worth42(base(...args) as GraphMetrics),
    measureTurn: (base, args) => ({ ...(base(...args) as object), reward: 42 }),
  },
  Harness: {
    experience: () => {
      throw new UsageError("out-of-range", "asked for an experience");
    },
    collect: async (base, args) => {
      const graphs = (await base(...args)) as Graph[];
      for (const graph of graphs) graph.children = [];
      return graphs;
    },
    creditOf: () => new Map(),
    flatten: () => [],
    shuffle: (base, args) => (base(...args) as unknown[]).slice(0, 1),
    cut: () => [],
    step: async (base, args) => ({ ...((await base(...args)) as object), logs: { mine: 1 } }),
    getState: (base) => ({ ...(base() as object), nextEpisode: 100 }),
    setState: () => {
      throw new UsageError("out-of-range", "given a state");
    },
  },
  Trainer: {
    train: () => Promise.resolve(),
    stop: () => {},
    dispose: () => {
      throw new UsageError("out-of-range", "disposed of");
    },
    makeHarness: () => {
      throw new UsageError("out-of-range", "asked for a harness");
    },
    makeOptimizer: () => {
      throw new UsageError("out-of-range", "asked for an optimizer");
    },
    runStep: () => {
      throw new UsageError("out-of-range", "asked for a step");
    },
    trainStep: async (base, args) => ({ ...((await base(...args)) as object), mine: 1 }),
    collect: () => {
      throw new UsageError("out-of-range", "asked to collect");
    },
    metrics: (base, args) => ({ ...(base(...args) as object), mine: 1 }),
    report: () => {},
    update: async (base, args) => ({ ...((await base(...args)) as object), updates: 42, norm: 42 }),
    accumulate: () => Promise.resolve("not finite"),
    clipGradient: () => NaN,
    applyUpdate: () => Promise.resolve(),
    skipUpdate: () => Promise.resolve(),
    getState: (base) => ({ ...(base() as object), step: 42 }),
    setState: () => {
      throw new UsageError("out-of-range", "given a state");
    },
    step: () => 42,
    control: (base) => ({ ...(base() as object), step: 42 }),
    stopReason: () => "enough",
    stopRequested: () => true,
    bestScore: () => 42,
    lastEvaluation: () => null,
  },
  Scorer: {
    score: (_, [texts]) => Promise.resolve((texts as unknown[]).map(() => ({ score: 1 }))),
    scoreExchanges: (_, [items]) => Promise.resolve((items as unknown[]).map(() => ({ score: 1 }))),
    scoreAndValidate: (_, [items]) => Promise.resolve((items as unknown[]).map(() => ({ score: 1 }))),
    dispose: () => {
      throw new UsageError("out-of-range", "disposed of");
    },
    keepsRoles: () => true,
    keepsContext: () => true,
    needsGoal: () => true,
    needsCalls: () => true,
    judgesUnanswered: () => true,
  },
};

const worth42 = (metrics: GraphMetrics): GraphMetrics => ({
  ...metrics,
  overall: { ...metrics.overall, mean_reward: 42 },
});

function marked<S, A>(graph: Graph<S, A>): Graph<S, A> {
  for (const node of graph.nodes()) node.reward = 5;
  graph.context = "mine" as S;
  return graph;
}

/** Overrides that a plain run does not call; other tests cover them. */
const NOT_HERE: { [K in keyof Kinds]: Record<string, string> } = {
  Sampler: {
    startsFromPrompts: "test/sampler/rollout-only.test.ts",
    nodeFrom: "test/distributed/ranks.test.ts",
  },
  Evaluator: {},
  Harness: {},
  Trainer: {
    stop: "test/training/callbacks.test.ts",
    skipUpdate: "test/training/trainer.test.ts",
    control: "test/training/callbacks.test.ts",
  },
  Scorer: {
    scoreExchanges: "test/core/scorer.test.ts",
    keepsContext: "test/http/judge-scorer.test.ts",
    needsGoal: "test/system/goals.test.ts",
    needsCalls: "scorers/test/tool-call-scorer.test.ts",
    judgesUnanswered: "assembly/test/run/harm-before-failure.test.ts",
  },
};

/** Where two methods rest on each other, an override that calls super makes one of two: see `refuseTwins`. */
const bases = { Sampler, Evaluator, Harness, Trainer, Scorer };

describe.each(Object.keys(PLAIN) as (keyof Kinds)[])("overriding %s", (kind) => {
  const Kind = PLAIN[kind] as unknown as Class;
  const members = [...membersOf(Kind).keys()].sort();

  it("lists every method and getter, including those of the base class", () => {
    expect(members).toEqual(Object.keys(SEEN[kind]).sort());
    for (const name of membersOf(bases[kind]).keys()) expect(members).toContain(name);
  });

  it.each(variants(members, 4))(
    "%s: an override that only calls super (in the night each) changes nothing",
    async (name) => {
      const [passed, plain] = [await shown({ [kind]: overriding(Kind, name, passing) }), await shownPlain()];
      // That `scoreExchanges` is its own is what makes a scorer one that keeps roles.
      if (name === "scoreExchanges") expect(passed["keepsRoles"]).toBe(true);
      expect({ ...passed, keepsRoles: plain["keepsRoles"] }).toEqual(plain);
    },
  );

  it.each(members.filter((name) => !Object.hasOwn(NOT_HERE[kind], name)))(
    "%s: an override that changes something takes effect",
    async (name) => {
      const plain = await shownPlain();
      const changed = await shown({ [kind]: overriding(Kind, name, SEEN[kind][name]!) }).catch(
        (error: unknown) => error,
      );
      expect(changed).not.toEqual(plain);
      // A failure is that of the override, not another one.
      if (changed instanceof Error) expect(changed).toBeInstanceOf(UsageError);
    },
  );
});
