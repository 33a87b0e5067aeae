import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  A2C,
  DPO,
  GRPO,
  IPO,
  ORPO,
  PPO,
  REINFORCE,
  RLOO,
  Supervised,
  TrajectoryBalance,
  ASTSampler,
  HFASTConfiguration,
  HFASTTrainer,
} from "@astra-rl/method";
import type { MetricsRecord } from "@astra-rl/records";
import { JudgedSystem } from "../../../method/test/support/judged-system.js";
import { textEvaluator, type TextAlgorithm } from "../../../method/test/support/texts.js";
import { LetterScorer } from "../../../method/test/training/support.js";

/** The keys that a page defines: everything in backticks in the first column of its tables. */
function definedKeys(page: string): Set<string> {
  const text = readFileSync(new URL(`../../../../docs/${page}`, import.meta.url), "utf8");
  const cells = text.split("\n").flatMap((line) => (line.startsWith("|") ? [line.split("|")[1]!] : []));
  return new Set(cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]!)));
}

/** The keys that no page defines; `<name>` in a page stands for any name. */
function undefinedKeys(logged: Iterable<string>, pages: readonly string[]): string[] {
  const defined = pages.flatMap((page) => [...definedKeys(page)]);
  const patterns = defined.map(
    (key) => new RegExp(`^${key.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/<\w+>/g, "\\w+")}$`),
  );
  return [...logged].filter((key) => !patterns.some((pattern) => pattern.test(key)));
}

describe("every key that is logged is defined in docs/", () => {
  it.each([
    ["dpo", (system: JudgedSystem) => new DPO(system), ["preference/margin", "preference/identical_pairs"]],
    ["ipo", (system: JudgedSystem) => new IPO(system), ["preference/margin"]],
    ["trajectory-balance", (system: JudgedSystem) => new TrajectoryBalance(system), ["preference/margin"]],
    ["orpo", (system: JudgedSystem) => new ORPO(system), ["preference/nll", "preference/log_odds_ratio"]],
    [
      "ppo",
      (system: JudgedSystem) =>
        new PPO(system, {
          entropyCoefficient: 0.01,
          valueLearningRate: 0.1,
          klCoefficient: 0.05,
          klTarget: 1,
        }),
      [
        "policy/clip_fraction",
        "policy/entropy",
        "value/explained_variance",
        "kl/coefficient",
        "learning_rate/value",
      ],
    ],
    [
      "a2c",
      (system: JudgedSystem) =>
        new A2C(system, { klCoefficient: 0.1, entropyCoefficient: 0.01, valueLearningRate: 0.1 }),
      ["value/loss", "policy/entropy", "kl/baseline"],
    ],
    [
      "reinforce",
      (system: JudgedSystem) => new REINFORCE(system, { klCoefficient: 0.1, entropyCoefficient: 0.01 }),
      ["policy/nll", "advantage/std"],
    ],
    [
      "rloo",
      (system: JudgedSystem) => new RLOO(system, { klCoefficient: 0.1, entropyCoefficient: 0.01 }),
      ["advantage/zero_branches"],
    ],
    [
      "grpo",
      (system: JudgedSystem) => new GRPO(system, { klLossCoefficient: 0.1, entropyCoefficient: 0.01 }),
      ["policy/kl_old", "kl/loss", "advantage/zero_branches"],
    ],
    [
      "supervised",
      (system: JudgedSystem) => new Supervised(system, { threshold: 0 }),
      ["policy/loss", "policy/nll", "advantage/mean", "advantage/std"],
    ],
  ] as const)("%s", async (name, make, some) => {
    const system = new JudgedSystem();
    // Only the existence of a record matters here.
    system.getRecordedLogprobs = (_, probes) => probes.map((probe) => Array.from(probe, () => -1));
    const sampler = new ASTSampler(system, ["x"], { width: 2, depth: 2 });
    const records: MetricsRecord[] = [];
    const trainer = new HFASTTrainer(
      new HFASTConfiguration({ trainingSteps: 2, evaluateEvery: 1 }),
      sampler,
      make(system) as TextAlgorithm,
      {
        evaluator: textEvaluator(sampler, ["y"], { scorer: new LetterScorer() }),
        runDirectory: null,
        callbacks: [{ name: "watch", onStep: (record) => void records.push(record) }],
      },
    );
    await trainer.train();
    const logged = new Set(records.flatMap((record) => Object.keys(record)));
    expect([...logged]).toEqual(
      expect.arrayContaining([...some, "evaluation/success_rate", "reward/term/novelty", "harm/probe_rate"]),
    );
    expect(undefinedKeys(logged, ["metrics.md", `algorithms/${name}.md`])).toEqual([]);
    expect(undefinedKeys(["reward/term/", "reward/other", "success"], ["metrics.md"])).toHaveLength(3);
    trainer.dispose();
    system.dispose();
  });
});
