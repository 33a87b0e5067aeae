import { describe, expect, it } from "vitest";
import { liveTensors, noGrad, scope, tensor, type Tensor } from "@astra-rl/torch";
import type { Failure } from "@astra-rl/records";
import { breaking } from "../../../base/test/support/breaking.js";
import {
  A2C,
  GRPO,
  PPO,
  REINFORCE,
  RLOO,
  type PolicyBranch,
  type PolicyGradient,
  type PPOOptions,
} from "../../src/algorithm/policy-gradient/index.js";
import { rewardCredit, backUp } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { ASTSystem } from "../../src/system/index.js";
import { Harness, Trainer, TrainingConfiguration } from "../../src/training/index.js";
import { algorithmContract } from "../../../scorers/test/contract/algorithm.contract.js";
import { BigramSystem } from "../support/bigram-system.js";
import { TextGraph, TextNode, type TextSystem } from "../support/texts.js";
import { ValuedBigram } from "../support/valued-bigram.js";

const nobody = {} as TextSystem;
const makers = {
  PPO: (system: TextSystem) => new PPO(system),
  A2C: (system: TextSystem) => new A2C(system),
  REINFORCE: (system: TextSystem) => new REINFORCE(system),
  RLOO: (system: TextSystem) => new RLOO(system),
  GRPO: (system: TextSystem) => new GRPO(system),
};
for (const [name, make] of Object.entries(makers)) {
  const nodesOf = (branch: PolicyBranch<string, string>) => branch.turns.map(({ node }) => node);
  algorithmContract(name, { create: () => make(nobody), nodesOf });
}

const down: Failure = { stage: "scorer", message: "down", attempts: 3 };
const turn = (context: string, probe: string, reward: number, children: TextNode[] = []) =>
  new TextNode({
    context,
    probe,
    response: "",
    reward,
    children,
    failure: Number.isNaN(reward) ? down : null,
  });

/** Two siblings, one of which has children. */
const tree = () =>
  new TextGraph({
    context: "x",
    children: [turn("x", "aa.", 2, [turn("xaa.", "b", -1), turn("xaa.", "ac", 1)]), turn("x", "c.", 0.5)],
  });

/** Each of two siblings has children. */
const full = () =>
  new TextGraph({
    context: "x",
    children: [
      turn("x", "aa.", 2, [turn("xaa.", "b", -1), turn("xaa.", "ac", 1)]),
      turn("x", "c.", 0.5, [turn("xc.", "a", 0), turn("xc.", "cb", 3)]),
    ],
  });

/** A tester that differs from its baseline and a trained critic, in float64. */
function system(): ValuedBigram {
  const toy = new ValuedBigram("float64");
  const fill = (parameter: Tensor, phase: number) =>
    noGrad(() =>
      scope(() => {
        const values = Array.from({ length: parameter.numel() }, (_, i) => Math.sin(3 * i + phase));
        parameter.copy_(tensor(values, { dtype: "float64", shape: parameter.shape }));
      }),
    );
  fill(toy.table, 0);
  fill(toy.critic, 1);
  return toy;
}

/** Changes the tester, as an update would. */
const move = (toy: ValuedBigram) =>
  noGrad(() =>
    scope(() => {
      const steps = Array.from({ length: 20 }, (_, i) => 0.6 * Math.cos(5 * i));
      toy.table.add_(tensor(steps, { dtype: "float64", shape: [5, 4] }));
      toy.critic.add_(0.3);
    }),
  );

async function prepared(algorithm: PolicyGradient<string, string>, graph = tree()) {
  const branches = await noGrad(() => algorithm.prepare(algorithm.flatten(graph, rewardCredit(graph))));
  return { branches, turns: branches.flatMap((branch) => branch.turns.map((one) => one.prepared!)) };
}

