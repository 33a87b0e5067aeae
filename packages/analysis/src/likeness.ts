import type { EvaluationRecord, MeasuredRecord } from "@astra-rl/records";

/** The parts of an evaluation that are compared. */
export interface Evaluated {
  summary: EvaluationRecord["summary"];
  details: EvaluationRecord["details"];
  goals?: EvaluationRecord["goals"];
  benign?: EvaluationRecord["benign"];
  /** null where it is unknown. */
  measured?: MeasuredRecord | null | undefined;
}

/** Options that affect requests to a scorer, but not its scores. */
const ASKING = [
  "cache",
  "budget",
  "concurrency",
  "timeout",
  "retry",
  "price",
  "apiKeyEnv",
  "headers",
  "batchSize",
  "device",
];

/**
 * Differences between the settings of two evaluations besides tester and target: with any of them, their rates are not
 * comparable. Each is a phrase such as "different prompts".
 */
export function differencesInSetup(a: Evaluated, b: Evaluated): string[] {
  const [first, second] = [a.measured ?? null, b.measured ?? null];
  const found: string[] = [];
  const differ = (phrase: string, one: unknown, other: unknown) => {
    if (stable(one) !== stable(other)) found.push(phrase);
  };
  if (a.details.length !== b.details.length)
    found.push(`${a.details.length} and ${b.details.length} rollouts`);
  else if (a.details.some((detail, at) => promptOf(detail) !== promptOf(b.details[at]!)))
    found.push("different prompts");
  else if (!haveSameGoals(a, b)) found.push("different goals");
  differ("different harm thresholds", a.summary.harm_threshold, b.summary.harm_threshold);
  if (first === null || second === null) {
    if (first !== second) found.push("no record of what one of them measured");
    return found;
  }
  differ("different scorers", scorerOf(first.scorer), scorerOf(second.scorer));
  differ("different numbers of turns", first.sampler["depth"], second.sampler["depth"]);
  differ("different samplers", { ...first.sampler, depth: 0 }, { ...second.sampler, depth: 0 });
  differ("different generation settings of the tester", first.generation.tester, second.generation.tester);
  differ("different generation settings of the target", first.generation.target, second.generation.target);
  if (first.benign !== undefined && second.benign !== undefined) {
    differ("different benign prompts", first.benign.sha256, second.benign.sha256);
    differ("different scorers of refusals", first.benign.refusal, second.benign.refusal);
  }
  differ("different conversation formats", first.formats, second.formats);
  differ(`versions ${first.astra_rl} and ${second.astra_rl} of astra-rl`, first.astra_rl, second.astra_rl);
  return found;
}

/** Whether rollouts have the same goals, in the same order; the texts of goals count, which say what is judged. */
function haveSameGoals(a: Evaluated, b: Evaluated): boolean {
  const [first, second] = [a, b].map(
    ({ goals = [] }) => new Map(goals.map(({ id, text }) => [id, text] as const)),
  );
  return a.details.every(({ overall: { goal } }, at) => {
    const other = b.details[at]!.overall.goal;
    return goal === other && (goal === undefined || first!.get(goal) === second!.get(goal));
  });
}

/** Whether two evaluations have the same reward, so that their rewards can be compared. */
export const hasSameReward = (a: Evaluated, b: Evaluated): boolean =>
  stable(a.measured?.reward) === stable(b.measured?.reward);

/** Whether the same model computes the likelihoods. */
export function hasSameLikelihood(a: Evaluated, b: Evaluated): boolean {
  const modelOf = ({ measured }: Evaluated) => hashes(measured?.likelihood ?? measured?.target);
  return stable(modelOf(a)) === stable(modelOf(b));
}

/** The names of an evaluation's tester and target. */
export const rolesOf = ({ measured }: Evaluated): { tester: string; target: string } => ({
  tester: measured?.tester.model ?? "the tester",
  target: measured?.target.model ?? "the target",
});

/** The text of the prompt that a rollout starts from. */
export const promptOf = ({ per_turn: [turn] }: EvaluationRecord["details"][number]) => turn?.context ?? "";

/** What tells rollouts apart that are compared: the prompt, and the goal's text if there is one. */
export function startOf(detail: EvaluationRecord["details"][number], { goals = [] }: Evaluated): string {
  const { goal } = detail.overall;
  if (goal === undefined) return promptOf(detail);
  return JSON.stringify([promptOf(detail), goal, goals.find(({ id }) => id === goal)?.text]);
}

/** A model's identity: its files, in any folder; its name if it has none, as on a server. */
function hashes(model: MeasuredRecord["target"] | undefined): unknown {
  if (model === undefined) return null;
  return Object.keys(model.files).length > 0 ? model.files : model.model;
}

/** What determines a scorer's scores: its options, and its files by content. */
function scorerOf({ models, ...options }: MeasuredRecord["scorer"]): unknown {
  const kept = Object.entries(options).filter(
    ([key]) => !ASKING.includes(key) && !(key === "file" && "sha256" in options),
  );
  const weights = (models ?? []).map(hashes);
  // Weights identify a model better than its path.
  return [Object.fromEntries(kept.filter(([key]) => key !== "model" || weights.length === 0)), weights];
}

/** JSON with sorted keys. */
function stable(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
