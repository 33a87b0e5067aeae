import type { EvaluationDetail, EvaluationTurn, ReportEvaluation, ToolCallRecord } from "@astra-rl/records";

/** Which conversations are shown. */
export type Outcome = "harmful" | "harmless-probes" | "errors" | "all";
export type Order = "likely" | "harm" | "given";

/** A rollout, or several with the same probes. */
export interface Conversation {
  /** Index of the first in the evaluation, from 0. */
  index: number;
  turns: EvaluationTurn[];
  /** Rollouts with these probes. */
  count: number;
  /** Highest score of a response; null if none is known. */
  harm: number | null;
  /** Whether a harmful response followed only harmless probes, as judged by the evaluation. */
  harmlessProbes: boolean;
  /** Mean −log P of a probe token in nats; null if not measured. */
  nll: number | null;
  failed: boolean;
}

export interface Filter {
  outcome: Outcome;
  order: Order;
  /** Searched for in prompts, probes and responses, ignoring case. */
  query: string;
  /** Whether rollouts with the same probes are shown once. */
  once: boolean;
}

/** The conversations of an evaluation that match a filter, in its order. */
export function findConversations(
  { summary, details }: Pick<ReportEvaluation, "summary" | "details">,
  { outcome, order, query, once }: Filter,
): Conversation[] {
  const threshold = summary.harm_threshold;
  const wanted = query.trim().toLowerCase();
  const chosen = details
    .map((detail, index) => conversation(detail, index))
    .filter((found) => hasOutcome(found, outcome, threshold) && contains(found, wanted));
  if (order !== "given") chosen.sort(orders[order]);
  if (!once) return chosen;
  const grouped = new Map<string, Conversation>();
  for (const found of chosen) {
    const key = JSON.stringify(found.turns.map(({ probe }) => probe));
    const same = grouped.get(key);
    if (same === undefined) grouped.set(key, found);
    else same.count += 1;
  }
  return [...grouped.values()];
}

const orders: Record<"likely" | "harm", (a: Conversation, b: Conversation) => number> = {
  likely: (a, b) => (a.nll ?? Infinity) - (b.nll ?? Infinity) || a.index - b.index,
  harm: (a, b) => (b.harm ?? -1) - (a.harm ?? -1) || a.index - b.index,
};

/** One conversation of an evaluation. */
export const conversationAt = ({ details }: Pick<ReportEvaluation, "details">, index: number): Conversation =>
  conversation(details[index]!, index);

/** The messages before the first probe: speaker and text. */
export function promptOf({
  turns: [first],
}: Pick<Conversation, "turns">): readonly (readonly [string, string])[] {
  return first?.prompt_messages ?? [["prompt", first?.context ?? ""]];
}

/** What an agent did before it responded, on one line. */
function callText({ name, arguments: given, result, error }: ToolCallRecord): string {
  const returned = result === undefined ? "" : ` → ${JSON.stringify(result)}`;
  return `call: ${name}(${JSON.stringify(given)})${error === undefined ? returned : ` failed: ${error}`}`;
}

/** A conversation as text, for other programs. */
export function textOf(conversation: Conversation): string {
  const { turns } = conversation;
  const lines = turns.flatMap(({ probe, response, error, calls = [] }) => [
    `tester: ${probe.trim()}`,
    ...calls.map(callText),
    error === null ? `target: ${response.trim()}` : `target: (${error})`,
  ]);
  const prompt = promptOf(conversation).map(([from, text]) => `${from}: ${text.trim()}`);
  return [...prompt, ...lines].join("\n");
}

/** Whether an evaluation records for its rollouts if they succeeded with harmless probes only. */
export function knowsHarmlessProbes({ details }: Pick<ReportEvaluation, "details">): boolean {
  return details.some(({ overall }) => typeof overall["harmless_probe_success"] === "boolean");
}

function conversation({ overall, per_turn: turns }: EvaluationDetail, index: number): Conversation {
  const scores = turns.map(({ response_harm: score }) => score).filter((score) => score !== null);
  let total = 0;
  let tokens = 0;
  for (const { probe_nll, probe_tokens } of turns) {
    if (probe_nll === null || probe_tokens === null) continue;
    total += probe_nll * probe_tokens;
    tokens += probe_tokens;
  }
  return {
    index,
    turns,
    count: 1,
    harm: scores.length === 0 ? null : Math.max(...scores),
    harmlessProbes: overall["harmless_probe_success"] === true,
    nll: tokens === 0 ? null : total / tokens,
    failed: turns.some(({ error }) => error !== null),
  };
}

function hasOutcome(
  { harm, harmlessProbes, failed }: Conversation,
  outcome: Outcome,
  threshold: number,
): boolean {
  const harmful = (harm ?? 0) >= threshold;
  if (outcome === "harmful") return harmful;
  if (outcome === "harmless-probes") return harmlessProbes;
  return outcome === "all" || failed;
}

function contains({ turns }: Conversation, wanted: string): boolean {
  if (wanted === "") return true;
  return turns.some(({ context, probe, response }) =>
    [context, probe, response].some((text) => text.toLowerCase().includes(wanted)),
  );
}

/** A text in pieces, of which every second matches the search. */
export function matches(text: string, query: string): string[] {
  const wanted = query.trim().toLowerCase();
  const lower = text.toLowerCase();
  // A few letters have another length in lower case; then matches cannot be located.
  if (wanted === "" || lower.length !== text.length) return [text];
  const pieces: string[] = [];
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    pieces.push(text.slice(from, at), text.slice(at, at + wanted.length));
    from = at + wanted.length;
  }
  return [...pieces, text.slice(from)];
}
