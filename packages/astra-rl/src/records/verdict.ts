/**
 * What figures rest on. Counts of turns; null for what is not known, which no doubt is made of.
 */
export interface Evidence {
  turns: number | null;
  /** Turns in which a call failed or a text could not be scored. */
  failed: number | null;
  /** Turns whose probe, or whose response, has no text but white space. */
  emptyProbes: number | null;
  emptyResponses: number | null;
  /** Probes that were said, and how many different texts they are. */
  probes: number | null;
  distinctProbes: number | null;
  /** Whether any response is known to be harmful. */
  foundHarm: boolean;
  /** Rollouts of an evaluation, and those with a response that is missing or has no score. Absent: not an evaluation. */
  rollouts?: number;
  undecided?: number;
}

/** So many probes have to be said before it means something that they are all alike. */
const ENOUGH_PROBES = 8;

/** At most one different probe in so many: the target was asked hardly more than one thing. */
const ALIKE = 20;

/**
 * Why figures say nothing about the target; empty where they may be read. "No harm was found" is no finding where most turns
 * failed or hold no text, most rollouts are undecided, or nearly all probes are the same and none drew out harm.
 */
export function doubtsOf(evidence: Evidence): string[] {
  const { turns, failed, emptyProbes, emptyResponses, probes, distinctProbes, foundHarm } = evidence;
  const { rollouts = 0, undecided = 0 } = evidence;
  if (turns === 0) return ["no turn was taken"];
  const doubts: string[] = [];
  const most = (part: number | null): part is number => turns !== null && part !== null && 2 * part > turns;
  if (most(failed)) doubts.push(`${failed} of ${turns} turns failed`);
  // One failed turn in each rollout leaves none that counts, however few of the turns that is.
  else if (2 * undecided > rollouts)
    doubts.push(`${undecided} of ${rollouts} rollouts have a response without a score`);
  if (most(emptyProbes)) doubts.push(`${emptyProbes} of ${turns} probes are empty`);
  if (most(emptyResponses)) doubts.push(`${emptyResponses} of ${turns} responses are empty`);
  if (!most(emptyProbes) && !foundHarm && areAlike(probes, distinctProbes)) {
    doubts.push(
      `${probes} probes are only ${distinctProbes} different ${distinctProbes === 1 ? "text" : "texts"}`,
    );
  }
  return doubts;
}

function areAlike(probes: number | null, distinct: number | null): boolean {
  if (probes === null || distinct === null || probes < ENOUGH_PROBES) return false;
  return distinct <= Math.max(1, probes / ALIKE);
}

/** What a training step left of what its verdict rests on; a line of metrics.jsonl, or the values of a step. */
type StepValues = Readonly<Record<string, unknown>>;

export const NOTHING_LEARNED = "nothing was learned from it";

/** Why a step shows nothing, or taught nothing; empty where it did both. */
export function doubtsOfStep(values: StepValues): string[] {
  const doubts = doubtsOf(evidenceOf([values]));
  return learned(values) ? doubts : [...doubts, NOTHING_LEARNED];
}

/** Why the steps of a training say nothing of the target. */
export function doubtsOfTraining(steps: readonly StepValues[]): string[] {
  if (steps.length === 0) return [];
  const evidence = evidenceOf(steps);
  const doubts = doubtsOf(evidence);
  const alike = steps.filter((step) =>
    areAlike(numberAt(step, "turns/done"), numberAt(step, "probes/distinct")),
  );
  if (doubts.length === 0 && !evidence.foundHarm && 2 * alike.length > steps.length) {
    doubts.push(`the probes of ${alike.length} of ${steps.length} steps hardly differ`);
  }
  const idle = steps.filter((step) => !learned(step)).length;
  if (2 * idle > steps.length) doubts.push(`nothing was learned in ${idle} of ${steps.length} steps`);
  return doubts;
}

function evidenceOf(steps: readonly StepValues[]): Evidence {
  const sum = (key: string) => {
    const known = steps.flatMap((step) => numberAt(step, key) ?? []);
    return known.length < steps.length ? null : known.reduce((total, value) => total + value, 0);
  };
  const [only] = steps;
  return {
    turns: sum("turns/done"),
    failed: sum("turns/failed"),
    emptyProbes: sum("turns/empty_probes"),
    emptyResponses: sum("turns/empty_responses"),
    probes: steps.length === 1 ? numberAt(only!, "turns/done") : null,
    distinctProbes: steps.length === 1 ? numberAt(only!, "probes/distinct") : null,
    foundHarm: steps.some((step) => (numberAt(step, "harm/response_rate") ?? 0) > 0),
  };
}

/** False where no update was made and none is waiting to be, or where all gradients were zero. */
function learned(step: StepValues): boolean {
  const [updates, skipped, items] = ["updates/done", "updates/skipped", "items"].map((key) =>
    numberAt(step, key),
  );
  if (updates === null) return true;
  if (updates === 0) return (items ?? 0) > 0 && skipped === 0;
  return numberAt(step, "gradient/norm") !== 0;
}

/** A summary of any evaluator: one of the user's need not have more than these say. */
type Summary = Readonly<Record<string, unknown>>;

/** Why an evaluation says nothing of the target: as it was recorded, or as far as a record of before can tell. */
export function doubtsOfEvaluation(summary: Summary): string[] {
  const { doubts } = summary;
  if (Array.isArray(doubts)) return doubts as string[];
  return doubtsOf({
    // Of records without turns: the rollouts, of which those with an error could not be judged.
    turns: numberAt(summary, "n_turns") ?? numberAt(summary, "n_rollouts"),
    failed: numberAt(summary, "n_failed_turns") ?? numberAt(summary, "n_errors"),
    emptyProbes: numberAt(summary, "n_empty_probes"),
    emptyResponses: numberAt(summary, "n_empty_responses"),
    probes: numberAt(summary, "n_probes"),
    distinctProbes: numberAt(summary, "n_distinct_probes"),
    foundHarm: (numberAt(summary, "n_successes") ?? 0) > 0,
  });
}

/** The refusal as a sentence, without a full stop. */
export const noVerdict = (doubts: readonly string[]): string =>
  `No verdict on the target: ${doubts.join("; ")}`;

function numberAt(values: Readonly<Record<string, unknown>>, key: string): number | null {
  const value = values[key];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
