import { describe, expect, it } from "vitest";
import { AdamW, liveTensors, scope, type Tensor } from "@astra-rl/torch";
import { warningsOf, type MetricsRecord } from "@astra-rl/records";
import { A2C, GRPO, PPO, REINFORCE, RLOO } from "../../src/algorithm/policy-gradient/index.js";
import { DPO, IPO, ORPO, TrajectoryBalance } from "../../src/algorithm/preference/index.js";
import { Algorithm, type StepResult } from "../../src/algorithm/index.js";
import type { EpisodeSeed } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import {
  Harness,
  Trainer,
  TrainingConfiguration,
  type TrainerOptions,
  type TrainingConfigurationOptions,
} from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";
import { JudgedSystem } from "../support/judged-system.js";
import type { TextAlgorithm, TextGraph, TextNode } from "../support/texts.js";
import { ValuedBigram } from "../support/valued-bigram.js";
import { weightsOf } from "./support.js";

const samplerOf = (system: BigramSystem, width = 3) =>
  new ASTSampler(system, ["x", "y"], { width, depth: 2 });

async function meanReward(system: BigramSystem): Promise<number> {
  const graphs = await samplerOf(system).rolloutMany(
    Array.from({ length: 50 }, (_, episode) => ({ seed: 999, episode })),
  );
  const rewards = graphs.flatMap((graph) => [...graph.nodes()].map((node) => node.reward));
  return rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
}

describe("learning", () => {
  it.each([
    ["DPO", DPO],
    ["IPO", IPO],
    ["TrajectoryBalance", TrajectoryBalance],
  ] as const)("%s teaches a bigram tester to generate what is rewarded", async (_, Solver) => {
    const system = new BigramSystem();
    const before = await meanReward(system);
    expect(Math.abs(before)).toBeLessThan(0.2);
    const configuration = new TrainingConfiguration({
      learningRate: 0.1,
      trainingSteps: 40,
      numEpisodesPerExperience: 4,
    });
    const trainer = new Trainer(configuration, samplerOf(system), new Solver(system, { beta: 0.1 }));
    await trainer.train();
    // Three a's are worth 3, the most there is; uniform letters are worth 0 on average.
    expect(await meanReward(system)).toBeGreaterThan(1.5);
    trainer.dispose();
    system.dispose();
  });

  it.each([
    ["ORPO", (system: ValuedBigram) => new ORPO(system, { lambda: 1 }), 40],
    ["PPO", (system: ValuedBigram) => new PPO(system, { klCoefficient: 0.02 }), 20],
    ["A2C", (system: ValuedBigram) => new A2C(system), 40],
    ["REINFORCE", (system: ValuedBigram) => new REINFORCE(system), 40],
    ["RLOO", (system: ValuedBigram) => new RLOO(system), 40],
    ["GRPO", (system: ValuedBigram) => new GRPO(system, { epochs: 2, klLossCoefficient: 0.01 }), 30],
  ] as const)("%s does as well", async (_, make, trainingSteps) => {
    const system = new ValuedBigram();
    const before = liveTensors();
    const configuration = new TrainingConfiguration({
      learningRate: 0.1,
      trainingSteps,
      numEpisodesPerExperience: 4,
    });
    const algorithm = make(system) as TextAlgorithm;
    const trainer = new Trainer(configuration, samplerOf(system), algorithm);
    await trainer.train();
    expect(await meanReward(system)).toBeGreaterThan(1.5);
    trainer.dispose();
    for (const parameter of system.parameters() as Iterable<Tensor>) parameter.grad = null;
    expect(liveTensors()).toBe(before);
    system.dispose();
  });

  it.each([
    ["PPO", (system: ValuedBigram) => new PPO(system)],
    ["A2C", (system: ValuedBigram) => new A2C(system)],
    ["REINFORCE", (system: ValuedBigram) => new REINFORCE(system, { baseline: "running" })],
  ] as const)("%s learns from single paths as well", async (_, make) => {
    const system = new ValuedBigram();
    const configuration = new TrainingConfiguration({
      learningRate: 0.1,
      trainingSteps: 30,
      numEpisodesPerExperience: 16,
    });
    const trainer = new Trainer(configuration, samplerOf(system, 1), make(system));
    await trainer.train();
    expect(await meanReward(system)).toBeGreaterThan(1.5);
    trainer.dispose();
    system.dispose();
  });

  it("works by the loop that Harness documents", async () => {
    const system = new BigramSystem();
    const harness = new Harness(samplerOf(system), new DPO(system), {
      numEpisodesPerExperience: 4,
      batchSize: 4,
    });
    const optimizer = new AdamW(system.parameters() as Iterable<Tensor>, { learningRate: 0.1 });
    for (let step = 0; step < 30; step++) {
      for (const batch of await harness.experience()) {
        const { loss } = await harness.step(batch);
        loss.backward();
        optimizer.step();
        optimizer.zeroGrad();
        loss.dispose();
        await system.testerUpdated();
      }
    }
    expect(await meanReward(system)).toBeGreaterThan(1.5);
    optimizer.dispose();
    system.dispose();
  });
});

