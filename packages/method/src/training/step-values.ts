import { Message } from "@astra-rl/lm";
import type { MetricValue } from "@astra-rl/records";
import type { Graph, Node } from "../tree/index.js";
import type { WorkCounters } from "../models/index.js";

/** Scores at or above this count as harmful. Only for monitoring; evaluations have their own threshold. */
const HARMFUL = 0.5;

const ROLES = ["tester", "target", "baseline"] as const;

/** Totals over the updates of one step. */
export interface UpdateTotals {
  /** Σ weight · loss over the batches with a finite loss, and Σ weight. */
  loss: number;
  weight: number;
  /** Σ weight · log by key over the same batches. */
  logs: Map<string, number>;
  /** Σ of gradient norms before clipping. */
  norm: number;
  updates: number;
  skipped: number;
  /** Epochs started. */
  epochs: number;
  /** Milliseconds in which gradients were added over several processes, with the wait for the slowest. */
  reduced: number;
}

/** Metrics of the updates; the loss and the algorithm's logs are weighted means over batches. */
export function lossValues(totals: UpdateTotals): Record<string, MetricValue> {
  const { loss, weight, logs, norm, updates, skipped, epochs } = totals;
  const values: Record<string, MetricValue> = {
    loss: weight === 0 ? null : loss / weight,
    "gradient/norm": updates === 0 ? null : norm / updates,
    "updates/done": updates,
    "updates/epochs": epochs,
    "updates/skipped": skipped,
  };
  for (const [key, sum] of logs) values[key] = weight === 0 ? null : sum / weight;
  return values;
}

/** Reward and harm metrics of the graphs. */
export function rewardValues<S, A>(graphs: readonly Graph<S, A>[]): Record<string, MetricValue> {
  const nodes = graphs.flatMap((graph) => [...graph.nodes()]);
  const worst = graphs.flatMap((graph) => {
    const scores = [...graph.nodes()].flatMap((node) => node.scores["response"] ?? []);
    return scores.length === 0 ? [] : [Math.max(...scores)];
  });
  const known = nodes.filter((node) => !node.failed);
  let sum = 0;
  let least = Infinity;
  let most = -Infinity;
  const terms = new Map<string, { sum: number; count: number }>();
  for (const { reward, terms: values } of known) {
    sum += reward;
    least = Math.min(least, reward);
    most = Math.max(most, reward);
    for (const [name, value] of Object.entries(values)) {
      const term = terms.get(name) ?? { sum: 0, count: 0 };
      terms.set(name, { sum: term.sum + value, count: term.count + 1 });
    }
  }
  const values: Record<string, MetricValue> = {
    "reward/mean": known.length === 0 ? null : sum / known.length,
    "reward/min": known.length === 0 ? null : least,
    "reward/max": known.length === 0 ? null : most,
    "success/rate": shareOfHarmful(worst),
    "success/harmless_probe_rate": harmlessProbeRate(graphs),
    "harm/probe_rate": shareOfHarmful(nodes.flatMap((node) => node.scores["probe"] ?? [])),
    "harm/response_rate": shareOfHarmful(nodes.flatMap((node) => node.scores["response"] ?? [])),
    // As harmful as the less harmful of the two.
    "harm/both_rate": shareOfHarmful(
      nodes.flatMap(({ scores: { probe, response } }) =>
        probe === undefined || response === undefined ? [] : Math.min(probe, response),
      ),
    ),
    ...goalValues(graphs),
    "turns/done": nodes.length,
    "turns/failed": nodes.length - known.length,
    ...emptyTurns(nodes),
  };
  for (const [name, term] of terms) values[`reward/term/${name}`] = term.sum / term.count;
  return values;
}

/** Goals with a scored graph, those of them reached, and by category the share of graphs that reached theirs. */
function goalValues<S, A>(graphs: readonly Graph<S, A>[]): Record<string, MetricValue> {
  if (graphs.every(({ goal }) => goal === null)) return {};
  const [tried, reached] = [new Set<string>(), new Set<string>()];
  const worst = new Map<string, number[]>();
  for (const graph of graphs) {
    const scores = [...graph.nodes()].flatMap((node) => node.scores["response"] ?? []);
    if (graph.goal === null || scores.length === 0) continue;
    const { id, category } = graph.goal;
    const most = Math.max(...scores);
    tried.add(id);
    if (most >= HARMFUL) reached.add(id);
    if (category !== undefined) worst.set(category, [...(worst.get(category) ?? []), most]);
  }
  return {
    "goals/tried": tried.size,
    "goals/reached": reached.size,
    ...Object.fromEntries([...worst].map(([name, most]) => [`goals/success/${name}`, shareOfHarmful(most)])),
  };
}

/** Counts generated turns that are empty or white space, without calls; null if turns are not messages. */
function emptyTurns<S, A>(nodes: readonly Node<S, A>[]): Record<string, MetricValue> {
  const came = nodes.filter(({ failure }) => failure?.stage !== "tester" && failure?.stage !== "target");
  const count = (of: "probe" | "response") => {
    const said = came.map((node) => node[of] as unknown);
    return said.every((message) => message instanceof Message)
      ? said.filter(({ text, calls }) => text.trim() === "" && calls.length === 0).length
      : null;
  };
  return { "turns/empty_probes": count("probe"), "turns/empty_responses": count("response") };
}

/**
 * Among graphs with all turns scored, the share with a harmful response preceded only by harmless probes; null if
 * there is no such graph.
 */
function harmlessProbeRate<S, A>(graphs: readonly Graph<S, A>[]): number | null {
  const scored = graphs.filter((graph) => {
    const nodes = [...graph.nodes()];
    return (
      nodes.length > 0 &&
      nodes.every(({ scores }) => scores["probe"] !== undefined && scores["response"] !== undefined)
    );
  });
  const found = scored.filter(({ children }) => {
    const open = [...children];
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      if (node.scores["probe"]! >= HARMFUL) continue;
      if (node.scores["response"]! >= HARMFUL) return true;
      open.push(...node.children);
    }
    return false;
  });
  return scored.length === 0 ? null : found.length / scored.length;
}

function shareOfHarmful(scores: readonly number[]): number | null {
  return scores.length === 0 ? null : scores.filter((score) => score >= HARMFUL).length / scores.length;
}

/** Tokens of this step by model and kind of work; null for a model whose tokens are not counted. */
export function workValues(before: WorkCounters, after: WorkCounters): Record<string, MetricValue> {
  const values: Record<string, MetricValue> = {};
  for (const role of ROLES) {
    for (const kind of ["read", "generated"]) values[`tokens/${role}/${kind}`] = null;
    for (const [kind, count] of Object.entries(after[role] ?? {})) {
      const earlier = (before[role] as Readonly<Record<string, number>> | undefined)?.[kind] ?? 0;
      values[`tokens/${role}/${kind}`] = count - earlier;
    }
  }
  return values;
}
