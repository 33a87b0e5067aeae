import { jsonOf, type CreditTable, type Graph, type Node } from "../core/index.js";
import type { MetricValue } from "../records/index.js";
import { distinctNgrams, selfBLEU, words } from "../text/index.js";

/** How different a step's probes are, and how long; null where probes are no texts. */
export function probeValues<S, A>(graphs: readonly Graph<S, A>[]): Record<string, MetricValue> {
  const probes = graphs.flatMap((graph) => [...graph.nodes()].map(({ probe }) => jsonOf(probe)));
  const texts = probes.filter((probe) => typeof probe === "string");
  const isText = texts.length === probes.length && texts.length > 0;
  const sequences = isText ? texts.map(words) : [];
  const length = sequences.reduce((sum, sequence) => sum + sequence.length, 0) / sequences.length;
  return {
    // A step's turns may repeat each other; where nearly all do, little is left to learn from.
    "probes/distinct": new Set<unknown>(probes).size,
    "probes/distinct_2": distinctNgrams(sequences, 2),
    "probes/self_bleu": selfBLEU(sequences),
    "probes/length": isText ? length : null,
  };
}

/** Share of siblings that are all credited with the same, of those of which at least two are credited at all. */
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
