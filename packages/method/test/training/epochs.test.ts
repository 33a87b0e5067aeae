import { describe, expect, it } from "vitest";
import { scope, tensor, type Tensor } from "@astra-rl/torch";
import type { MetricsRecord } from "@astra-rl/records";
import { DPO } from "../../src/algorithm/preference/index.js";
import { Algorithm, type StepResult } from "../../src/algorithm/index.js";
import { ContractError, rewardCredit, backUp, type CreditTable } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import {
  Harness,
  Trainer,
  type HarnessOptions,
  TrainingConfiguration,
  type TrainingConfigurationOptions,
} from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";
import type { TextGraph, TextNode } from "../support/texts.js";
import { weightsOf } from "./support.js";

interface Nodes {
  nodes: readonly TextNode[];
  tokens: number;
}

interface ImitationOptions {
  epochs?: number;
  /** The loss is a mean over tokens and the weight counts them; otherwise over turns. */
  perToken?: boolean;
  /** Number of the batch, from 0, that requests a stop. */
  stopAt?: number;
  /** Batches of a step until its measure exceeds the limit of a rule, for each step; 0 for never. */
  exceedAt?: readonly number[];
}

/** Imitates every turn in proportion to its credit. */
class Imitation extends Algorithm<string, string, TextNode, Nodes> {
  override readonly epochs: number;
  readonly prepared: (readonly TextNode[])[] = [];
  readonly order: string[] = [];
  gradientsInPrepare = false;
  batches = 0;
  /** Of all earlier experiences. */
  batchesBefore = 0;
  constructor(
    readonly toy: BigramSystem,
    readonly options: ImitationOptions = {},
  ) {
    super(toy);
    this.epochs = options.epochs ?? 1;
  }
  credit: CreditTable<string, string> = new Map();
  override flatten(graph: TextGraph, credit: CreditTable<string, string>): TextNode[] {
    this.credit = new Map([...this.credit, ...credit]);
    return [...graph.nodes()].filter((node) => credit.has(node));
  }
  override async prepare(steps: readonly TextNode[]): Promise<readonly TextNode[]> {
    this.prepared.push(steps);
    this.batchesBefore = this.batches;
    this.gradientsInPrepare = scope(() => this.toy.table.mul(2).requiresGrad);
    return steps;
  }
  override weight(steps: readonly TextNode[]): number {
    return this.options.perToken ? tokensIn(steps) : steps.length;
  }
  override collate(nodes: readonly TextNode[]): Nodes {
    return { nodes, tokens: tokensIn(nodes) };
  }
  override async step({ nodes, tokens }: Nodes): Promise<StepResult> {
    const { stopAt, exceedAt } = this.options;
    const [batch, limit] = [this.batches++, exceedAt?.[this.prepared.length - 1] ?? 0];
    const measured = batch - this.batchesBefore;
    const rule = { value: limit > 0 ? measured / limit : 0, weight: 1, limit: 0.99 };
    const stop = exceedAt === undefined ? batch === stopAt : rule;
    this.order.push(nodes.map((node) => node.probe).join());
    return scope(async () => {
      const table = await this.system.checked.getTesterLogprobs(
        nodes.map((node) => node.context),
        nodes.map((node) => node.probe),
      );
      const credit = tensor(
        nodes.map((node) => this.credit.get(node)!),
        { dtype: "float64" },
      );
      const count = this.options.perToken ? tokens : nodes.length;
      const loss: Tensor = table.sums().mul(credit).sum().div(-count);
      return { loss, logs: {}, stop };
    });
  }
}

const tokensIn = (nodes: readonly TextNode[]) => nodes.reduce((sum, node) => sum + node.probe.length, 0);

async function run(options: TrainingConfigurationOptions, imitation: ImitationOptions = {}) {
  const system = new BigramSystem("float64");
  const algorithm = new Imitation(system, imitation);
  const records: MetricsRecord[] = [];
  const trainer = new Trainer(
    new TrainingConfiguration({
      optimizer: "sgd",
      learningRate: 0.3,
      clipGradNorm: 0,
      trainingSteps: 1,
      numEpisodesPerExperience: 3,
      ...options,
    }),
    new ASTSampler(system, ["x", "y"], { width: 2, depth: 2 }),
    algorithm,
    { clock: () => 0, callbacks: [{ name: "watch", onStep: (record) => void records.push(record) }] },
  );
  await trainer.train();
  const result = { weights: weightsOf(system), records, algorithm, updates: system.updates };
  trainer.dispose();
  system.dispose();
  return result;
}

