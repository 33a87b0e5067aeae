import { describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { summarize, summarizeRefusals } from "../../analysis/src/index.js";
import {
  EVALUATION_VERSION,
  parseEvaluationLine,
  parseEvaluationRecord,
  type EvaluationDetail,
  type EvaluationRecord,
  type EvaluationTurn,
} from "../src/index.js";

const turn = (at: number, context: string, harm: number | null): EvaluationTurn => ({
  turn: at,
  reward: 0,
  probe_harm: 0,
  response_harm: harm,
  context,
  probe: "Hello.",
  response: "Well.",
  probe_nll: 1,
  probe_tokens: 2,
  error: harm === null ? "scorer: gone" : null,
});

/** A rollout with these scores of its responses. */
function rollout(context: string, harms: readonly (number | null)[], more: object = {}): EvaluationDetail {
  const first = harms.findIndex((harm) => harm !== null && harm >= 0.5);
  return {
    overall: {
      num_turns: harms.length,
      num_errors: 0,
      mean_reward: 0,
      mean_probe_harm: 0,
      mean_response_harm: null,
      first_harmful_probe_turn: null,
      first_harmful_response_turn: first < 0 ? null : first + 1,
      harmless_probe_success: null,
      ...more,
    },
    per_turn: harms.map((harm, at) => turn(at + 1, at === 0 ? context : `${context} more`, harm)),
  };
}

function record(): EvaluationRecord {
  const details = [rollout("a", [0, 0.9]), rollout("b", [0, 0]), rollout("c", [0, null]), rollout("d", [0])];
  const benign = [true, false, null].map((isRefused, at) => ({
    prompt: `Is it ${at}?`,
    response: "No.",
    refusal: isRefused === null ? null : Number(isRefused),
    is_refused: isRefused,
    error: isRefused === null ? "target: gone" : null,
  }));
  return {
    summary: { ...summarize(details), over_refusal: summarizeRefusals(benign, "refusal") },
    details,
    benign,
    version: EVALUATION_VERSION,
  };
}

/** A changed record. */
function changed(change: (given: EvaluationRecord) => void): EvaluationRecord {
  const given = structuredClone(record());
  change(given);
  return given;
}

describe("an evaluation", () => {
  it("is read as it is written, and without its rollouts", () => {
    expect(parseEvaluationRecord(record())).toEqual(record());
    const bare = changed((given) => (given.details = []));
    expect(parseEvaluationRecord(bare)).toEqual(bare);
  });

  it.each<[what: string, rule: string, place: string, change: (given: EvaluationRecord) => void]>([
    ["was cut short", "other-count", "summary.n_rollouts:", ({ details }) => details.pop()],
    [
      "has each rollout twice",
      "shared-prompt",
      "details.4:",
      ({ details }) => details.push(...structuredClone(details)),
    ],
    [
      "has two more, which were counted",
      "shared-prompt",
      "details.4:",
      (given) => {
        given.details = [...given.details, rollout("b", [0, 0]), rollout("e", [0])];
        given.summary = summarize(given.details);
      },
    ],
    [
      "says nothing of a harmful response",
      "other-harm",
      "details.0.overall.first_harmful_response_turn:",
      ({ details }) => (details[0]!.overall.first_harmful_response_turn = null),
    ],
    [
      "has another threshold",
      "other-harm",
      "details.0.overall.first_harmful_response_turn:",
      ({ summary }) => (summary.harm_threshold = 0.95),
    ],
    ["has lost turns", "other-turns", "details.3.per_turn:", ({ details }) => (details[3]!.per_turn = [])],
    [
      "has turns in another order",
      "other-turns",
      "details.1.per_turn:",
      ({ details }) => details[1]!.per_turn.reverse(),
    ],
    [
      "counts failures as scored",
      "other-count",
      "summary.n_scored:",
      ({ summary }) => (summary.n_scored = 4),
    ],
    ["counts no success", "other-count", "summary.n_successes:", ({ summary }) => (summary.n_successes = 0)],
    ["counts more turns", "other-count", "summary.n_turns:", ({ summary }) => (summary.n_turns = 70)],
    ["has lost a benign prompt", "other-count", "summary.over_refusal.n:", ({ benign }) => benign!.shift()],
    [
      "counts a failure as an answer",
      "other-count",
      "summary.over_refusal.n:",
      ({ summary }) => (summary.over_refusal = { ...summary.over_refusal!, n: 3, n_errors: 0 }),
    ],
  ])("is refused if it %s", (_, rule, place, change) => {
    const refused = breaking(rule, place);
    expect(() => parseEvaluationRecord(changed(change), "e.json")).toThrow(refused);
    expect(() => parseEvaluationLine({ step: 1, ...changed(change) }, "e.json")).toThrow(refused);
  });

  it("knows nothing of a rollout without turns", () => {
    expect(summarize([rollout("a", []), rollout("b", [0])])).toMatchObject({ n_scored: 1, n_errors: 1 });
  });

  it("may repeat a prompt that is marked, or whose states are no texts", () => {
    const details = [0, 1].map(() => rollout("a", [0], { prompt: 0 }));
    const given = { summary: summarize(details), details, version: EVALUATION_VERSION };
    expect(parseEvaluationRecord(given)).toEqual(given);
    const states = [0, 1].map(() => rollout("[object Object]", [0]));
    const other = {
      summary: summarize(states, { countsEmpty: false }),
      details: states,
      version: EVALUATION_VERSION,
    };
    expect(parseEvaluationRecord(other)).toEqual(other);
  });
});
