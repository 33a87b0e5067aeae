import { dot } from "./dot.js";

/**
 * Sequential leader clustering (Hartigan, "Clustering Algorithms", 1975, chapter 3): each vector, in order, joins the
 * cluster of the nearest leader with cosine at least `similarity` (the earliest in ties), or else starts a new
 * cluster. So no two leaders are similar, and every vector is similar to its leader.
 *
 * Deterministic, but the number of clusters depends slightly on the order, in exchange for a single pass instead of a
 * hierarchy over all pairs. Unlike single linkage, chains of small steps do not merge.
 *
 * @param vectors unit vectors; a zero vector is similar only to zero vectors
 * @returns the cluster index of each vector, from 0 in order of the leaders
 */
export function leaderClusters(vectors: readonly Float32Array[], similarity: number): number[] {
  const leaders: Float32Array[] = [];
  const known = new Map<Float32Array, number>();
  return vectors.map((vector) => {
    const same = known.get(vector);
    if (same !== undefined) return same;
    const isZero = !vector.some((value) => value !== 0);
    let cluster = -1;
    let nearest = similarity - ROUNDING;
    for (const [index, leader] of leaders.entries()) {
      const cosine = isZero && !leader.some((value) => value !== 0) ? 1 : dot(vector, leader);
      if (cosine < nearest || (cluster >= 0 && cosine === nearest)) continue;
      nearest = cosine;
      cluster = index;
    }
    if (cluster < 0) cluster = leaders.push(vector) - 1;
    known.set(vector, cluster);
    return cluster;
  });
}

/** In float32, the cosine may be slightly below the true one. */
const ROUNDING = 1e-6;

/** exp of the entropy of the cluster sizes: the equivalent number of equal-sized clusters; null if there are none. */
export function effectiveCount(clusters: readonly number[]): number | null {
  if (clusters.length === 0) return null;
  const sizes = new Map<number, number>();
  for (const cluster of clusters) sizes.set(cluster, (sizes.get(cluster) ?? 0) + 1);
  let entropy = 0;
  for (const size of sizes.values()) {
    const share = size / clusters.length;
    entropy -= share * Math.log(share);
  }
  return Math.exp(entropy);
}

/**
 * 1 − mean cosine over all pairs i ≠ j; null for fewer than two vectors. Computed in one pass from |Σ u|² = N + Σ
 * over pairs.
 *
 * @param vectors unit vectors or zero vectors
 */
export function meanPairwiseDistance(vectors: readonly Float32Array[]): number | null {
  const n = vectors.length;
  if (n < 2) return null;
  const sum = new Float64Array(vectors[0]!.length);
  let own = 0;
  for (const vector of vectors) {
    for (const [at, value] of vector.entries()) sum[at]! += value;
    own += dot(vector, vector);
  }
  return 1 - (dot(sum, sum) - own) / (n * (n - 1));
}

export interface ClusterOf {
  /** The medoid: the member with the highest total cosine to all members; the earliest in ties. */
  representative: number;
  /** Indices in ascending order. */
  members: number[];
}

/**
 * The members and the medoid of each cluster, largest first, equally large ones by their first member.
 *
 * @param clusters the cluster of each vector, as `leaderClusters` returns them
 * @param vectors unit vectors or zero vectors
 */
export function clusterRecords(clusters: readonly number[], vectors: readonly Float32Array[]): ClusterOf[] {
  const members = new Map<number, number[]>();
  for (const [index, cluster] of clusters.entries()) {
    const known = members.get(cluster);
    if (known === undefined) members.set(cluster, [index]);
    else known.push(index);
  }
  const records = [...members.values()].map((indices): ClusterOf => {
    // The sum of cosines to all members is the cosine to the sum of the members.
    const sum = new Float64Array(vectors[indices[0]!]!.length);
    for (const index of indices) for (const [at, value] of vectors[index]!.entries()) sum[at]! += value;
    const totals = indices.map((index) => dot(sum, vectors[index]!));
    const most = Math.max(...totals);
    // Equal texts may differ in the last bits.
    const at = totals.findIndex((total) => total >= most - ROUNDING);
    return { representative: indices[at]!, members: indices };
  });
  return records.sort((a, b) => b.members.length - a.members.length || a.members[0]! - b.members[0]!);
}