const expectClose = (a: readonly number[], b: readonly number[], tolerance = 1e-12) => {
  expect(a).toHaveLength(b.length);
  for (const [i, value] of a.entries()) expect(Math.abs(value - b[i]!)).toBeLessThan(tolerance);
};

describe("epochs", () => {
  it("iterate over the same items, each time in another order determined by the seed", async () => {
    // 3 graphs of 2 + 4 turns in batches of 4.
    const { algorithm, records } = await run({ batchSize: 4 }, { epochs: 3 });
    expect(algorithm.order).toHaveLength(3 * 5);
    const epochs = [0, 5, 10].map((start) =>
      algorithm.order
        .slice(start, start + 5)
        .join()
        .split(","),
    );
    expect(epochs[0]).toHaveLength(18);
    for (const epoch of epochs) expect([...epoch].sort()).toEqual([...epochs[0]!].sort());
    expect(new Set(epochs.map(String)).size).toBe(3);
    expect((await run({ batchSize: 4 }, { epochs: 3 })).algorithm.order).toEqual(algorithm.order);
    // The first is the order of a single pass.
    expect((await run({ batchSize: 4 })).algorithm.order).toEqual(algorithm.order.slice(0, 5));
    expect(records[0]).toMatchObject({ items: 18, "updates/done": 15, "updates/epochs": 3 });
  });

  it("prepare the steps once, in the graphs' order and without gradients", async () => {
    const { algorithm } = await run({}, { epochs: 4 });
    expect(algorithm.prepared.map((steps) => steps.length)).toEqual([18]);
    expect(algorithm.gradientsInPrepare).toBe(false);
  });

  it("spread the schedule over all their updates", async () => {
    const rates: number[] = [];
    class Watched extends Trainer<string, string, TextNode, Nodes> {
      protected override async applyUpdate(position: number): Promise<void> {
        rates.push(position);
        await super.applyUpdate(position);
      }
    }
    const system = new BigramSystem("float64");
    const configuration = new TrainingConfiguration({
      trainingSteps: 2,
      batchSize: 6,
      numEpisodesPerExperience: 2,
    });
    const sampler = new ASTSampler(system, ["x"], { width: 2, depth: 2 });
    const trainer = new Watched(configuration, sampler, new Imitation(system, { epochs: 2 }));
    await trainer.train();
    // 12 turns, 2 updates an epoch, 4 a step.
    expectClose(rates, [0.125, 0.375, 0.625, 0.875, 1.125, 1.375, 1.625, 1.875]);
    trainer.dispose();
    system.dispose();
  });

  it("take smaller steps after those that exceeded the limit of a rule, and larger ones again after others", async () => {
    const rates = async (exceedAt: readonly number[]) =>
      (await run({ batchSize: 6, trainingSteps: exceedAt.length }, { exceedAt })).records.map(
        (record) => Number(record["learning_rate"]) / 0.3,
      );
    // The rate of a step is known before the step that it follows ends.
    expectClose(await rates([1, 2, 1, 0, 0]), [1, 2 / 3, 4 / 9, 8 / 27, (8 / 27) * 1.1]);
    expectClose(await rates([1, 0, 0, 0, 0, 0, 0]), [
      1,
      2 / 3,
      (2 / 3) * 1.1,
      (2 / 3) * 1.1 ** 2,
      (2 / 3) * 1.1 ** 3,
      (2 / 3) * 1.1 ** 4,
      1,
    ]);
    expectClose((await rates(Array.from({ length: 12 }, () => 1))).slice(-1), [1 / 64]);
    // A stop without a rule says nothing of the size of updates.
    const stopped = await run({ batchSize: 6, trainingSteps: 3 }, { stopAt: 1 });
    expect(stopped.records.map((record) => record["learning_rate"])).toEqual([0.3, 0.3, 0.3]);
  });

  it("end at the batch that requests it, which is discarded, but not what was accumulated before", async () => {
    // Batches of 6 turns in groups of two: the first group, and the first batch of the second.
    const stopped = await run({ batchSize: 6, gradientAccumulationSteps: 2 }, { epochs: 3, stopAt: 1 });
    expect(stopped.algorithm.order).toHaveLength(2);
    expect(stopped.records[0]).toMatchObject({ "updates/done": 1, "updates/epochs": 1 });
    // The one batch that counted, divided by its own weight and not by that of its group.
    const system = new BigramSystem("float64");
    const sampler = new ASTSampler(system, ["x", "y"], { width: 2, depth: 2 });
    const harness = new Harness(sampler, new Imitation(system), {
      numEpisodesPerExperience: 3,
      batchSize: 6,
    });
    const [first] = await harness.experience();
    const { loss } = await harness.step(first!);
    loss.backward();
    const gradient = Array.from(system.table.grad!.toTypedArray() as Float64Array);
    expectClose(
      stopped.weights,
      gradient.map((value) => -0.3 * value),
    );
    loss.dispose();
    system.dispose();
    const never = await run({ batchSize: 6 }, { stopAt: 0 });
    expect(never.records[0]).toMatchObject({ "updates/done": 0, loss: null });
    expect(new Set(never.weights)).toEqual(new Set([0]));
  });

  it("must be a whole number", async () => {
    await expect(run({}, { epochs: 1.5 })).rejects.toThrow(/Algorithm\.epochs: must be a whole number/u);
    await expect(run({}, { epochs: 0 })).rejects.toThrow(ContractError);
  });
});

