import { distributed } from "@astra-rl/torch";
import { packGraphs, unpackGraphs } from "../tree/graph-parcel.js";
import type { Graph } from "../tree/index.js";
import type { Sampler } from "./sampler.js";

/**
 * A rank's contiguous share of a list: neighbors, which share prefixes, stay together.
 *
 * @param together consecutive values with the same key are in the same share
 * @returns the share and the index of its first element
 */
export function shareOf<T>(
  values: readonly T[],
  {
    rank = distributed.rank(),
    worldSize = distributed.worldSize(),
    together = (_: T, index: number): unknown => index,
  } = {},
): { first: number; share: readonly T[] } {
  const boundary = (at: number) => {
    let index = Math.floor((values.length * at) / worldSize);
    while (
      index > 0 &&
      index < values.length &&
      together(values[index]!, index) === together(values[index - 1]!, index - 1)
    ) {
      index += 1;
    }
    return index;
  };
  const first = boundary(rank);
  return { first, share: values.slice(first, boundary(rank + 1)) };
}

/**
 * Computes a result for all values, each rank for its share of them. Every rank gets the results of all shares, in
 * order; there is none for an empty share.
 *
 * @param together see `shareOf`
 */
export async function inShares<T, R>(
  values: readonly T[],
  compute: (share: readonly T[], first: number) => Promise<R>,
  together?: (value: T, index: number) => unknown,
): Promise<R[]> {
  if (distributed.worldSize() === 1) return [await compute(values, 0)];
  const { first, share } = shareOf(values, { together });
  const own = share.length === 0 ? [] : [await compute(share, first)];
  return (await distributed.allGatherObject(own)).flat();
}

/**
 * Grows graphs, each rank its share of the starts. Every rank gets the graphs of all starts, in order, with the results
 * computed from them: a rank's own graphs themselves, those of other ranks as copies.
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
