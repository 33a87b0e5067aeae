import { keyedUniform, type DrawKey } from "@astra-rl/base";

/** A shuffled copy (Fisher–Yates); the order depends only on the key and the number of values. */
function shuffle<T>(values: readonly T[], key: DrawKey): T[] {
  const shuffled = [...values];
  for (let last = shuffled.length - 1; last > 0; last--) {
    const other = Math.floor(keyedUniform(key, last) * (last + 1));
    [shuffled[last], shuffled[other]] = [shuffled[other]!, shuffled[last]!];
  }
  return shuffled;
}

/**
 * Length of the runs that stay together. Half a tree of width 2 and depth 3: a batch mixes many trees, but computes
 * few more tokens than with whole trees.
 */
const TOGETHER = 4;

/**
 * Shuffles all steps in runs of at most four adjacent steps of one tree. In the first epoch (0) a tree is split from
 * its first step; in later epochs from a random step, wrapping around.
 *
 * Trees are in depth-first order, so that adjacent steps share most of their prefix. Steps sampled one by one from
 * many trees share almost nothing, and each conversation has to be computed from its beginning.
 *
 * @param key key of the random draws; its `node` is the epoch
 */
export function shuffleRuns<T>(trees: readonly (readonly T[])[], key: DrawKey): T[] {
  const count = trees.reduce((sum, steps) => sum + steps.length, 0);
  const runs = trees.flatMap((steps, tree) => {
    // The shuffle uses the draws below `count`.
    const first = key.node === 0 ? 0 : Math.floor(keyedUniform(key, count + tree) * steps.length);
    const turned = [...steps.slice(first), ...steps.slice(0, first)];
    return Array.from({ length: Math.ceil(steps.length / TOGETHER) }, (_, run) =>
      turned.slice(run * TOGETHER, (run + 1) * TOGETHER),
    );
  });
  return shuffle(runs, key).flat();
}
