import type { ReportGraph, ReportNode } from "@astra-rl/records";

/** A node and its position in its tree. */
export interface Placed {
  node: ReportNode;
  /** Indices from the root, such as "0.1.0": its identifier. */
  path: string;
  /** From 1. */
  level: number;
  parent: string | null;
  /** Position among its siblings, from 1, and their number. */
  place: number;
  siblings: number;
}

/** All nodes of a graph, parents before children. */
export function placedNodes({ children }: Pick<ReportGraph, "children">): Placed[] {
  const all: Placed[] = [];
  // No recursion: a record may be deeper than a stack is.
  const waiting: Placed[] = placed(children, null, 1).reverse();
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    all.push(next);
    waiting.push(...placed(next.node.children, next.path, next.level + 1).reverse());
  }
  return all;
}

function placed(nodes: readonly ReportNode[], parent: string | null, level: number): Placed[] {
  return nodes.map((node, index) => ({
    node,
    path: parent === null ? String(index) : `${parent}.${index}`,
    level,
    parent,
    place: index + 1,
    siblings: nodes.length,
  }));
}

/** The visible ones: none of their ancestors is closed. */
export function openNodes(all: readonly Placed[], closed: ReadonlySet<string>): Placed[] {
  const hidden = new Set<string>();
  return all.filter(({ path, parent }) => {
    const isHidden = parent !== null && (hidden.has(parent) || closed.has(parent));
    if (isHidden) hidden.add(path);
    return !isHidden;
  });
}

/** Position of each node of a graph: horizontally by its leaves, vertically by its level, both from 0 to 1. */
export function layout(all: readonly Placed[]): Map<string, { x: number; y: number }> {
  const depth = Math.max(1, ...all.map(({ level }) => level));
  const places = new Map<string, { x: number; y: number }>();
  const leaves = all.filter(({ node }) => node.children.length === 0);
  const across = (index: number) => (leaves.length === 1 ? 0.5 : index / (leaves.length - 1));
  for (const [index, { path, level }] of leaves.entries())
    places.set(path, { x: across(index), y: level / depth });
  // Children follow their parents, so in reverse order they are placed first.
  for (const { node, path, level } of [...all].reverse()) {
    if (node.children.length === 0) continue;
    const xs = node.children.map((_, index) => places.get(`${path}.${index}`)!.x);
    places.set(path, { x: xs.reduce((sum, x) => sum + x, 0) / xs.length, y: level / depth });
  }
  return places;
}

export const harmOf = (node: ReportNode, which: "probe" | "response"): number | null =>
  node.scores?.[which] ?? null;

/** The highest score of a graph's responses; null if none is known. */
export function worstResponse(graph: ReportGraph): number | null {
  const scores = placedNodes(graph)
    .map(({ node }) => harmOf(node, "response"))
    .filter((score) => score !== null);
  return scores.length === 0 ? null : scores.reduce((a, b) => Math.max(a, b));
}

/** The nodes on the path to the leaf with the highest total reward; the first in ties. Turns that failed count as 0. */
export function bestPath(all: readonly Placed[]): Set<string> {
  const totals = new Map<string, number>();
  let best: { path: string; total: number } | null = null;
  for (const { node, path, parent } of all) {
    const total = (parent === null ? 0 : totals.get(parent)!) + (node.reward ?? 0);
    totals.set(path, total);
    if (node.children.length === 0 && (best === null || total > best.total)) best = { path, total };
  }
  const places = best === null ? [] : best.path.split(".");
  return new Set(places.map((_, index) => places.slice(0, index + 1).join(".")));
}
