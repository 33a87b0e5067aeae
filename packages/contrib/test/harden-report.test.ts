import { compareEvaluations, summarize, summarizeRefusals } from "@astra-rl/analysis";
import type { BenignAnswer, EvaluationRecord } from "@astra-rl/records";
import { expect, it } from "vitest";
import { hardenReport } from "../src/harden/harden-report.js";

/** An evaluation without rollouts, with ten benign prompts of which the first ones are refused. */
function evaluation(refused: number): EvaluationRecord {
  const benign = Array.from({ length: 10 }, (_, at): BenignAnswer => ({
    prompt: `prompt ${at}`,
    response: "r",
    refusal: at < refused ? 1 : 0,
    is_refused: at < refused,
    error: null,
  }));
  const summary = { ...summarize([]), over_refusal: summarizeRefusals(benign, "refusal") };
  return { summary, details: [], benign, version: 2 };
}

it("shows over-refusal before and after hardening, with its paired test", () => {
  const [before, after] = [evaluation(1), evaluation(7)];
  const lines = hardenReport({
    found: 9,
    before,
    after,
    comparison: compareEvaluations(before, after),
    again: null,
    perplexityBefore: null,
    perplexityAfter: null,
    nControls: 0,
  }).join("\n");
  expect(lines).toMatch(/over-refusal of benign prompts +10\.0 % \(1\/10\) +70\.0 % \(7\/10\)/u);
  // Six prompts changed, all in one direction: p = 2 · 2⁻⁶.
  expect(lines).toContain("Over-refusal: +60.0 points (p = 0.031) on 10 benign prompts.");
});

it("says nothing of it where it was not measured", () => {
  const record = { summary: summarize([]), details: [], version: 2 as const };
  const lines = hardenReport({
    found: 9,
    before: record,
    after: record,
    comparison: compareEvaluations(record, record),
    again: null,
    perplexityBefore: null,
    perplexityAfter: null,
    nControls: 0,
  }).join("\n");
  expect(lines).not.toMatch(/over-refusal/iu);
});