const LETTERS = "abc.";
const logits = (toy: BigramSystem) => toy.table.detach().toArray() as number[][];
/** log P of each letter by plain arithmetic over the table of logits. */
function logprobs(table: readonly number[][], text: string): number[] {
  return Array.from(text, (letter, at) => {
    const row = table[at === 0 ? 4 : LETTERS.indexOf(text[at - 1]!)]!;
    return row[LETTERS.indexOf(letter)]! - Math.log(row.reduce((sum, logit) => sum + Math.exp(logit), 0));
  });
}
const values = (toy: ValuedBigram, text: string) => {
  const critic = toy.critic.detach().toArray() as number[];
  return Array.from(text, (_, at) => critic[at === 0 ? 4 : LETTERS.indexOf(text[at - 1]!)]!);
};
const PROBES = ["aa.", "c.", "b", "ac"];
const expectRows = (rows: readonly (readonly number[])[], expected: readonly (readonly number[])[]) => {
  expect(rows.map((row) => row.length)).toEqual(expected.map((row) => row.length));
  rows.flat().forEach((value, index) => expect(value).toBeCloseTo(expected.flat()[index]!, 10));
};
const sum = (numbers: readonly number[]) => numbers.reduce((total, value) => total + value, 0);

describe("prepare", () => {
  it("computes log π_old, values and the resulting advantages, all before the first update", async () => {
    const toy = system();
    const ppo = new PPO(toy, { klCoefficient: 0.1, normalizeAdvantages: false, gamma: 0.9, gaeLambda: 0.5 });
    const { turns } = await prepared(ppo);
    const table = logits(toy);
    expectRows(
      turns.map(({ old }) => old),
      PROBES.map((probe) => logprobs(table, probe)),
    );
    expectRows(
      turns.map((one) => one.values!),
      PROBES.map((probe) => values(toy, probe)),
    );
    // Backwards by hand: a single path of tokens below "aa.", two branches of it averaged.
    const uniform = Math.log(0.25);
    const rewards = PROBES.map((probe, index) => {
      const row = logprobs(table, probe).map((logprob) => -0.1 * (logprob - uniform));
      row[row.length - 1]! += [2, 0.5, -1, 1][index]!;
      return row;
    });
    const chain = (index: number, value: number, advantage: number) => {
      const known = values(toy, PROBES[index]!);
      const row: number[] = [];
      for (let at = known.length - 1; at >= 0; at--) {
        advantage = rewards[index]![at]! + 0.9 * value - known[at]! + 0.45 * advantage;
        value = known[at]!;
        row.unshift(advantage);
      }
      return row;
    };
    const [b, ac] = [chain(2, 0, 0), chain(3, 0, 0)];
    const start = values(toy, "b")[0]!;
    const raw = [chain(0, start, (b[0]! + ac[0]!) / 2), chain(1, 0, 0), b, ac];
    // The two first turns and the two after one of them, each less the mean of their means over tokens.
    const means = raw.map((row) => sum(row) / row.length);
    const expected = raw.map((row, index) => {
      const first = index < 2 ? 0 : 2;
      return row.map((value) => value - (means[first]! + means[first + 1]!) / 2);
    });
    expectRows(
      turns.map(({ advantages }) => advantages),
      expected,
    );
    expectRows(
      turns.map((one) => one.returns!),
      expected.map((row, index) => row.map((advantage, at) => advantage + values(toy, PROBES[index]!)[at]!)),
    );
    // Σ over probes of log π − log ref, divided by their number.
    const divergence = sum(PROBES.flatMap((probe) => logprobs(table, probe)).map((x) => x - uniform)) / 4;
    expect(ppo.graphMetrics()["kl/baseline"]).toBeCloseTo(divergence, 10);
    expect(ppo.graphMetrics()["kl/coefficient"]).toBe(0.1);
    toy.dispose();
  });

  it("normalizes over all tokens only, if configured", async () => {
    const toy = system();
    const raw = (await prepared(new PPO(toy))).turns.flatMap((t) => t.advantages);
    const { turns } = await prepared(new PPO(toy, { normalizeAdvantages: true }));
    const mean = sum(raw) / raw.length;
    const std = Math.sqrt(sum(raw.map((value) => (value - mean) ** 2)) / raw.length);
    expect(raw).toHaveLength(3 + 2 + 1 + 2);
    turns
      .flatMap((t) => t.advantages)
      .forEach((value, at) => expect(value).toBeCloseTo((raw[at]! - mean) / std, 6));
    // Values are trained on returns, not on normalized advantages.
    const plain = (await prepared(new PPO(toy))).turns;
    expect(turns.map((t) => t.returns)).toEqual(plain.map((t) => t.returns));
    toy.dispose();
  });

  it("is invariant to a constant cost per turn, as are the targets of values", async () => {
    const toy = system();
    noGrad(() => toy.critic.zero_());
    const graph = full();
    const withCost = async (cost: number) => {
      const credit = new Map([...graph.nodes()].map((node, index) => [node, (index % 3) - cost]));
      const ppo = new PPO(toy);
      const branches = await noGrad(() => ppo.prepare(ppo.flatten(graph, credit)));
      return branches.flatMap(({ turns }) => turns.map(({ prepared }) => prepared!));
    };
    const [free, dear] = [await withCost(0), await withCost(5)];
    expectRows(
      dear.map(({ advantages }) => advantages),
      free.map(({ advantages }) => advantages),
    );
    expectRows(
      dear.map(({ returns }) => returns!),
      free.map(({ returns }) => returns!),
    );
    expect(Math.max(...free.flatMap(({ advantages }) => advantages.map(Math.abs)))).toBeGreaterThan(0.1);
    toy.dispose();
  });

  it("gives zero advantages without rewards, for any KL to the baseline", async () => {
    const toy = system();
    noGrad(() => toy.critic.zero_());
    const graph = tree();
    const nothing = new Map([...graph.nodes()].map((node) => [node, 0]));
    const spread = async (algorithm: PolicyGradient<string, string>) => {
      await noGrad(() => algorithm.prepare(algorithm.flatten(graph, nothing)));
      return algorithm.graphMetrics()["advantage/std"]!;
    };
    const defaults = [new PPO(toy), new A2C(toy), new REINFORCE(toy), new RLOO(toy), new GRPO(toy)];
    for (const algorithm of defaults) expect(await spread(algorithm), algorithm.name).toBe(0);
    // In the reward it is noise of the sampled tokens.
    expect(await spread(new PPO(toy, { klCoefficient: 0.05 }))).toBeGreaterThan(0.01);
    toy.dispose();
  });

  it("compares siblings by credit minus the KL penalty", async () => {
    const toy = system();
    const { turns } = await prepared(new RLOO(toy, { klCoefficient: 0.5 }));
    const worth = PROBES.map((probe, index) => {
      const divergence = sum(logprobs(logits(toy), probe).map((x) => x - Math.log(0.25)));
      return [2, 0.5, -1, 1][index]! - 0.5 * divergence;
    });
    const [a, b] = [worth[0]! - worth[1]!, worth[2]! - worth[3]!];
    expectRows(
      turns.map(({ advantages }) => advantages),
      [[a, a, a], [-a, -a], [b], [-b, -b]],
    );
    toy.dispose();
  });

  it("uses recorded log-probabilities if configured and available, and logs their mismatch", async () => {
    class Recording extends ValuedBigram {
      override getRecordedLogprobs(_: readonly string[], continuations: readonly string[]) {
        const table = logits(this);
        return continuations.map((text) =>
          text === "b" ? null : logprobs(table, text).map((x) => x - 0.25),
        );
      }
    }
    const toy = new Recording("float64");
    const exact = PROBES.map((text) => logprobs(logits(toy), text));
    const off = exact.map((row, index) => (PROBES[index] === "b" ? row : row.map((x) => x - 0.25)));
    const grpo = new GRPO(toy, { oldLogprobs: "recorded" });
    expectRows(
      (await prepared(grpo)).turns.map(({ old }) => old),
      off,
    );
    const ppo = new PPO(toy);
    expectRows(
      (await prepared(ppo)).turns.map(({ old }) => old),
      exact,
    );
    expect(ppo.graphMetrics()["policy/rollout_mismatch"]).toBeCloseTo(0.25, 10);
    toy.dispose();
  });

  it("runs no forward pass if all needed values are recorded", async () => {
    let reads = 0;
    class Recording extends BigramSystem {
      override getRecordedLogprobs(_: readonly string[], continuations: readonly string[]) {
        return continuations.map((text) => Array.from(text, () => -1));
      }
      override getTesterLogprobs(...args: Parameters<BigramSystem["getTesterLogprobs"]>) {
        reads += 1;
        return super.getTesterLogprobs(...args);
      }
    }
    const toy = new Recording();
    await prepared(new RLOO(toy));
    expect(reads).toBe(0);
    await prepared(new RLOO(toy, { klCoefficient: 0.1 }));
    await prepared(new GRPO(toy));
    expect(reads).toBe(2);
    toy.dispose();
  });
});

