import { summarize } from "@astra-rl/analysis";
import {
  canaryOf,
  type EvaluationDetail,
  type EvaluationRecord,
  type GoalRecord,
  type ReportEvaluation,
} from "@astra-rl/records";
import { describe, expect, it } from "vitest";
import { attacksOfEvaluation, exportAttacks } from "../../src/export/index.js";
import {
  csvReport,
  evaluationReport,
  gateOf,
  gateSentence,
  goalLines,
  goalMarkdown,
  markdownReport,
} from "../../src/index.js";

const GOALS: GoalRecord[] = Array.from({ length: 10 }, (_, at) => ({
  id: `g${at}`,
  text: at === 0 ? "say | a <b>secret</b>" : `goal ${at}`,
  ...(at < 8 ? { category: at < 4 ? "privacy" : "tone" } : {}),
}));

function rollout(goal: string | null, harm: number | null, probeHarm = 0): EvaluationDetail {
  const isHarmful = harm !== null && harm >= 0.5;
  return {
    overall: {
      num_turns: 1,
      num_errors: 0,
      mean_reward: 0,
      mean_probe_harm: probeHarm,
      mean_response_harm: harm,
      first_harmful_probe_turn: probeHarm >= 0.5 ? 1 : null,
      first_harmful_response_turn: isHarmful ? 1 : null,
      harmless_probe_success: harm === null ? null : isHarmful && probeHarm < 0.5,
      ...(goal === null ? {} : { goal }),
    },
    per_turn: [
      {
        turn: 1,
        reward: 0,
        probe_harm: probeHarm,
        response_harm: harm,
        context: `opener of ${goal}`,
        probe: "p",
        response: "r",
        probe_nll: 1,
        probe_tokens: 4,
        error: harm === null ? "scorer: gone" : null,
      },
    ],
  };
}

/** Ten goals of two tries: g0 is reached twice, g1 once, g2 once by a harmful probe, g9 has no score. */
const details = [
  rollout("g0", 0.9),
  rollout("g0", 0.9),
  rollout("g1", 0.9),
  rollout("g1", 0.1),
  rollout("g2", 0.9, 0.8),
  rollout("g2", 0.1),
  ...Array.from({ length: 6 }, (_, at) => [rollout(`g${3 + at}`, 0.1), rollout(`g${3 + at}`, 0.2)]).flat(),
  rollout("g9", null),
  rollout("g9", null),
];
const record: EvaluationRecord = {
  goals: GOALS,
  summary: summarize(details, { goals: GOALS, controls: { n: 1, n_found: 1 } }),
  details,
  version: 2,
};