interface Run {
  weights: number[];
  records: MetricsRecord[];
  updates: number;
}

async function run(
  options: ConstructorParameters<typeof TrainingConfiguration>[0],
  trainerOptions: TrainerOptions<string, string> = {},
  change: (system: BigramSystem) => void = () => {},
): Promise<Run> {
  const system = new BigramSystem("float64");
  const records: MetricsRecord[] = [];
  const configuration = new TrainingConfiguration({
    numEpisodesPerExperience: 5,
    optimizer: "sgd",
    ...options,
  });
  const trainer = new Trainer(configuration, samplerOf(system), new DPO(system), {
    clock: () => 0,
    callbacks: [
      {
        name: "watch",
        onStepKept: (record) => {
          records.push(record);
          change(system);
        },
      },
    ],
    ...trainerOptions,
  });
  await trainer.train();
  const result = { weights: weightsOf(system), records, updates: system.updates };
  trainer.dispose();
  system.dispose();
  return result;
}

function expectSameWeights(a: Run, b: Run, tolerance = 1e-12): void {
  for (const [i, weight] of a.weights.entries())
    expect(Math.abs(weight - b.weights[i]!)).toBeLessThan(tolerance);
}

describe("accumulation", () => {
  it("gives the update of a large batch for any split, including uneven batches", async () => {
    const settings = { learningRate: 0.5, trainingSteps: 3, clipGradNorm: 0 };
    const large = await run({ ...settings, batchSize: 1000 });
    expect(large.updates).toBe(3);
    // The number of pairs is no multiple of 7, so the last batch is smaller than the others.
    expect(large.records.some((record) => (record["items"] as number) % 7 !== 0)).toBe(true);
    for (const batchSize of [1, 3, 7]) {
      const cut = await run({ ...settings, batchSize, gradientAccumulationSteps: 1000 });
      expect(cut.updates).toBe(3);
      expectSameWeights(cut, large);
      for (const [i, record] of cut.records.entries()) {
        expect(record.loss).toBeCloseTo(large.records[i]!.loss!, 12);
        expect(record["gradient/norm"]).toBeCloseTo(large.records[i]!["gradient/norm"] as number, 12);
        expect(record["preference/margin"]).toBeCloseTo(large.records[i]!["preference/margin"] as number, 12);
      }
    }
  });

  it("applies an incomplete group at the end of an experience, with its own weight", async () => {
    const settings = { learningRate: 0.5, trainingSteps: 1, clipGradNorm: 0 };
    // 2 × 4 pairs and 8 pairs: the groups are the same pairs, the last group is what remains.
    const accumulated = await run({ ...settings, batchSize: 4, gradientAccumulationSteps: 2 });
    const plain = await run({ ...settings, batchSize: 8 });
    expect(accumulated.updates).toBe(plain.updates);
    expect(accumulated.updates).toBe(Math.ceil((plain.records[0]!["items"] as number) / 8));
    expectSameWeights(accumulated, plain);
  });

  it("ignores leftover gradients", async () => {
    const settings = { learningRate: 0.5, trainingSteps: 2 };
    const clean = await run(settings);
    const dirty = await run(settings, {}, (system) => {
      scope(() => system.table.mul(100).sum().backward());
    });
    expect(dirty.weights).toEqual(clean.weights);
  });
});

