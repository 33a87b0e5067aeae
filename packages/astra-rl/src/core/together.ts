import { distributed } from "@astra-rl/torch";
import { packGraphs, unpackGraphs } from "./graph-parcel.js";
import type { Graph } from "./graph.js";
import type { Sampler } from "./sampler.js";

/**
 * A rank's contiguous share of a list: neighbors, which share prefixes, stay together.
 *
 * @returns the share and the index of its first element
 */
export function shareOf<T>(
  values: readonly T[],
  rank = distributed.rank(),
  worldSize = distributed.worldSize(),
): { first: number; share: readonly T[] } {
  const first = Math.floor((values.length * rank) / worldSize);
  return { first, share: values.slice(first, Math.floor((values.length * (rank + 1)) / worldSize)) };
}

/**
 * Computes something about all values, each rank for its share of them. Every rank gets the results of all shares, in
 * order; there is none for an empty share.
 */
export async function inShares<T, R>(
  values: readonly T[],
  compute: (share: readonly T[], first: number) => Promise<R>,
): Promise<R[]> {
  if (distributed.worldSize() === 1) return [await compute(values, 0)];
  const { first, share } = shareOf(values);
  const own = share.length === 0 ? [] : [await compute(share, first)];
  return (await distributed.allGatherObject(own)).flat();
}

/**
 * Grows graphs, each rank its share of the starts. Every rank gets the graphs of all starts, in order, with what was
 * computed about them: a rank's own graphs as they are, those of other ranks as copies.
 */
export async function growInShares<Start, S, A, R>(
  starts: readonly Start[],
  sampler: Sampler<S, A>,
  grow: (share: readonly Start[], first: number) => Promise<{ graphs: Graph<S, A>[]; about: R[] }>,
): Promise<{ graphs: Graph<S, A>[]; about: R[] }> {
  if (distributed.worldSize() === 1) return grow(starts, 0);
  const { first, share } = shareOf(starts);
  const own = share.length === 0 ? { graphs: [], about: [] } : await grow(share, first);
  const all = await distributed.allGatherObject({ graphs: packGraphs(own.graphs), about: own.about });
  return {
    graphs: all.flatMap(({ graphs }, rank) =>
      rank === distributed.rank()
        ? own.graphs
        : unpackGraphs<S, A>(graphs, (fields) => sampler.nodeFrom(fields)),
    ),
    about: all.flatMap(({ about }) => about),
  };
}