describe("the step of a policy gradient", () => {
  it("has the loss and the logs computed by hand", async () => {
    const toy = system();
    const options: PPOOptions = {
      clipRange: 0.1,
      clipRangeHigher: 0.3,
      valueCoefficient: 0.7,
      valueClipRange: 0.2,
      entropyCoefficient: 0.05,
    };
    const ppo = new PPO(toy, options);
    const { branches, turns } = await prepared(ppo);
    move(toy);
    const table = logits(toy);
    const tokens = PROBES.flatMap((probe, index) => {
      const { old, advantages, values: before, returns } = turns[index]!;
      const now = logprobs(table, probe);
      const known = values(toy, probe);
      return now.map((logprob, at) => {
        const ratio = Math.exp(logprob - old[at]!);
        const clipped = Math.min(1.3, Math.max(0.9, ratio));
        const moved = before![at]! + Math.min(0.2, Math.max(-0.2, known[at]! - before![at]!));
        const row = table[at === 0 ? 4 : LETTERS.indexOf(probe[at - 1]!)]!;
        const total = sum(row.map(Math.exp));
        return {
          policy: -Math.min(ratio * advantages[at]!, clipped * advantages[at]!),
          value: Math.max((known[at]! - returns![at]!) ** 2, (moved - returns![at]!) ** 2),
          entropy: -sum(row.map((logit) => (Math.exp(logit) / total) * (logit - Math.log(total)))),
          kl: ratio - 1 - Math.log(ratio),
          beyond: ratio < 0.9 || ratio > 1.3 ? 1 : 0,
          nll: -logprob,
          // To a baseline that finds all four letters alike.
          drift: 0.5 * (logprob - Math.log(0.25)) ** 2,
        };
      });
    });
    const mean = (key: keyof (typeof tokens)[number]) =>
      sum(tokens.map((token) => token[key])) / tokens.length;
    const { loss, logs, stop } = await ppo.step(ppo.collate(branches));
    expect(loss.item()).toBeCloseTo(
      mean("policy") + 0.7 * mean("value") - 0.05 * mean("entropy") + 0.02 * mean("drift"),
      10,
    );
    expect(logs["kl/loss"]).toBeCloseTo(mean("drift"), 10);
    expect(logs["policy/loss"]).toBeCloseTo(mean("policy"), 10);
    expect(logs["value/loss"]).toBeCloseTo(mean("value"), 10);
    expect(logs["policy/entropy"]).toBeCloseTo(mean("entropy"), 10);
    expect(logs["policy/kl_old"]).toBeCloseTo(mean("kl"), 10);
    expect(logs["policy/nll"]).toBeCloseTo(mean("nll"), 10);
    expect(logs["policy/clip_fraction"]).toBeCloseTo(mean("beyond"), 10);
    expect(mean("beyond")).toBeGreaterThan(0);
    expect(mean("beyond")).toBeLessThan(1);
    expect(stop).toBeUndefined();
    loss.dispose();
    toy.dispose();
  });

  it("of RLOO clips ratios if there are several epochs, and begins with the same gradient", async () => {
    const toy = system();
    const gradient = async (epochs: number) => {
      const rloo = new RLOO(toy, { epochs });
      const { branches, turns } = await prepared(rloo);
      const { loss } = await rloo.step(rloo.collate(branches));
      loss.backward();
      const rows = toy.table.grad!.toArray() as number[][];
      toy.table.grad = null;
      loss.dispose();
      return { rloo, branches, turns, rows };
    };
    const [once, twice] = [await gradient(1), await gradient(2)];
    expect(once.rows.flat().some((value) => Math.abs(value) > 0.01)).toBe(true);
    expectRows(twice.rows, once.rows);

    move(toy);
    const { rloo, branches, turns } = twice;
    const tokens = PROBES.flatMap((probe, index) => {
      const { old, advantages } = turns[index]!;
      return logprobs(logits(toy), probe).map((logprob, at) => {
        const ratio = Math.exp(logprob - old[at]!);
        const clipped = Math.min(1.2, Math.max(0.8, ratio));
        return -Math.min(ratio * advantages[at]!, clipped * advantages[at]!);
      });
    });
    const { loss, logs } = await rloo.step(rloo.collate(branches));
    expect(logs["policy/loss"]).toBeCloseTo(sum(tokens) / tokens.length, 10);
    expect(logs["policy/clip_fraction"]).toBeGreaterThan(0);
    loss.dispose();
    toy.dispose();
  });

  it("starts with ratios of 1, for any distance from the baseline, also in float32", async () => {
    for (const dtype of ["float32", "float64"] as const) {
      const toy = new ValuedBigram(dtype);
      noGrad(() => toy.table.copy_(toy.table.add(1).cumsum(0)));
      const ppo = new PPO(toy, { normalizeAdvantages: false });
      const { branches, turns } = await prepared(ppo);
      const advantages = turns.flatMap((one) => one.advantages);
      const { loss, logs } = await ppo.step(ppo.collate(branches));
      expect(logs["policy/kl_old"]).toBe(0);
      expect(logs["policy/clip_fraction"]).toBe(0);
      expect(logs["policy/loss"]).toBeCloseTo(-sum(advantages) / advantages.length, 6);
      loss.dispose();
      toy.dispose();
    }
  });

  it("sends the policy's gradient into the tester only, and that of the values into the critic only", async () => {
    const toy = system();
    const ppo = new PPO(toy, { valueCoefficient: 0, klCoefficient: 0 });
    const batch = ppo.collate((await prepared(ppo)).branches);
    const before = liveTensors();
    const { loss } = await ppo.step(batch);
    expect(liveTensors()).toBe(before + 1);
    loss.backward();
    loss.dispose();
    // An advantage that is not detached from the critic would train it here.
    expect(new Set(toy.critic.grad!.toTypedArray() as Float32Array)).toEqual(new Set([0]));
    expect(sum(Array.from(toy.table.grad!.toTypedArray() as Float64Array, Math.abs))).toBeGreaterThan(0.1);
    expect(toy.baseline.grad).toBeNull();
    toy.table.grad = null;
    toy.critic.grad = null;
    expect(liveTensors()).toBe(before);
    toy.dispose();
  });

  it.each([
    ["token", (lengths: number[]) => lengths],
    ["sequence", (lengths: number[]) => lengths.map(() => 1)],
    ["none", (lengths: number[]) => lengths.map(() => 1)],
  ] as const)("does not depend on padding (%s)", async (normalizer, weigh) => {
    const toy = system();
    const grpo = new GRPO(toy, { normalizer, klLossCoefficient: 0.3, entropyCoefficient: 0.1 });
    const { branches } = await prepared(grpo);
    move(toy);
    const single = branches.flatMap(({ turns }) => turns.map((one) => ({ turns: [one] })));
    const losses: number[] = [];
    for (const branch of single) {
      const { loss } = await grpo.step(grpo.collate([branch]));
      losses.push(loss.item());
      loss.dispose();
    }
    const weights = weigh(PROBES.map((probe) => probe.length));
    expect(single.map((branch) => grpo.weight([branch]))).toEqual(weights);
    expect(grpo.weight(branches)).toBe(sum(weights));
    const { loss } = await grpo.step(grpo.collate(branches));
    expect(loss.item()).toBeCloseTo(
      sum(losses.map((value, index) => value * weights[index]!)) / sum(weights),
      12,
    );
    loss.dispose();
    toy.dispose();
  });

  it("requests a stop if the KL to the policy before the updates exceeds its limit", async () => {
    const toy = system();
    const ppo = new PPO(toy, { targetKL: 0.01 });
    const batch = ppo.collate((await prepared(ppo)).branches);
    const first = await ppo.step(batch);
    expect(first.stop).toEqual({ value: 0, weight: 8, limit: 0.01 });
    move(toy);
    const second = await ppo.step(batch);
    expect(second.logs["policy/kl_old"]).toBeGreaterThan(0.01);
    expect(second.stop).toEqual({ value: second.logs["policy/kl_old"], weight: 8, limit: 0.01 });
    first.loss.dispose();
    second.loss.dispose();
    toy.dispose();
  });

  it("refuses unprepared and empty batches, and an unavailable entropy", async () => {
    const toy = new BigramSystem();
    const rloo = new RLOO(toy, { entropyCoefficient: 0.1 });
    const graph = tree();
    const raw = rloo.flatten(graph, rewardCredit(graph));
    await expect(rloo.step(rloo.collate(raw))).rejects.toThrow(breaking("missing-advantages", "RLOO.step"));
    await expect(rloo.step(rloo.collate([]))).rejects.toThrow(breaking("empty-batch", "RLOO.step"));
    const batch = rloo.collate((await prepared(rloo)).branches);
    await expect(rloo.step(batch)).rejects.toThrow(breaking("no-entropy", "BigramSystem"));
    toy.dispose();
  });
});