describe("goals in reports", () => {
  const text = goalLines(record).join("\n");

  it("say how many are reached, within how many tries, and at what cost", () => {
    expect(text).toMatch(/goals reached +3 of 9 +2 of 9/u);
    // (1 + 1/2 + 1/2) / 9, and with harmless probes (1 + 1/2) / 9.
    expect(text).toMatch(/within 1 try of each +22\.2 % of 9 +16\.7 % of 9/u);
    expect(text).toMatch(/within 2 tries of each +33\.3 % of 9 +22\.2 % of 9/u);
    expect(text).toMatch(/tries of each until 50\.0 % are reached +not reached +not reached/u);
    expect(text).toMatch(/within 10, extrapolated +\d+\.\d %, /u);
    expect(text).toMatch(/for any rates of goals/u);
  });

  it("have a row for each category and goal", () => {
    expect(text).toMatch(/privacy +50\.0 % \(4\/8\) +– +37\.5 % \(3\/8\) +3 of 4/u);
    expect(text).toMatch(/no category +0\.0 % \(0\/2\)/u);
    expect(text).toMatch(/g1: goal 1 +50\.0 % \(1\/2\) +9\.5 % to 90\.5 % +50\.0 % \(1\/2\)/u);
  });

  it("name the goals that were never reached, and those without a score", () => {
    expect(text).toContain("Never reached: g3, g4, g5, g6, g7, g8.");
    expect(text).toContain("Never reached with harmless probes only: g2.");
    expect(text).toContain("Without a scored rollout, and in no figure: g9.");
  });

  it("are cut after 30 goals, and name 10", () => {
    const many = Array.from({ length: 40 }, (_, at) => ({ id: `m${at}`, text: "x" }));
    const rollouts = many.map(({ id }) => rollout(id, 0.1));
    const lines = goalLines({ summary: summarize(rollouts, { goals: many }), goals: many }).join("\n");
    expect(lines).toContain("the first 30 of 40");
    expect(lines).toContain("m29: x");
    expect(lines).not.toContain("m30: x");
    expect(lines).toContain("m9 and 30 more.");
    expect(lines).toMatch(/within 10, extrapolated +unknown +unknown/u);
    expect(lines).toContain("cannot be extrapolated to: no try succeeded.");
  });

  it("are part of an evaluation's report, its Markdown and CSV", () => {
    expect(evaluationReport(record).join("\n")).toContain(text);
    expect(goalMarkdown(record).join("\n")).toContain("g0: say \\| a \\<b\\>secret\\</b\\>");
    const evaluations: ReportEvaluation[] = [{ label: "E", step: null, measured: null, ...record }];
    const whole = {
      evaluations,
      runs: [],
      groups: [],
      seeds: [],
      differences: [],
      comparison: null,
      version: 3,
    };
    expect(markdownReport(whole)).toContain("## Goals (E)");
    const [heading, first, second] = csvReport(whole, "goals").split("\r\n");
    expect(heading).toContain(
      "evaluation,goal,category,text,tries,successes,rate,lower,upper,harmless tries",
    );
    expect(first).toMatch(/^E,g0,privacy,say \| a <b>secret<\/b>,2,2,1,/u);
    expect(second).toMatch(/^E,g1,privacy,goal 1,2,1,0\.5,/u);
  });

  it("are in no report of an evaluation without them", () => {
    const plain = [rollout(null, 0.9)];
    const without = { summary: summarize(plain), details: plain };
    expect(goalLines(without)).toEqual([]);
    expect(goalMarkdown(without)).toEqual([]);
    expect(evaluationReport(without).join("\n")).not.toContain("goal");
  });

  it("are the independent trials of a gate", () => {
    const canary = canaryOf(
      ["one", "two"].map((question) => ({ question, response: `${question}ly`, error: null })),
    );
    const controls = { n: 2, n_found: 2, n_harmless: 1, n_harmless_flagged: 0 };
    const whole = { ...record, summary: { ...record.summary, canary, controls } };
    const gate = gateOf(whole, 0.2, 0.95);
    expect(gate).toMatchObject({
      trials: "goals",
      n_prompts: 10,
      n_failing_prompts: 3,
      n_undecided_prompts: 1,
    });
    expect(gateSentence(gate)).toContain("in 3 of 10 goals");
    expect(gateSentence(gate)).toContain("no evaluation of fewer than 14 goals can pass");
  });

  it("are exported with attacks, by goal and category", () => {
    const found = attacksOfEvaluation(record).filter(({ isHarmful }) => isHarmful);
    const exported = (name: Parameters<typeof exportAttacks>[0]) =>
      String(exportAttacks(name, found, { name: "E", scorer: null, target: null }).files[0]!.content);
    expect(exported("inspect")).toContain('"goal":"goal 1","goal_id":"g1","category":"privacy"');
    expect(exported("csv").split("\r\n")[0]).toMatch(/probe NLL,goal id,category,goal$/u);
    // HarmBench lists test cases by behaviour.
    const cases = JSON.parse(exported("harmbench")) as Record<string, string[]>;
    expect(Object.entries(cases).map(([id, { length }]) => [id, length])).toEqual([
      ["g0", 2],
      ["g1", 1],
      ["g2", 1],
    ]);
    const plain = attacksOfEvaluation({ ...record, goals: undefined, details: [rollout(null, 0.9)] });
    const csv = exportAttacks("csv", plain, { name: "E", scorer: null, target: null }).files[0]!
      .content as string;
    expect(csv.split("\r\n")[0]).toMatch(/probe NLL$/u);
  });
});
