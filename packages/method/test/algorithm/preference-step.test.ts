import { describe, expect, it } from "vitest";
import { liveTensors, noGrad, scope, tensor } from "@astra-rl/torch";
import { breaking } from "../../../base/test/support/breaking.js";
import { DPO, IPO, ORPO, type PreferenceBatch } from "../../src/algorithm/preference/index.js";
import { dpoLoss, ipoLoss } from "../../src/algorithm/losses/index.js";
import { ContractError, rewardCredit, TokenTable } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { BigramSystem } from "../support/bigram-system.js";

/** Pairs made by hand, of one to three letters. */
const batch: PreferenceBatch<string, string> = {
  contexts: ["x", "y", "z"],
  chosen: ["aa.", ".", "abc"],
  rejected: ["b.", "ccc", "a."],
};

/** A tester that differs from its baseline, in float64. */
function system(): BigramSystem {
  const toy = new BigramSystem("float64");
  noGrad(() =>
    scope(() => {
      const values = Array.from({ length: 20 }, (_, i) => Math.sin(3 * i));
      toy.table.copy_(tensor(values, { dtype: "float64", shape: [5, 4] }));
    }),
  );
  return toy;
}

const probabilities = (row: readonly number[]) => {
  const total = row.reduce((sum, logit) => sum + Math.exp(logit), 0);
  return row.map((logit) => Math.exp(logit) / total);
};

/** log P of a text by plain arithmetic over the table of logits. */
function logprob(table: readonly number[][], text: string): number {
  let sum = 0;
  let row = 4;
  for (const letter of text) {
    const column = "abc.".indexOf(letter);
    sum += Math.log(probabilities(table[row]!)[column]!);
    row = column;
  }
  return sum;
}