describe("the turns to learn from", () => {
  const flatten = (algorithm: PolicyGradient<string, string>, graph: TextGraph) =>
    algorithm.flatten(graph, rewardCredit(graph)).map(({ turns }) => turns.map(({ node }) => node.probe));

  it("are all turns that did not fail, branch by branch, including those below a failed one", () => {
    const failed = turn("x", "f", NaN, [turn("xf", "g", 1), turn("xf", "h", 2)]);
    const graph = new TextGraph({ context: "x", children: [failed, turn("x", "a", 1), turn("x", "b", 2)] });
    expect(flatten(new PPO(nobody), graph)).toEqual([
      ["a", "b"],
      ["g", "h"],
    ]);
  });

  it("include single paths, except if siblings are compared", () => {
    const path = new TextGraph({ context: "x", children: [turn("x", "a", 1, [turn("xa", "b", 2)])] });
    for (const make of [makers.PPO, makers.A2C, makers.REINFORCE]) {
      expect(flatten(make(nobody), path)).toEqual([["a"], ["b"]]);
    }
    expect(flatten(new RLOO(nobody), path)).toEqual([]);
  });

  it("stay together by branch, in any order", async () => {
    const toy = new ValuedBigram();
    const sampler = new ASTSampler(toy, ["x", "y"], { width: 3, depth: 2 });
    const harness = new Harness(sampler, new PPO(toy, { epochs: 2 }), {
      numEpisodesPerExperience: 3,
      batchSize: 5,
    });
    const experience = await harness.experience();
    expect(experience.size).toBe(3 * 4);
    for (const { nodes } of experience) {
      for (let start = 0; start < nodes.length; start += 3) {
        expect(new Set(nodes.slice(start, start + 3).map(({ context }) => context)).size).toBe(1);
      }
    }
    toy.dispose();
  });

  it("are none without turns", async () => {
    const toy = new ValuedBigram();
    const ppo = new PPO(toy);
    expect(await ppo.prepare([])).toEqual([]);
    expect(ppo.graphMetrics()).toEqual({});
    toy.dispose();
  });
});

