import type { BenignAnswer } from "@astra-rl/records";
import { describe, expect, it } from "vitest";
import { compareRefusals, summarize, summarizeRefusals } from "../src/index.js";
import { exactMcNemar, wilsonInterval } from "../src/statistics/index.js";

/** "+" refused, "-" answered, "?" unknown. */
const answers = (marks: string): BenignAnswer[] =>
  Array.from(marks, (mark, at) => ({
    prompt: `prompt ${at}`,
    response: "r",
    refusal: mark === "?" ? null : Number(mark === "+"),
    is_refused: mark === "?" ? null : mark === "+",
    error: mark === "?" ? "target: gone" : null,
  }));

describe("over-refusal", () => {
  it("is the share of known answers; failures are no answers", () => {
    const { lower, upper } = wilsonInterval(2, 5)!;
    expect(summarizeRefusals(answers("++---??"), "judge")).toEqual({
      scorer: "judge",
      n: 5,
      n_refused: 2,
      n_errors: 2,
      rate: 0.4,
      interval: { lower, upper, confidence: 0.95, method: "wilson" },
    });
  });

  it("is unknown, not 0, without a known answer", () => {
    expect(summarizeRefusals(answers("??"), "judge")).toMatchObject({
      n: 0,
      n_errors: 2,
      rate: null,
      interval: null,
    });
  });

  it("is compared prompt by prompt, whatever the order", () => {
    const evaluated = (marks: string) => ({ summary: summarize([]), details: [], benign: answers(marks) });
    const [before, after] = [evaluated("+---?-"), evaluated("+++-+?")];
    const found = compareRefusals(before, { ...after, benign: after.benign.toReversed() }, 0.95)!;
    // Four pairs: both refused, twice only after, neither.
    expect(found).toMatchObject({ n_pairs: 4, before: 0.25, after: 0.75, difference: 0.5 });
    expect(found.p_value).toBe(exactMcNemar(0, 2));
    expect(compareRefusals(before, { summary: summarize([]), details: [] }, 0.95)).toBeNull();
    expect(compareRefusals(before, evaluated("?"), 0.95)).toBeNull();
  });
});