describe("weights", () => {
  it("make accumulation exact for a mean over tokens", async () => {
    const large = await run({ batchSize: 1000 }, { perToken: true });
    const cut = await run({ batchSize: 4, gradientAccumulationSteps: 1000 }, { perToken: true });
    expect([large.updates, cut.updates]).toEqual([1, 1]);
    expectClose(cut.weights, large.weights);
    expect(cut.records[0]!.loss).toBeCloseTo(large.records[0]!.loss!, 12);
    // Weighed by turns the same batches would give another gradient: they differ in tokens per turn.
    class ByTurn extends Imitation {
      override weight(steps: readonly TextNode[]): number {
        return steps.length;
      }
    }
    expect(new ByTurn(new BigramSystem()).weight([])).toBe(0);
    const turns = cut.algorithm.order.map((batch) => batch.split(",").join("").length);
    expect(new Set(turns).size).toBeGreaterThan(1);
  });

  it("must be numbers", async () => {
    class Wrong extends Imitation {
      override weight(): number {
        return NaN;
      }
    }
    const system = new BigramSystem();
    const harness = new Harness(new ASTSampler(system, ["x"]), new Wrong(system), {
      numEpisodesPerExperience: 1,
    });
    const experience = await harness.experience();
    expect(() => experience.epoch(0)).toThrow(/Algorithm\.weight: must be a finite number.*got NaN/u);
    system.dispose();
  });
});

describe("credit", () => {
  it("is what algorithms learn from; rewards stay as they were", async () => {
    const system = new BigramSystem();
    const sampler = new ASTSampler(system, ["x", "y"], { width: 3, depth: 2 });
    const credit = backUp<string, string>({ gamma: 1 });
    const harness = new Harness(sampler, new DPO(system), { numEpisodesPerExperience: 2, credit });
    const experience = await harness.experience();
    const plain = await sampler.rolloutMany([0, 1].map((episode) => ({ seed: 0, episode })));
    expect(JSON.stringify(experience.graphs)).toBe(JSON.stringify(plain));
    expect(experience.credits).toEqual(experience.graphs.map((graph) => credit(graph)));
    const learned = [...experience].flatMap(({ contexts, chosen, rejected }) =>
      contexts.map((context, pair) => JSON.stringify([context, chosen[pair], rejected[pair]])),
    );
    const pairsBy = (creditOf: typeof credit) =>
      experience.graphs.flatMap((graph) =>
        new DPO(system)
          .flatten(graph, creditOf(graph))
          .map(({ context, chosen, rejected }) => JSON.stringify([context, chosen, rejected])),
      );
    expect(learned.sort()).toEqual(pairsBy(credit).sort());
    expect(learned).not.toEqual(pairsBy(rewardCredit).sort());
    system.dispose();
  });

  it("reaches the harness through the trainer", () => {
    const system = new BigramSystem();
    const sampler = new ASTSampler(system, ["x"]);
    const credit = backUp<string, string>();
    const trainer = new Trainer(new TrainingConfiguration(), sampler, new DPO(system), { credit });
    expect(trainer.harness.credit).toBe(credit);
    trainer.dispose();
    system.dispose();
  });
});