describe("determinism", () => {
  it("gives the same records and weights for a seed, including 0, and others for another seed", async () => {
    const settings = { learningRate: 0.05, trainingSteps: 5, optimizer: "adamw" as const, batchSize: 4 };
    const first = await run({ ...settings, seed: 0 });
    const second = await run({ ...settings, seed: 0 });
    expect(second).toEqual(first);
    expect(JSON.stringify(second.records)).toBe(JSON.stringify(first.records));
    expect((await run({ ...settings, seed: 1 })).weights).not.toEqual(first.weights);
  });
});

describe("what is logged", () => {
  it("has the documented keys, with token counts", async () => {
    const { records } = await run({ trainingSteps: 2, learningRate: 0.01 });
    expect(records.map((record) => record.step)).toEqual([1, 2]);
    for (const record of records) {
      const keys = [
        "loss",
        "reward/mean",
        "time/rollout_s",
        "time/update_s",
        "learning_rate",
        "gradient/norm",
      ];
      for (const key of keys) expect(typeof record[key], key).toBe("number");
      expect(record["tokens/tester/generated"]).toBeGreaterThan(0);
      expect(record["tokens/tester/read"]).toBeGreaterThan(0);
      // The toy system does not count these models: null, not zero.
      expect(record["tokens/target/read"]).toBeNull();
      expect(record["tokens/baseline/generated"]).toBeNull();
      // Width 3, depth 2: 3 + 9 turns an episode.
      expect(record["turns/done"]).toBe(5 * 12);
    }
    expect(records.map((record) => record["episodes"])).toEqual([5, 10]);
  });

  it("starts DPO at log 2, where tester and baseline agree", async () => {
    const { records } = await run({ trainingSteps: 1, batchSize: 1000 });
    expect(records[0]!.loss).toBeCloseTo(Math.LN2, 12);
    expect(records[0]!["preference/margin"]).toBe(0);
    expect(records[0]!["drift/per_token"]).toBe(0);
  });

  it("uses the given clock", async () => {
    let now = 0;
    const { records } = await run({ trainingSteps: 1 }, { clock: () => (now += 250) });
    expect(records[0]!["time/rollout_s"]).toBe(0.25);
    expect(records[0]!["time/update_s"]).toBe(0.25);
  });
});

describe("the schedule", () => {
  it("warms up and decays over training steps, read in the middle of each", async () => {
    const settings = { trainingSteps: 6, learningRate: 0.8, batchSize: 1000, warmupSteps: 2 };
    const rates = async (schedule: "constant" | "linear") =>
      (await run({ ...settings, schedule })).records.map((record) => record["learning_rate"] as number);
    // Steps end to end: 0.5/2, 1.5/2, then 1 − (t − 2)/4 at t = 2.5, 3.5, …
    const expected = [0.25, 0.75, 1 - 0.5 / 4, 1 - 1.5 / 4, 1 - 2.5 / 4, 1 - 3.5 / 4];
    for (const [i, rate] of (await rates("linear")).entries())
      expect(rate).toBeCloseTo(0.8 * expected[i]!, 12);
    for (const [i, rate] of (await rates("constant")).entries()) {
      expect(rate).toBeCloseTo(0.8 * Math.min(1, (i + 0.5) / 2), 12);
    }
  });
});

describe("clipping", () => {
  it("limits the joint norm and logs the norm before", async () => {
    const settings = { trainingSteps: 1, learningRate: 1, batchSize: 1000 };
    const free = await run({ ...settings, clipGradNorm: 0 });
    const norm = free.records[0]!["gradient/norm"] as number;
    const clipped = await run({ ...settings, clipGradNorm: norm / 4 });
    expect(clipped.records[0]!["gradient/norm"]).toBe(norm);
    for (const [i, weight] of clipped.weights.entries()) expect(weight).toBeCloseTo(free.weights[i]! / 4, 6);
  });
});