describe("the KL to the baseline", () => {
  const solvers = { PPO, A2C, REINFORCE, RLOO, GRPO } as const;

  it.each(["PPO", "A2C", "REINFORCE", "RLOO", "GRPO"] as const)("is in the loss of %s by default", (name) => {
    const toy = system();
    const weight = new solvers[name](toy);
    // Half of it where siblings are compared.
    const klLossCoefficient = name === "GRPO" || name === "RLOO" ? 0.01 : 0.02;
    expect(weight.options).toMatchObject({ klCoefficient: 0, klLossCoefficient });
    expect(weight.needs).toContain("baseline");
    const none = new solvers[name](toy, { klLossCoefficient: 0 });
    expect(none.options).toMatchObject({ klCoefficient: 0, klLossCoefficient: 0 });
    expect(none.needs).not.toContain("baseline");
    toy.dispose();
  });

  it.each(["PPO", "A2C", "REINFORCE", "RLOO"] as const)(
    "is not in the loss of %s if it is in the reward, unless both are configured",
    (name) => {
      const toy = system();
      const weights = (options: PPOOptions) => {
        const { klCoefficient, klLossCoefficient } = new solvers[name](toy, options).options;
        return [klCoefficient, klLossCoefficient];
      };
      expect(weights({ klCoefficient: 0.3 })).toEqual([0.3, 0]);
      expect(weights({ klCoefficient: 0 })).toEqual([0, 0]);
      expect(weights({ klCoefficient: 0.3, klLossCoefficient: 0.1 })).toEqual([0.3, 0.1]);
      toy.dispose();
    },
  );

  it.each(["PPO", "A2C", "REINFORCE", "RLOO", "GRPO"] as const)(
    "is half the squared difference of log-probabilities in the loss of %s, but the paper's estimate in GRPO's",
    async (name) => {
      const toy = system();
      const solver =
        name === "REINFORCE" ? new REINFORCE(toy, { normalizer: "token" }) : new solvers[name](toy);
      const { branches } = await prepared(solver);
      move(toy);
      const table = logits(toy);
      const penalties = PROBES.flatMap((probe) => logprobs(table, probe)).map((logprob) => {
        const difference = Math.log(0.25) - logprob;
        return name === "GRPO" ? Math.exp(difference) - difference - 1 : 0.5 * difference ** 2;
      });
      const { loss, logs } = await solver.step(solver.collate(branches));
      expect(logs["kl/loss"]).toBeCloseTo(sum(penalties) / penalties.length, 12);
      loss.dispose();
      toy.dispose();
    },
  );

  it("requires a baseline, and refuses a system without one at assembly", () => {
    const bare = new ASTSystem({});
    const sampler = new ASTSampler(bare, ["x"], { width: 2, depth: 1 });
    expect(() => new Harness(sampler, new RLOO(bare))).toThrow(breaking("no-baseline", "ASTSystem"));
    expect(() => new Harness(sampler, new RLOO(bare, { klLossCoefficient: 0 }))).not.toThrow();
  });
});