describe("DPO with several epochs", () => {
  it("evaluates the baseline once per experience, with the same result", async () => {
    const train = async (known: boolean) => {
      const calls: number[] = [];
      class Counting extends BigramSystem {
        override async getBaselineLogprobs(...args: Parameters<BigramSystem["getBaselineLogprobs"]>) {
          calls.push(args[0].length);
          return super.getBaselineLogprobs(...args);
        }
      }
      class Asking extends DPO<string, string> {
        override async prepare(steps: Parameters<DPO<string, string>["prepare"]>[0]) {
          return known ? super.prepare(steps) : steps;
        }
      }
      const system = new Counting("float64");
      const trainer = new Trainer(
        new TrainingConfiguration({
          optimizer: "sgd",
          learningRate: 0.5,
          trainingSteps: 2,
          batchSize: 3,
          numEpisodesPerExperience: 3,
        }),
        new ASTSampler(system, ["x", "y"], { width: 3, depth: 2 }),
        new Asking(system, { epochs: 3 }),
      );
      await trainer.train();
      const result = { weights: weightsOf(system), calls };
      trainer.dispose();
      system.dispose();
      return result;
    };
    const [once, always] = [await train(true), await train(false)];
    expect(once.weights).toEqual(always.weights);
    expect(once.calls).toHaveLength(2);
    expect(always.calls.length).toBeGreaterThan(6);
  });
});

describe("every step of the loop", () => {
  const HARNESS = ["collect", "creditOf", "flatten", "shuffle", "cut", "step"] as const;
  const TRAINER = [
    "makeHarness",
    "runStep",
    "trainStep",
    "collect",
    "update",
    "accumulate",
    "clipGradient",
    "applyUpdate",
    "metrics",
  ] as const;

  /** Counts calls of methods on a prototype's subclass. */
  function counted<T extends abstract new (...args: never[]) => object>(Base: T, names: readonly string[]) {
    const counts: Record<string, number> = {};
    class Counted extends (Base as unknown as new (...args: unknown[]) => object) {}
    for (const name of names) {
      counts[name] = 0;
      const original = (Base.prototype as Record<string, (...args: unknown[]) => unknown>)[name]!;
      Object.defineProperty(Counted.prototype, name, {
        value(this: object, ...args: unknown[]) {
          counts[name]! += 1;
          return original.apply(this, args);
        },
      });
    }
    return { Counted: Counted as unknown as T, counts };
  }

  it("can be overridden, and one that only calls super changes nothing", async () => {
    const harness = counted(Harness, HARNESS);
    const trainer = counted(Trainer, TRAINER);
    const train = async (Kind: typeof Trainer) => {
      const system = new BigramSystem("float64");
      const configuration = new TrainingConfiguration({
        trainingSteps: 2,
        batchSize: 4,
        numEpisodesPerExperience: 2,
      });
      const made = new Kind(configuration, new ASTSampler(system, ["x"], { width: 3 }), new DPO(system));
      await made.train();
      const weights = weightsOf(system);
      made.dispose();
      system.dispose();
      return weights;
    };
    class Own extends (trainer.Counted as typeof Trainer) {
      protected override makeHarness(options: HarnessOptions) {
        trainer.counts["makeHarness"]! += 1;
        return new harness.Counted(this.sampler as never, this.algorithm as never, options) as never;
      }
    }
    expect(await train(Own as never)).toEqual(await train(Trainer));
    for (const [name, count] of Object.entries({ ...harness.counts, ...trainer.counts }))
      expect(count, name).toBeGreaterThan(0);
  });
});
