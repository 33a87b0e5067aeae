import type { MetricValue } from "@astra-rl/records";
import { distinctNgrams, selfBLEU, words } from "@astra-rl/base";
import { jsonOf, type CreditTable, type Graph, type Node } from "../tree/index.js";

/** Diversity, length and likelihood of a step's probes; null if probes are not strings, or the likelihood is unknown. */
export function probeValues<S, A>(graphs: readonly Graph<S, A>[]): Record<string, MetricValue> {
  const nodes = graphs.flatMap((graph) => [...graph.nodes()]);
  const probes = nodes.map(({ probe }) => jsonOf(probe));
  const texts = probes.filter((probe) => typeof probe === "string");
  const isText = texts.length === probes.length && texts.length > 0;
  const sequences = isText ? texts.map(words) : [];
  const length = sequences.reduce((sum, sequence) => sum + sequence.length, 0) / sequences.length;
  const counts = new Map<string, number>();
  // Objects are compared by content.
  for (const key of probes.map((probe) => JSON.stringify(probe))) counts.set(key, (counts.get(key) ?? 0) + 1);
  const nlls = nodes.flatMap(({ likelihood }) => likelihood?.nll ?? []);
  return {
    // If nearly all probes are equal, there is little left to learn from.
    "probes/distinct": counts.size,
    "probes/most_frequent": probes.length === 0 ? null : Math.max(...counts.values()) / probes.length,
    "probes/distinct_2": distinctNgrams(sequences, 2),
    "probes/self_bleu": selfBLEU(sequences),
    "probes/length": isText ? length : null,
    "probes/nll": nlls.length === 0 ? null : nlls.reduce((sum, nll) => sum + nll, 0) / nlls.length,
  };
}

/** Among sibling groups with at least two credited nodes, the share in which all credits are equal. */
export function tiedGroups<S, A>(
  graphs: readonly Graph<S, A>[],
  credits: readonly CreditTable<S, A>[],
): number | null {
  let groups = 0;
  let tied = 0;
  for (const [index, graph] of graphs.entries()) {
    const credit = credits[index]!;
    for (const siblings of graph.siblings()) {
      const worth = siblings.flatMap((node: Node<S, A>) => credit.get(node) ?? []);
      if (worth.length < 2) continue;
      groups += 1;
      if (worth.every((value) => value === worth[0])) tied += 1;
    }
  }
  return groups === 0 ? null : tied / groups;
}