describe("an accumulated gradient", () => {
  /** One update from one experience, cut as it may be. */
  async function update(
    make: (toy: ValuedBigram) => PolicyGradient<string, string>,
    batchSize: number,
    groups: number,
  ) {
    const toy = system();
    const trainer = new Trainer(
      new TrainingConfiguration({
        optimizer: "sgd",
        learningRate: 0.3,
        clipGradNorm: 0,
        trainingSteps: 1,
        numEpisodesPerExperience: 4,
        batchSize,
        gradientAccumulationSteps: groups,
      }),
      new ASTSampler(toy, ["x", "y"], { width: 2, depth: 3 }),
      make(toy),
    );
    await trainer.train();
    const weights = [toy.table, toy.critic].flatMap((parameter) =>
      Array.from(parameter.detach().toTypedArray() as Float64Array),
    );
    trainer.dispose();
    toy.dispose();
    return weights;
  }

  it.each([
    ["PPO", (toy: ValuedBigram) => new PPO(toy, { epochs: 1, entropyCoefficient: 0.1 })],
    ["A2C", (toy: ValuedBigram) => new A2C(toy)],
    ["REINFORCE", (toy: ValuedBigram) => new REINFORCE(toy)],
    ["RLOO", (toy: ValuedBigram) => new RLOO(toy, { klCoefficient: 0.1 })],
    ["GRPO", (toy: ValuedBigram) => new GRPO(toy, { klLossCoefficient: 0.1 })],
    ["GRPO by sequence", (toy: ValuedBigram) => new GRPO(toy, { normalizer: "sequence", scale: "std" })],
  ] as const)("of %s is that of one large batch", async (_, make) => {
    const [large, cut] = [await update(make, 1000, 1), await update(make, 3, 1000)];
    large.forEach((weight, index) => expect(cut[index]).toBeCloseTo(weight, 12));
    const start = system();
    expect(large).not.toEqual(
      [start.table, start.critic].flatMap((parameter) =>
        Array.from(parameter.detach().toTypedArray() as Float64Array),
      ),
    );
    start.dispose();
  });
});