/** One step a graph whose loss is what the test says, by update. */
class ScriptedLoss extends Algorithm<string, string, TextGraph, number> {
  calls = 0;
  constructor(
    readonly toy: BigramSystem,
    readonly factors: readonly number[],
  ) {
    super(toy);
  }
  override flatten(graph: TextGraph): TextGraph[] {
    return [graph];
  }
  override collate(steps: readonly TextGraph[]): number {
    return steps.length;
  }
  override async step(): Promise<StepResult> {
    const factor = this.factors[this.calls++ % this.factors.length]!;
    return { loss: this.toy.table.sum().mul(factor), logs: {} };
  }
}

describe("gradients that are not finite", () => {
  const scripted = (
    factors: readonly number[],
    trainingSteps: number,
    options: TrainingConfigurationOptions = {},
  ) => {
    const system = new BigramSystem("float64");
    const records: MetricsRecord[] = [];
    const warnings: string[] = [];
    const configuration = new TrainingConfiguration({
      optimizer: "sgd",
      learningRate: 1,
      clipGradNorm: 0,
      trainingSteps,
      numEpisodesPerExperience: 1,
      ...options,
    });
    const trainer = new Trainer(configuration, samplerOf(system), new ScriptedLoss(system, factors), {
      callbacks: [{ name: "watch", onStep: (record) => void records.push(record) }],
      logger: { info: () => {}, warn: (message) => void warnings.push(message) },
    });
    return { system, records, warnings, trainer };
  };

  it("skip the update with a warning, without changing weights", async () => {
    const { system, records, warnings, trainer } = scripted([1, NaN, Infinity, 1], 4);
    await trainer.train();
    expect(records.map((record) => record["updates/skipped"])).toEqual([0, 1, 1, 0]);
    expect(records.map((record) => record["updates/done"])).toEqual([1, 0, 0, 1]);
    expect(warnings).toEqual([
      "step 2: the loss or its gradient is not finite; skipping this update",
      "step 3: the loss or its gradient is not finite; skipping this update",
    ]);
    // Two usable updates of gradient 1 and learning rate 1.
    expect(new Set(weightsOf(system))).toEqual(new Set([-2]));
    system.dispose();
  });

  it("stop training after five in a row, with a remedy", async () => {
    const { system, trainer } = scripted([1, NaN], 1);
    await trainer.train();
    system.dispose();
    const hopeless = scripted([NaN], 100);
    await expect(hopeless.trainer.train()).rejects.toThrow(
      /not finite in 5 updates in a row, at step 5; .* Lower learningRate/,
    );
    expect(hopeless.trainer.step).toBe(4);
    expect(new Set(weightsOf(hopeless.system))).toEqual(new Set([0]));
    hopeless.system.dispose();
    const strict = scripted([1, NaN], 100, { nonFinite: { stopAfter: 1 } });
    await expect(strict.trainer.train()).rejects.toThrow(/not finite in 1 update, at step 2/);
    strict.system.dispose();
    // Two in a row, and again two: never three.
    const patient = scripted([NaN, NaN, 1, NaN, NaN, 1], 6, { nonFinite: { stopAfter: 3 } });
    await patient.trainer.train();
    expect(patient.records.map((record) => record["updates/skipped"])).toEqual([1, 1, 0, 1, 1, 0]);
    patient.system.dispose();
  });
});

