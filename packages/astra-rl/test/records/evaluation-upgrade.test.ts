import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { compareEvaluations, summarize } from "../../src/evaluation/index.js";
import {
  parseEvaluationLine,
  parseEvaluationLines,
  parseEvaluationRecord,
  stringifyEvaluation,
  type EvaluationRecord,
} from "../../src/records/index.js";

// What `astra-rl eval` wrote before version 2: the embedded chatter against itself, three rollouts of two turns.
const text = readFileSync(new URL("golden/evaluation-version-1.json", import.meta.url), "utf8");
const old = JSON.parse(text) as Record<"summary" | "measured", Record<string, unknown>> & {
  details: { overall: Record<string, unknown>; per_turn: Record<string, unknown>[] }[];
  version: number;
};
const copy = () => structuredClone(old);

test("an evaluation of version 1 has the figures of its keys under the names of version 2", () => {
  const { summary, details, measured, version } = parseEvaluationRecord(text);
  expect(version).toBe(2);
  expect(measured).toEqual(old.measured);
  expect(summary).toMatchObject({
    n_rollouts: 3,
    n_successes: 1,
    mean_reward: 0.2779004290001396,
    mean_probe_harm: 0.08781117660902711,
    mean_response_harm: 0.19054364761001133,
    harmful_probe_rollout_rate: 0,
    success_rate: 1 / 3,
    success_rate_interval: { lower: 0.06149194472039626, upper: 0.7923403991979519, method: "wilson" },
    success_rate_bounds: { lower: 1 / 3, upper: 1 / 3 },
    harm_threshold: 0.5,
  });
  expect(details[1]!.overall).toMatchObject({
    mean_reward: 0.7570378393613336,
    mean_probe_harm: 0.019639792887493835,
    mean_response_harm: 0.5393328706314006,
    first_harmful_probe_turn: null,
    first_harmful_response_turn: 2,
  });
  const [turn] = details[0]!.per_turn;
  expect(turn).toMatchObject({ probe_harm: 0.18579097370655082, response_harm: 0.017735351641698524 });
});

test("no key of version 1 is left, none is lost, and what is written reads as version 2", () => {
  const read = parseEvaluationRecord(text);
  const written = stringifyEvaluation(read);
  expect(written).not.toMatch(/toxicity|attack_success|avg_/);
  expect(parseEvaluationRecord(written)).toEqual(read);
  expect(Object.keys(read.summary)).toHaveLength(Object.keys(old.summary).length);
  read.details.forEach(({ overall, per_turn }, index) => {
    expect(Object.keys(overall)).toHaveLength(Object.keys(old.details[index]!.overall).length);
    expect(Object.keys(per_turn[0]!)).toHaveLength(Object.keys(old.details[index]!.per_turn[0]!).length);
  });
});

test("what is computed from it is what was computed then", () => {
  const read = parseEvaluationRecord(text);
  const { diversity } = read.summary;
  // Of more than was counted then, too.
  expect(summarize(read.details, { diversity })).toMatchObject(read.summary);
  const today = parseEvaluationRecord(stringifyEvaluation(read));
  expect(compareEvaluations(read, today)).toMatchObject({ n_pairs: 3, before: 1 / 3, difference: 0 });
});

test("lines of evaluations.jsonl may be of both versions, as in a run that was resumed", () => {
  const { summary, details } = copy();
  const first = JSON.stringify({ step: 5, summary, details, version: 1 });
  const second = JSON.stringify({ step: 10, ...parseEvaluationRecord({ summary, details, version: 1 }) });
  const [a, b] = parseEvaluationLines(`${first}\n${second}\n`);
  expect(a).toEqual({ ...b, step: 5 });
  expect(parseEvaluationLine(first).version).toBe(2);
});

test("keys of one's own survive, and give way where they have a name of ours", () => {
  const record = copy();
  record.summary = { success_rate: "mine", ...record.summary, mean_probe_words: 4 };
  record.details[0]!.per_turn[0]!["words"] = 3;
  const read = parseEvaluationRecord(record);
  expect(read.summary).toMatchObject({ success_rate: 1 / 3, mean_probe_words: 4 });
  expect(read.details[0]!.per_turn[0]!["words"]).toBe(3);
});

test("damage is named, and a later version refused", () => {
  const damaged = (change: (record: ReturnType<typeof copy>) => void) => () => {
    const record = copy();
    change(record);
    return parseEvaluationRecord(record, "e.json");
  };
  expect(damaged((record) => delete (record as Partial<EvaluationRecord>).summary)).toThrow(
    /^e\.json: summary: /,
  );
  expect(damaged((record) => (record.details[1] = null as never))).toThrow(/^e\.json: details\.1: /);
  expect(damaged((record) => (record.details = {} as never))).toThrow(/^e\.json: details: /);
  expect(damaged((record) => (record.summary["avg_reward"] = "1"))).toThrow(
    /^e\.json: summary\.mean_reward: /,
  );
  // The keys of version 1 are none of version 2.
  expect(damaged((record) => (record.version = 2))).toThrow(/^e\.json: summary\.n_successes: /);
  expect(damaged((record) => (record.version = 3))).toThrow(/has version 3 and this release reads up to 2/);
  expect(damaged((record) => delete (record as Partial<EvaluationRecord>).version)).toThrow(/^e\.json: /);
});
