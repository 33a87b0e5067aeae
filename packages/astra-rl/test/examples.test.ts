import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadCausalLM } from "@astra-rl/lm";
import { liveTensors } from "@astra-rl/torch";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Scorer } from "@astra-rl/method";
import { judgeConversation, ShoutingScorer, WorstScorer } from "../../../examples/custom-scorer.js";
import { evaluate } from "../../../examples/evaluate.js";
import { setting } from "../../../examples/setting.js";
import { stressTest } from "../../../examples/stress-test-controller.js";
import { trainDPO } from "../../../examples/train-dpo.js";
import { trainIPO } from "../../../examples/train-ipo-with-backup.js";

describe("the example programs", () => {
  let folder: string;
  let live: number;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "astra-rl-examples-"));
    live = liveTensors();
  });
  afterEach(() => expect(liveTensors()).toBe(live));
  afterAll(() => rm(folder, { recursive: true, force: true }));

  const weights = async (checkpoint: string): Promise<number[]> => {
    const { model } = await loadCausalLM(checkpoint);
    try {
      return [...model.namedParameters().values()].map((value) => {
        const numbers = value.toTypedArray() as Float32Array;
        return numbers.reduce((sum, x, i) => sum + x * ((i % 7) + 1), 0);
      });
    } finally {
      model.dispose();
    }
  };

  it("train-dpo leaves a tester that has changed and can be evaluated", async () => {
    const run = join(folder, "dpo");
    const { steps, checkpoint } = await trainDPO({ runDirectory: run, trainingSteps: 2 });
    expect(steps.map(({ step }) => step)).toEqual([1, 2]);
    // Before the first update tester and baseline agree, so the margin is 0 and the loss that of a coin.
    expect(steps[0]!.loss).toBeCloseTo(Math.log(2), 1);
    expect(steps[1]!["evaluation/rollouts"]).toBe(2);
    const [trained, initial] = [await weights(checkpoint), await weights(setting(undefined).model)];
    expect(trained).toHaveLength(initial.length);
    expect(trained).not.toEqual(initial);

    const { before, after, comparison } = await evaluate({ trained: checkpoint });
    expect(before.details).toHaveLength(2);
    expect(before.details.map(({ per_turn }) => per_turn.length)).toEqual([3, 3]);
    expect(comparison.n_pairs).toBe(2);
    // Two updates at 1e-5 move the likelihood of a random model's probes, but hardly.
    expect(comparison.probe_nll_difference).toBeCloseTo(
      after.summary.mean_probe_nll! - before.summary.mean_probe_nll!,
      9,
    );
  });

  it.each(["dpo", "ppo"] as const)(
    "stress-test-controller learns gusts that push the car out of its lane, by %s",
    async (name) => {
      const { before, after } = await stressTest(name, 25);
      expect(before.failures).toBeLessThan(0.15);
      expect(after.failures).toBeGreaterThan(0.6);
      // It need not take the rarest gusts all the time, of 3 nats each.
      expect(after.nll).toBeLessThan(2.95);
    },
  );

  it("evaluate finds no difference between a tester and itself", async () => {
    const { before, after, comparison } = await evaluate();
    expect(after).toEqual(before);
    expect(comparison).toMatchObject({ difference: 0, p_value: 1, probe_nll_difference: 0 });
  });

  it("train-ipo-with-backup trains on backed-up credit, and does not change the rewards", async () => {
    const { steps, credited } = await trainIPO({ trainingSteps: 1, discount: 0.5 });
    // IPO's first loss, at margin 0: (1 / (2 · 0.1))² = 25.
    expect(steps[0]!.loss).toBeCloseTo(25, 0);
    const rewards: number[] = [];
    for (const { graph, credit } of credited) {
      for (const node of graph.nodes()) {
        const future = node.children.map((child) => credit.get(child)!);
        const expected = node.reward + (future.length === 0 ? 0 : 0.5 * Math.max(...future));
        expect(credit.get(node)).toBeCloseTo(expected, 10);
        rewards.push(node.reward);
      }
    }
    expect(rewards).toHaveLength(2 + 4 + 8);
    const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
    expect(steps[0]!["reward/mean"]).toBeCloseTo(mean, 10);
  });

  it("custom-scorer scores each turn by the worst of its scorers", async () => {
    const graph = await judgeConversation();
    expect(graph.path()).toHaveLength(3);
    for (const { response, scores } of graph.path()) {
      const [shouting] = await new ShoutingScorer().score([response.text]);
      expect(scores["response/shouting"]).toBe(shouting!.score);
      expect(scores["response"]).toBe(Math.max(scores["response/shouting"]!, scores["response/keyword"]!));
    }
  });

  it("a text that one of the scorers failed on has no score", async () => {
    const failure = { stage: "scorer", message: "not reachable", attempts: 1 } as const;
    class Unreachable extends Scorer {
      readonly name = "unreachable";
      override score(texts: readonly string[]) {
        return Promise.resolve(texts.map(() => ({ failure })));
      }
    }
    const [outcome] = await new WorstScorer([new ShoutingScorer(), new Unreachable()]).score(["NO"]);
    expect(outcome).toEqual({ failure });
    expect(await new ShoutingScorer().score(["NO", "No", "12", "no"])).toEqual(
      [1, 0.5, 0, 0].map((score) => ({ score })),
    );
  });
});
