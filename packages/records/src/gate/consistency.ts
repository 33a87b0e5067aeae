import type { z } from "zod";

/** What the check reads of an evaluation. */
interface Evaluation {
  summary: {
    n_rollouts: number;
    n_scored: number;
    n_errors: number;
    n_successes: number;
    n_turns: number;
    harm_threshold: number;
    /** null where texts are none. */
    n_empty_probes: number | null;
    over_refusal?: { n: number; n_refused: number; n_errors: number } | undefined;
  };
  details: readonly Rollout[];
  benign?: readonly { is_refused: boolean | null }[] | undefined;
}

interface Rollout {
  overall: {
    num_turns: number;
    first_harmful_response_turn: number | null;
    prompt?: number | undefined;
    goal?: string | undefined;
  };
  per_turn: readonly { turn: number; context: string; response_harm: number | null }[];
}

/**
 * Refuses an evaluation whose summary is not that of its rollouts, as of a file that was cut short, joined with another or edited:
 * `gate` counts rollouts, and one that is missing, or there twice, would change its verdict. An evaluation without rollouts, as
 * a custom evaluator may make it, has nothing to compare.
 */
export function checkConsistency({ summary, details, benign }: Evaluation, context: z.RefinementCtx): void {
  const refuse = (path: (string | number)[], rule: string, message: string) =>
    context.addIssue({ code: "custom", path, params: { rule }, message });
  for (const [key, counted] of Object.entries(refusalsOf(benign ?? []))) {
    const given = summary.over_refusal?.[key as keyof ReturnType<typeof refusalsOf>];
    if (benign === undefined || given === undefined || given === counted) continue;
    const path = ["summary", "over_refusal", key];
    refuse(path, "other-count", `must be that of benign, ${counted}, got ${given}; ${REMEDY}`);
  }
  if (details.length === 0) return;
  // States that are no texts may read alike.
  const firsts = summary.n_empty_probes === null ? null : new Map<string, number>();
  for (const [at, rollout] of details.entries()) {
    const path = ["details", at];
    const { num_turns: turns, first_harmful_response_turn: first } = rollout.overall;
    if (turns !== rollout.per_turn.length || rollout.per_turn.some(({ turn }, index) => turn !== index + 1)) {
      const has = rollout.per_turn.map(({ turn }) => turn).join(", ") || "none";
      refuse([...path, "per_turn"], "other-turns", `must be the turns 1 to ${turns}, got ${has}; ${REMEDY}`);
    }
    const found = rollout.per_turn.find(({ response_harm: harm }) => (harm ?? -1) >= summary.harm_threshold);
    if ((found?.turn ?? null) !== first) {
      const harmful = found === undefined ? "none" : `turn ${found.turn}`;
      refuse(
        [...path, "overall", "first_harmful_response_turn"],
        "other-harm",
        `must be the first turn whose response_harm is at least ${summary.harm_threshold}, which is ${harmful}, got ${first}; ${REMEDY}`,
      );
    }
    const start = JSON.stringify([rollout.overall.goal, rollout.per_turn[0]?.context]);
    const same = firsts?.get(start) ?? at;
    firsts?.set(start, same);
    if (same !== at && rollout.overall.prompt !== (details[same]!.overall.prompt ?? null)) {
      refuse(
        path,
        "shared-prompt",
        `starts from the prompt of details.${same}, so overall.prompt must be the same in both, got ${rollout.overall.prompt}: ` +
          `rollouts of one prompt are no independent trials; ${REMEDY}`,
      );
    }
  }
  for (const [key, counted] of Object.entries(countsOf(details))) {
    const given = summary[key as keyof ReturnType<typeof countsOf>];
    if (given === counted) continue;
    refuse(["summary", key], "other-count", `must be that of details, ${counted}, got ${given}; ${REMEDY}`);
  }
}

const REMEDY = "a part of the file is missing or was changed: evaluate again, or restore the file";

function refusalsOf(benign: readonly { is_refused: boolean | null }[]) {
  const known = benign.filter(({ is_refused: isRefused }) => isRefused !== null);
  return {
    n: known.length,
    n_refused: known.filter(({ is_refused: isRefused }) => isRefused === true).length,
    n_errors: benign.length - known.length,
  };
}

function countsOf(details: readonly Rollout[]) {
  const scored = details.filter(
    ({ per_turn: turns }) => turns.length > 0 && turns.every(({ response_harm: harm }) => harm !== null),
  );
  return {
    n_rollouts: details.length,
    n_scored: scored.length,
    n_errors: details.length - scored.length,
    n_successes: scored.filter(({ overall }) => overall.first_harmful_response_turn !== null).length,
    n_turns: details.reduce((sum, { per_turn: turns }) => sum + turns.length, 0),
  };
}
