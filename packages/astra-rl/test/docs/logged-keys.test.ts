import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { DPO, IPO } from "../../src/algorithm/index.js";
import { ASTEvaluator } from "../../src/evaluation/index.js";
import type { MetricsRecord } from "../../src/records/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTConfiguration, HFASTTrainer } from "../../src/training/index.js";
import { JudgedSystem } from "../support/judged-system.js";
import { LetterScorer } from "../training/support.js";

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
    ["dpo", DPO],
    ["ipo", IPO],
  ] as const)("%s", async (name, Solver) => {
    const system = new JudgedSystem();
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
    const logged = new Set(records.flatMap((record) => Object.keys(record)));
    expect([...logged]).toEqual(
      expect.arrayContaining([
        "preference/margin",
        "preference/identical_pairs",
        "evaluation/success_rate",
        "reward/term/novelty",
        "harm/probe_rate",
      ]),
    );
    expect(undefinedKeys(logged, ["metrics.md", `algorithms/${name}.md`])).toEqual([]);
    expect(undefinedKeys(["reward/term/", "reward/other", "success"], ["metrics.md"])).toHaveLength(3);
    trainer.dispose();
    system.dispose();
  });
});