describe("values", () => {
  it("learn at a separate rate if configured", async () => {
    const train = async (options: PPOOptions) => {
      const toy = system();
      const start = toy.critic.detach().toArray() as number[];
      const settings = {
        optimizer: "sgd",
        learningRate: 0.1,
        trainingSteps: 1,
        batchSize: 1000,
        clipGradNorm: 0,
      } as const;
      const sampler = new ASTSampler(toy, ["x"], { width: 2, depth: 2 });
      const ppo = new PPO(toy, { epochs: 1, ...options });
      const trainer = new Trainer(
        new TrainingConfiguration({ ...settings, numEpisodesPerExperience: 2 }),
        sampler,
        ppo,
      );
      await trainer.train();
      const moved = (toy.critic.detach().toArray() as number[]).map((value, index) => value - start[index]!);
      trainer.dispose();
      toy.dispose();
      return moved;
    };
    const [same, faster] = [await train({}), await train({ valueLearningRate: 0.3 })];
    same.forEach((step, index) => expect(faster[index]).toBeCloseTo(3 * step, 10));
    expect(same.some((step) => Math.abs(step) > 1e-3)).toBe(true);
  });

  it("are required by PPO and A2C only", () => {
    const toy = new BigramSystem();
    const sampler = new ASTSampler(toy, ["x"], { width: 2 });
    for (const make of [makers.PPO, makers.A2C]) {
      expect(() => new Harness(sampler, make(toy))).toThrow(breaking("no-values", "BigramSystem"));
    }
    for (const make of [makers.REINFORCE, makers.RLOO, makers.GRPO]) {
      expect(new Harness(sampler, make(toy)).algorithm.needs).toEqual(["baseline"]);
    }
    expect(() => new PPO(toy, { valueLearningRate: 1 }).learningRates()).toThrow(
      breaking("no-value-parameters", "BigramSystem"),
    );
    toy.dispose();
  });
});

