import type { Misfit } from "../kinds/index.js";
import { turnsOfTree } from "../sampler/index.js";
import { findKind } from "./registry.js";
import type { Configuration } from "./schema.js";

/**
 * What sections that are right by themselves do not allow together; null where everything fits.
 *
 * @param trains whether the algorithm is used
 */
export const misfitOf = async (configuration: Configuration, trains: boolean): Promise<Misfit | null> =>
  tooManyTurns(configuration) ?? (trains ? await algorithmMisfit(configuration) : null);

/** More turns at once than the sampler's limit allows. */
function tooManyTurns({ sampler, training, evaluation }: Configuration): Misfit | null {
  // How much a sampler of the user's grows is not known.
  if (findKind("sampler", sampler.type) === null) return null;
  const {
    width = 1,
    depth,
    maxTurns,
  } = sampler as unknown as {
    /** Absent where it is always 1. */
    width?: number;
    depth: number;
    maxTurns: number;
  };
  const { numEpisodesPerExperience: episodes } = training;
  const turns = turnsOfTree(width, depth);
  const [total, most] = [episodes * turns, maxTurns].map((count) => count.toLocaleString("en-US"));
  const limit = `sampler.maxTurns allows ${most}`;
  if (episodes * turns > maxTurns) {
    return {
      path: ["training", "numEpisodesPerExperience"],
      message: `${episodes} trees of ${turns} turns make ${total} turns in a step, and ${limit}`,
    };
  }
  const { depth: evaluated = 0 } = evaluation;
  if (evaluated <= maxTurns) return null;
  return {
    path: ["evaluation", "depth"],
    message: `a conversation of ${evaluated} turns is too long; ${limit}`,
  };
}

/** Something that the chosen algorithm does not go with. */
async function algorithmMisfit({ sampler, seed, algorithm, credit }: Configuration): Promise<Misfit | null> {
  const { type, ...options } = algorithm;
  const kind = findKind("algorithm", type);
  if (kind?.check === undefined) return null;
  const { type: creditType, ...creditOptions } = credit;
  const made = (await findKind("credit", creditType)?.make(creditOptions, { seed })) ?? null;
  return kind.check(options, { sampler, credit: made });
}
