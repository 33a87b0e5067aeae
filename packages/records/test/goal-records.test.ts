import { describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { summarize } from "../../analysis/src/index.js";
import {
  EVALUATION_VERSION,
  parseEvaluationLine,
  parseEvaluationRecord,
  stringifyEvaluation,
  stringifyEvaluationLine,
  type EvaluationOverall,
  type EvaluationRecord,
  type GoalRecord,
} from "../src/index.js";

const overall = (goal?: string): EvaluationOverall => ({
  num_turns: 0,
  num_errors: 0,
  mean_reward: null,
  mean_probe_harm: null,
  mean_response_harm: null,
  first_harmful_probe_turn: null,
  first_harmful_response_turn: null,
  harmless_probe_success: false,
  ...(goal === undefined ? {} : { goal }),
});

function record(goals: GoalRecord[] | undefined, rollouts: (string | undefined)[]): EvaluationRecord {
  const details = rollouts.map((goal) => ({ overall: overall(goal), per_turn: [] }));
  return {
    ...(goals === undefined ? {} : { goals }),
    summary: summarize(details),
    details,
    version: EVALUATION_VERSION,
  };
}

const GOALS = [
  { id: "g1", text: "make it swear", category: "tone" },
  { id: "g2", text: "make it lie" },
];

describe("goals in evaluation records", () => {
  it("are read back as written, before the summary, in a file and in a line", () => {
    const given = record(GOALS, ["g1", "g2", undefined]);
    const written = stringifyEvaluation(given);
    expect(Object.keys(JSON.parse(written) as object)).toEqual(["goals", "summary", "details", "version"]);
    expect(parseEvaluationRecord(written)).toEqual(given);
    expect(parseEvaluationLine(stringifyEvaluationLine({ step: 3, ...given }))).toEqual({
      step: 3,
      ...given,
    });
  });

  it("leave no trace in a record without goals", () => {
    expect(stringifyEvaluation(record(undefined, [undefined]))).not.toContain("goal");
  });

  it("have different ids", () => {
    expect(() => parseEvaluationRecord(record([...GOALS, GOALS[0]!], []), "E")).toThrow(
      breaking("duplicate-id", "E: goals.2.id:"),
    );
  });

  it.each([
    [{ id: "", text: "x" }, "empty", "goals.0.id:"],
    [{ id: "g", text: "" }, "empty", "goals.0.text:"],
    [{ id: "g", text: "x", category: "" }, "empty", "goals.0.category:"],
    [{ id: "g" } as GoalRecord, "missing-key", "goals.0.text:"],
  ])("refuse %j", (goal, rule, place) => {
    expect(() => parseEvaluationRecord(record([goal], []), "E")).toThrow(breaking(rule, place));
  });

  it("are those of the rollouts, in a file and in a line", () => {
    const given = record(GOALS, ["g1", "g3"]);
    const unknown = breaking("unknown-goal", "details.1.overall.goal:");
    expect(() => parseEvaluationRecord(given, "E")).toThrow(unknown);
    expect(() => parseEvaluationLine({ step: 1, ...given }, "E")).toThrow(unknown);
    expect(() => parseEvaluationRecord(record(undefined, ["g1"]), "E")).toThrow(
      breaking("unknown-goal", "details.0.overall.goal:"),
    );
  });
});