describe("what policy gradients refuse", () => {
  const toy = {} as TextSystem;
  const sampler = (width: number) => ({ width }) as unknown as ASTSampler<string, string>;

  it("a single child where siblings are compared", () => {
    for (const make of [makers.RLOO, makers.GRPO]) {
      expect(() => make(toy).checkSampler(sampler(1))).toThrow(breaking("no-siblings"));
      make(toy).checkSampler(sampler(2));
    }
    for (const make of [makers.PPO, makers.A2C, makers.REINFORCE]) make(toy).checkSampler(sampler(1));
  });

  it("credit that already includes returns", () => {
    for (const make of [makers.PPO, makers.A2C]) {
      expect(() => make(toy).checkCredit(backUp())).toThrow(breaking("credit-looks-ahead"));
    }
    for (const make of [makers.RLOO, makers.GRPO, makers.REINFORCE]) make(toy).checkCredit(backUp());
    for (const make of Object.values(makers)) make(toy).checkCredit(rewardCredit);
    const valued = new ValuedBigram();
    const grown = new ASTSampler(valued, ["x"]);
    const ppo = new PPO(valued, { klLossCoefficient: 0 });
    expect(() => new Harness(grown, ppo, { credit: backUp() })).toThrow(
      breaking("credit-looks-ahead", "PPO"),
    );
    valued.dispose();
  });

  it.each([
    [() => new PPO(toy, { clipRange: 1 }), "PPO: clipRange must be greater than 0 and less than 1, got 1"],
    [() => new PPO(toy, { epochs: 0 }), "PPO: epochs must be a whole number of at least 1, got 0"],
    [() => new PPO(toy, { targetKL: 0 }), "PPO: targetKL must be a finite number greater than 0, got 0"],
    [
      () => new A2C(toy, { valueCoefficient: -1 }),
      "A2C: valueCoefficient must be a finite number of at least 0, got -1",
    ],
    [() => new RLOO(toy, { klTarget: 6 }), "RLOO: klTarget adapts klCoefficient, which is 0"],
    [() => new GRPO(toy, { scale: "mad" as "std" }), 'GRPO: scale must be "none" or "std", got "mad"'],
    [
      () => new GRPO(toy, { normalizer: "row" as "token" }),
      /GRPO: normalizer must be .*token.*sequence.*none/u,
    ],
    [
      () => new REINFORCE(toy, { baseline: "best" as "none" }),
      /REINFORCE: baseline must be .*others.*running.*none/u,
    ],
  ])("options out of range: %#", (make, message) => {
    expect(make).toThrow(message);
  });
});