describe("the step of a preference algorithm", () => {
  it("has the mean loss and the logs computed by hand", async () => {
    const toy = system();
    const table = toy.table.detach().toArray() as number[][];
    const uniform = Array.from({ length: 5 }, () => [0, 0, 0, 0]);
    const ratio = (text: string) => logprob(table, text) - logprob(uniform, text);
    const margins = batch.chosen.map((chosen, i) => ratio(chosen) - ratio(batch.rejected[i]!));
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

    const { loss, logs } = await new DPO(toy, { beta: 0.5 }).step(batch);
    expect(loss.item()).toBeCloseTo(mean(margins.map((h) => Math.log1p(Math.exp(-0.5 * h)))), 12);
    loss.dispose();
    expect(logs["preference/accuracy"]).toBeCloseTo(margins.filter((h) => h > 0).length / 3, 12);
    expect(logs["preference/margin"]).toBeCloseTo(0.5 * mean(margins), 12);
    expect(logs["preference/chosen_reward"]).toBeCloseTo(0.5 * mean(batch.chosen.map(ratio)), 12);
    expect(logs["preference/rejected_reward"]).toBeCloseTo(0.5 * mean(batch.rejected.map(ratio)), 12);
    expect(logs["logprobs/chosen"]).toBeCloseTo(mean(batch.chosen.map((text) => logprob(table, text))), 12);
    expect(logs["logprobs/baseline_rejected"]).toBeCloseTo(
      mean([2, 3, 2].map((n) => n * Math.log(0.25))),
      12,
    );
    // 3 + 1 + 3 letters chosen, 2 + 3 + 2 rejected
    const all = [...batch.chosen, ...batch.rejected].map(ratio).reduce((sum, value) => sum + value, 0);
    expect(logs["drift/per_token"]).toBeCloseTo(all / 14, 12);

    const normalized = await new IPO(toy, { beta: 0.2, lengthNormalize: true }).step(batch);
    const perToken = batch.chosen.map(
      (chosen, i) => ratio(chosen) / chosen.length - ratio(batch.rejected[i]!) / batch.rejected[i]!.length,
    );
    expect(normalized.loss.item()).toBeCloseTo(mean(perToken.map((h) => (h - 2.5) ** 2)), 12);
    normalized.loss.dispose();
    toy.dispose();
  });

  it("uses no baseline for ORPO, and has the loss and logs computed by hand", async () => {
    const toy = system();
    toy.getBaselineLogprobs = () => Promise.reject(new Error("nobody asks"));
    const table = toy.table.detach().toArray() as number[][];
    const means = (texts: readonly string[]) => texts.map((text) => logprob(table, text) / text.length);
    const logOdds = (mean: number) => Math.log(Math.exp(mean) / (1 - Math.exp(mean)));
    const [chosen, rejected] = [means(batch.chosen), means(batch.rejected)];
    const odds = chosen.map((mean, pair) => logOdds(mean) - logOdds(rejected[pair]!));
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

    const orpo = new ORPO(toy, { lambda: 0.4, epochs: 3 });
    expect(await orpo.prepare([])).toEqual([]);
    const { loss, logs } = await orpo.step(batch);
    const losses = odds.map((ratio, pair) => -chosen[pair]! + 0.4 * Math.log1p(Math.exp(-ratio)));
    expect(loss.item()).toBeCloseTo(mean(losses), 12);
    loss.backward();
    expect(toy.table.grad).not.toBeNull();
    toy.table.grad = null;
    expect(logs["preference/nll"]).toBeCloseTo(-mean(chosen), 12);
    expect(logs["preference/log_odds_ratio"]).toBeCloseTo(mean(odds), 12);
    expect(logs["preference/accuracy"]).toBeCloseTo(odds.filter((ratio) => ratio > 0).length / 3, 12);
    expect(logs["logprobs/chosen"]).toBeCloseTo(mean(batch.chosen.map((text) => logprob(table, text))), 12);
    expect(logs).not.toHaveProperty("drift/per_token");
    loss.dispose();
    toy.dispose();
  });

  it("sends its gradient into the tester only, and leaks no tensors", async () => {
    const toy = system();
    const before = liveTensors();
    const { loss } = await new DPO(toy).step(batch);
    expect(liveTensors()).toBe(before + 1);
    loss.backward();
    loss.dispose();
    expect(toy.table.grad).not.toBeNull();
    expect(toy.baseline.grad).toBeNull();
    toy.table.grad = null;
    expect(liveTensors()).toBe(before);
    toy.dispose();
  });

  it("does not depend on padding", async () => {
    const toy = system();
    const losses: number[] = [];
    for (let pair = 0; pair < 3; pair++) {
      const column = <T>(values: readonly T[]) => [values[pair]!];
      const { loss } = await new DPO(toy).step({
        contexts: column(batch.contexts),
        chosen: column(batch.chosen),
        rejected: column(batch.rejected),
      });
      losses.push(loss.item());
      loss.dispose();
    }
    const { loss } = await new DPO(toy).step(batch);
    expect(loss.item()).toBeCloseTo(losses.reduce((sum, value) => sum + value, 0) / 3, 13);
    loss.dispose();
    toy.dispose();
  });

  it("is one class with two losses", () => {
    const toy = system();
    expect(new DPO(toy).loss).toBe(dpoLoss);
    expect(new IPO(toy).loss).toBe(ipoLoss);
    toy.dispose();
  });

  it("throws if the tester's log-probabilities carry no gradient, or are not finite", async () => {
    class Detached extends BigramSystem {
      override async getTesterLogprobs(
        contexts: readonly string[],
        continuations: readonly string[],
      ): Promise<TokenTable> {
        return noGrad(() => super.getTesterLogprobs(contexts, continuations));
      }
    }
    const detached = new Detached();
    await expect(new DPO(detached).step(batch)).rejects.toThrow(
      "must carry a gradient, or training changes nothing",
    );
    detached.dispose();
    const toy = system();
    toy.poison = NaN;
    await expect(new DPO(toy).step(batch)).rejects.toThrow(
      /System\.getTesterLogprobs: must be finite, got NaN/,
    );
    toy.dispose();
  });

  it("counts tokens with log-probability 0", async () => {
    class Certain extends BigramSystem {
      override async getTesterLogprobs(): Promise<TokenTable> {
        const table = TokenTable.ofRows([
          [-2, 0],
          [-1, 0, 0],
        ]);
        table.values.requiresGrad_();
        return table;
      }
      override async getBaselineLogprobs(): Promise<TokenTable> {
        return TokenTable.ofRows([
          [-4, 0],
          [-7, 0, 0],
        ]);
      }
    }
    const certain = new Certain();
    const dpo = new DPO(certain, { beta: 1, lengthNormalize: true });
    const { loss, logs } = await dpo.step({ contexts: ["x"], chosen: ["a."], rejected: ["bb."] });
    // h = 2/2 − 6/3 = −1; the drift is (2 + 6) / (2 + 3).
    expect(loss.item()).toBeCloseTo(Math.log1p(Math.exp(1)), 6);
    expect(logs["drift/per_token"]).toBe(8 / 5);
    loss.dispose();
    certain.dispose();
  });

  it("refuses a baseline that scores other tokens than the tester", async () => {
    class Shorter extends BigramSystem {
      override async getBaselineLogprobs(contexts: readonly string[], continuations: readonly string[]) {
        return super.getBaselineLogprobs(
          contexts,
          continuations.map((text) => text.replace(/\.$/u, "")),
        );
      }
    }
    const shorter = new Shorter();
    await expect(new DPO(shorter).step(batch)).rejects.toThrow(
      'DPO: tester and baseline must score the same tokens, got 3 and 2 of them for "aa."',
    );
    await expect(new DPO(shorter).step(batch)).rejects.toThrow(ContractError);
    shorter.dispose();
  });

  it("accepts frozen nodes and does not change them", async () => {
    const toy = system();
    const graph = await new ASTSampler(toy, ["x", "y"], { width: 3, depth: 2 }).rollout(3);
    for (const node of graph.nodes()) Object.freeze(node);
    for (const Solver of [DPO, IPO]) {
      const solver = new Solver(toy, { epochs: 2 });
      const steps = await solver.prepare(solver.flatten(graph, rewardCredit(graph)));
      const { loss } = await solver.step(solver.collate(steps));
      expect(Number.isFinite(loss.item())).toBe(true);
      loss.dispose();
    }
    toy.dispose();
  });

  it("refuses a batch without pairs", async () => {
    const toy = system();
    const empty = new DPO(toy).collate([]);
    await expect(new DPO(toy).step(empty)).rejects.toThrow(breaking("empty-batch", "DPO.step"));
    toy.dispose();
  });
});