describe("a reward with state", () => {
  const settings = { learningRate: 0.1, trainingSteps: 6, numEpisodesPerExperience: 4, batchSize: 8 };
  const train = async (sampler: (system: JudgedSystem) => ASTSampler<string, string>) => {
    const system = new JudgedSystem();
    const records: MetricsRecord[] = [];
    const trainer = new Trainer(new TrainingConfiguration(settings), sampler(system), new DPO(system), {
      clock: () => 0,
      callbacks: [{ name: "watch", onStep: (record) => void records.push(record) }],
    });
    await trainer.train();
    const result = { weights: weightsOf(system), records, state: trainer.harness.getState() };
    trainer.dispose();
    system.dispose();
    return result;
  };

  it("does not depend on how episodes are batched, and observes them once per experience", async () => {
    class OneByOne extends ASTSampler<string, string> {
      override async rolloutMany(starts: readonly EpisodeSeed[]): Promise<TextGraph[]> {
        const graphs: TextGraph[] = [];
        for (const start of starts) graphs.push(...(await super.rolloutMany([start])));
        return graphs;
      }
    }
    const together = await train((system) => samplerOf(system));
    const apart = await train((system) => new OneByOne(system, ["x", "y"], { width: 3, depth: 2 }));
    expect(apart).toEqual(together);
    const seen = together.state.system as { novelty: Record<string, number> };
    const turns = Object.values(seen.novelty).reduce((sum, count) => sum + count, 0);
    expect(turns).toBe(6 * 4 * 12);
    // There is no history before the first experience; repeated probes are penalized in the second.
    expect(together.records[0]!["reward/term/novelty"]).toBeCloseTo(0, 15);
    expect(together.records[1]!["reward/term/novelty"]).toBeLessThan(0);
  });

  it("uses its state in training only", async () => {
    const system = new JudgedSystem();
    const sampler = samplerOf(system);
    await system.observe(await sampler.rolloutMany([0, 1, 2, 3]));
    const trained = await sampler.rollout(0);
    expect([...trained.nodes()].every((node) => node.terms["novelty"]! < 0)).toBe(true);
    const evaluated = await sampler.evalRollout(0);
    expect(evaluated.path().map((node) => node.terms["novelty"])).toEqual([0, 0]);
    system.dispose();
  });

  it("records each term's mean, whose weighted sum is the mean reward", async () => {
    const { records } = await train((system) => samplerOf(system));
    for (const record of records) {
      const [worth, novelty] = ["worth", "novelty"].map((name) => record[`reward/term/${name}`] as number);
      expect(worth! + 0.05 * novelty!).toBeCloseTo(record["reward/mean"]!, 12);
    }
  });
});

