import { keyedUniform } from "@astra-rl/lm";
import type { DrawKey } from "@astra-rl/lm";

/** A shuffled copy (Fisher and Yates) whose order is a function of the key and the number of values. */
function shuffle<T>(values: readonly T[], key: DrawKey): T[] {
  const shuffled = [...values];
  for (let last = shuffled.length - 1; last > 0; last--) {
    const other = Math.floor(keyedUniform(key, last) * (last + 1));
    [shuffled[last], shuffled[other]] = [shuffled[other]!, shuffled[last]!];
  }
  return shuffled;
}

/**
 * Steps that stay neighbours. Half a tree of width 2 and depth 3: a batch holds parts of many trees, and reads little more
 * than if it held whole ones.
 */
const TOGETHER = 4;

/**
 * All steps in a drawn order, of each tree a few neighbours at a time: runs of at most four, in which a tree is cut from its
 * first step on, after the first epoch from a drawn one on and around.
 *
 * Trees are given depth first, so that neighbours share most of what they read; a batch of steps drawn one by one from many
 * trees shares next to nothing, and reads each step's conversation from its beginning.
 *
 * @param key of the draws; its node is the epoch
 */
export function shuffleRuns<T>(trees: readonly (readonly T[])[], key: DrawKey): T[] {
  const count = trees.reduce((sum, steps) => sum + steps.length, 0);
  const runs = trees.flatMap((steps, tree) => {
    // Draws before these are those of the shuffle.
    const first = key.node === 0 ? 0 : Math.floor(keyedUniform(key, count + tree) * steps.length);
    const turned = [...steps.slice(first), ...steps.slice(0, first)];
    return Array.from({ length: Math.ceil(steps.length / TOGETHER) }, (_, run) =>
      turned.slice(run * TOGETHER, (run + 1) * TOGETHER),
    );
  });
  return shuffle(runs, key).flat();
}
