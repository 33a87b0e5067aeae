import { turnsOfTree, type Inconsistency } from "@astra-rl/method";
import { findKind } from "./registry.js";
import type { Configuration } from "./schema.js";

/**
 * Checks that individually valid sections are compatible; null if they are.
 *
 * @param trains whether the algorithm will be used
 */
export const misfitOf = async (
  configuration: Configuration,
  trains: boolean,
): Promise<Inconsistency | null> =>
  tooManyTurns(configuration) ??
  (trains ? (remoteTester(configuration) ?? (await algorithmMisfit(configuration))) : null);

/** Training changes the tester's weights, which a server does not allow. */
function remoteTester({ models }: Configuration): Inconsistency | null {
  const { type } = (models.tester ?? {}) as { type?: string };
  if (type === undefined) return null;
  return {
    rule: "not-a-checkpoint",
    path: ["models", "tester"],
    message:
      "a tester that is trained must be a checkpoint, since training changes its weights, which a server " +
      "does not allow; `rollout` and `eval` accept a model on a server",
  };
}

/** Checks the number of parallel turns against the sampler's limit. */
function tooManyTurns({ sampler, training, evaluation }: Configuration): Inconsistency | null {
  // The number of turns of a custom sampler is unknown.
  if (findKind("sampler", sampler.type) === null) return null;
  // The width is absent where it is always 1.
  type Trees = { width?: number; depth: number; keep?: number; maxTurns: number };
  const { width = 1, depth, keep, maxTurns } = sampler as unknown as Trees;
  const { numEpisodesPerExperience: episodes } = training;
  const turns = turnsOfTree(width, depth, keep);
  const [total, most] = [episodes * turns, maxTurns].map((count) => count.toLocaleString("en-US"));
  const limit = `sampler.maxTurns allows ${most}`;
  if (episodes * turns > maxTurns) {
    return {
      rule: "too-many-turns",
      path: ["training", "numEpisodesPerExperience"],
      message: `${episodes} trees of ${turns} turns are ${total} turns per step, but ${limit}`,
    };
  }
  const { depth: evaluated = 0 } = evaluation;
  if (evaluated <= maxTurns) return null;
  return {
    rule: "too-many-turns",
    path: ["evaluation", "depth"],
    message: `a conversation of ${evaluated} turns is too long; ${limit}`,
  };
}

/** Checks what the selected algorithm is incompatible with. */
async function algorithmMisfit({
  sampler,
  seed,
  algorithm,
  credit,
}: Configuration): Promise<Inconsistency | null> {
  const { type, ...options } = algorithm;
  const kind = findKind("algorithm", type);
  if (kind?.check === undefined) return null;
  const { type: creditType, ...creditOptions } = credit;
  const made = (await findKind("credit", creditType)?.make(creditOptions, { seed })) ?? null;
  return kind.check(options, { sampler, credit: made });
}