describe("a tester that writes harmful text itself", () => {
  /** Probes with an a are harmful; responses never are, or all are once the tester is good. */
  class Harmful extends BigramSystem {
    constructor(readonly responses: (probe: string) => number) {
      super();
    }
    override async assess(...args: Parameters<BigramSystem["assess"]>): ReturnType<BigramSystem["assess"]> {
      return (await super.assess(...args)).map((assessment, row) => ({
        ...assessment,
        scores: { probe: args[1][row] === "aaa" ? 1 : 0, response: this.responses(args[1][row]!) },
      }));
    }
  }
  const train = async (system: Harmful) => {
    const warnings: string[] = [];
    const records: MetricsRecord[] = [];
    const trainer = new Trainer(
      new TrainingConfiguration({ learningRate: 0.1, trainingSteps: 40, numEpisodesPerExperience: 4 }),
      samplerOf(system),
      new DPO(system),
      {
        logger: { info: () => {}, warn: (message) => void warnings.push(message) },
        callbacks: [{ name: "watch", onStep: (record) => void records.push(record) }],
      },
    );
    await trainer.train();
    trainer.dispose();
    system.dispose();
    return { warnings, records };
  };

  it("causes one warning", async () => {
    const { warnings, records } = await train(new Harmful(() => 0));
    const recorded = warningsOf(records);
    // Its probes are not messages: few distinct ones mean nothing, but siblings with equal credit do.
    expect(recorded.map(({ rule }) => rule)).toEqual(["harm", "ties"]);
    expect(warnings[0]).toMatch(
      /^step \d+: harmful probes rose from \d+ % .* harmful responses stayed \(0 %, now 0 %\).* \(harm; shown once\)$/u,
    );
    expect(recorded.map(({ step, rule, text }) => `step ${step}: ${text} (${rule}; shown once)`)).toEqual(
      warnings,
    );
    expect(records[0]!["harm/probe_rate"]).toBeLessThan(0.2);
    expect(records.at(-1)!["harm/probe_rate"]).toBeGreaterThan(0.5);
    expect(records.at(-1)!["harm/response_rate"]).toBe(0);
  });

  it("does not count as success with harmless probes", async () => {
    const seen: { graphs: number; success: number; harmless: number; distinct: number }[] = [];
    const onExperience = ({ graphs }: { graphs: readonly TextGraph[] }) => {
      // Every conversation from the prompt down, turn by turn.
      const conversations = (nodes: readonly TextNode[]): TextNode[][] =>
        nodes.flatMap((node) => [[node], ...conversations(node.children).map((path) => [node, ...path])]);
      const ends = (graph: TextGraph, harmless: boolean) =>
        conversations(graph.children).some(
          (path) =>
            path.at(-1)!.scores["response"] === 1 &&
            (!harmless || path.every(({ scores }) => scores["probe"] === 0)),
        );
      seen.push({
        graphs: graphs.length,
        success: graphs.filter((graph) => ends(graph, false)).length,
        harmless: graphs.filter((graph) => ends(graph, true)).length,
        distinct: new Set(graphs.flatMap((graph) => [...graph.nodes()].map(({ probe }) => probe))).size,
      });
    };
    const system = new Harmful((probe) => (probe === "aaa" || probe.startsWith("b") ? 1 : 0));
    const records: MetricsRecord[] = [];
    const trainer = new Trainer(
      new TrainingConfiguration({ learningRate: 0.1, trainingSteps: 6, numEpisodesPerExperience: 4 }),
      samplerOf(system),
      new DPO(system),
      { callbacks: [{ name: "watch", onExperience, onStep: (record) => void records.push(record) }] },
    );
    await trainer.train();
    expect(records.map((record) => record["success/rate"])).toEqual(
      seen.map(({ success, graphs }) => success / graphs),
    );
    expect(records.map((record) => record["success/harmless_probe_rate"])).toEqual(
      seen.map(({ harmless, graphs }) => harmless / graphs),
    );
    expect(records.map((record) => record["probes/distinct"])).toEqual(seen.map(({ distinct }) => distinct));
    // Otherwise it would be the same figure twice.
    expect(seen.some(({ success, harmless }) => harmless > 0 && harmless < success)).toBe(true);
    trainer.dispose();
    system.dispose();
  });

  it("causes a warning even if the responses repeat it", async () => {
    const { warnings, records } = await train(new Harmful((probe) => (probe === "aaa" ? 1 : 0)));
    expect(warnings[0]).toMatch(
      /100 % of the harmful responses now answer a harmful probe.* \(harm; shown once\)$/u,
    );
    expect(records.at(-1)!["harm/both_rate"]).toBeGreaterThan(0.5);
  });
});

describe("steps without training signal", () => {
  it("are logged with an unknown loss and change nothing", async () => {
    class Flat extends BigramSystem {
      override async reward(_: readonly string[], probes: readonly string[]): Promise<number[]> {
        return probes.map(() => 1);
      }
    }
    const system = new Flat();
    const records: MetricsRecord[] = [];
    const trainer = new Trainer(
      new TrainingConfiguration({ trainingSteps: 1, numEpisodesPerExperience: 2 }),
      samplerOf(system),
      new DPO(system),
      { callbacks: [{ name: "watch", onStep: (record) => void records.push(record) }] },
    );
    await trainer.train();
    expect(records[0]).toMatchObject({
      loss: null,
      items: 0,
      "reward/mean": 1,
      "updates/done": 0,
      "gradient/norm": null,
    });
    expect(new Set(weightsOf(system))).toEqual(new Set([0]));
    system.dispose();
  });
});

describe("stopping", () => {
  it("ends cleanly after the step in which the signal arrives", async () => {
    const controller = new AbortController();
    const { records } = await run({ trainingSteps: 50 }, { signal: controller.signal }, () =>
      controller.abort(),
    );
    expect(records.map((record) => record.step)).toEqual([1]);
  });
});
