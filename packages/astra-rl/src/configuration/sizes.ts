import type { Misfit } from "../kinds/index.js";
import { turnsOfTree } from "../sampler/index.js";
import { findKind } from "./registry.js";
import type { Configuration } from "./schema.js";

/** What every sampler of the package says of its trees. */
interface TreeSize {
  /** Absent where it is always 1. */
  width?: number;
  depth: number;
  maxTurns: number;
}

/** What would take more turns at once than the sampler's limit allows; null where everything fits. */
export function tooManyTurns({ sampler, training, evaluation }: Configuration): Misfit | null {
  // Of a sampler of the user's nobody knows how much it grows.
  if (findKind("sampler", sampler.type) === null) return null;
  const { width = 1, depth, maxTurns } = sampler as unknown as TreeSize;
  const { numEpisodesPerExperience: episodes } = training;
  const turns = turnsOfTree(width, depth);
  const limit = `sampler.maxTurns allows ${maxTurns.toLocaleString("en-US")}`;
  if (episodes * turns > maxTurns) {
    const path = ["training", "numEpisodesPerExperience"];
    const total = (episodes * turns).toLocaleString("en-US");
    return {
      path,
      message: `${episodes} trees of ${turns} turns make ${total} turns in a step, and ${limit}`,
    };
  }
  if ((evaluation.depth ?? 0) > maxTurns) {
    return {
      path: ["evaluation", "depth"],
      message: `a conversation of ${evaluation.depth} turns is too long; ${limit}`,
    };
  }
  return null;
}
