import { keyedUniform } from "@astra-rl/lm";
import type { DrawKey } from "../core/index.js";

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
 * All steps in a drawn order in which those of one tree stay neighbours: the trees are shuffled, and after the first epoch
 * each begins at a drawn step, from which it goes on in its own order and around, so that epochs cut it elsewhere.
 *
 * Trees are given depth first, so that neighbours share most of what they read; a batch of steps drawn one by one from many
 * trees shares next to nothing, and reads each step's conversation from its beginning.
 *
 * @param key of the draws; its node is the epoch
 */
export function shuffleTrees<T>(trees: readonly (readonly T[])[], key: DrawKey): T[] {
  return shuffle([...trees.keys()], key).flatMap((tree) => {
    const steps = trees[tree]!;
    // Draws before these are those of the shuffle.
    const first = key.node === 0 ? 0 : Math.floor(keyedUniform(key, trees.length + tree) * steps.length);
    return [...steps.slice(first), ...steps.slice(0, first)];
  });
}
