import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { DPO, IPO } from "../../src/algorithm/index.js";
import { ASTEvaluator } from "../../src/evaluation/index.js";
import type { MetricsRecord } from "../../src/records/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTConfiguration, HFASTTrainer } from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";
import { LetterScorer } from "../training/support.js";

/** The keys that a page defines: everything in backticks in the first column of its tables. */
function definedKeys(page: string): Set<string> {
  const text = readFileSync(new URL(`../../../../docs/${page}`, import.meta.url), "utf8");
  const cells = text.split("\n").flatMap((line) => (line.startsWith("|") ? [line.split("|")[1]!] : []));
  return new Set(cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]!)));
}

describe("every key that is logged is defined in docs/", () => {
  it.each([
    ["dpo", DPO],
    ["ipo", IPO],
  ] as const)("%s", async (name, Solver) => {
    const system = new BigramSystem();
    const sampler = new ASTSampler(system, ["x"], { width: 2, depth: 2 });
    const records: MetricsRecord[] = [];
    const trainer = new HFASTTrainer(
      new HFASTConfiguration({ trainingSteps: 2, evaluateEvery: 1 }),
      sampler,
      new Solver(system),
      {
        evaluator: new ASTEvaluator(sampler, ["y"], { scorer: new LetterScorer() }),
        onStep: (record) => void records.push(record),
      },
    );
    await trainer.train();
    const defined = new Set([...definedKeys("metrics.md"), ...definedKeys(`algorithms/${name}.md`)]);
    const logged = new Set(records.flatMap((record) => Object.keys(record)));
    expect(logged.has("preference/margin") && logged.has("evaluation/success_rate")).toBe(true);
    expect([...logged].filter((key) => !defined.has(key))).toEqual([]);
    trainer.dispose();
    system.dispose();
  });
});
