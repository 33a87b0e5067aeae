import { UsageError } from "@astra-rl/torch";
import type { Beside, Credit, Misfit } from "../core/index.js";

/** Fails for a sampler that grows one child a node, for algorithms that compare siblings. */
export function requireSiblings(name: string, sampler: object): void {
  const reason = widthProblem(name, (sampler as { width?: unknown }).width);
  if (reason !== null) throw new UsageError(`${name}: the sampler's tree width ${reason}`);
}

/** As `requireSiblings`, of a configuration. */
export function siblingsMissing(name: string, { sampler }: Beside): Misfit | null {
  const reason = widthProblem(name, sampler["width"]);
  return reason === null ? null : { path: ["sampler", "width"], message: reason };
}

function widthProblem(name: string, width: unknown): string | null {
  // Of a sampler of the user's own nobody knows how wide its trees are.
  if (typeof width !== "number" || width >= 2) return null;
  return (
    `must be at least 2, got ${width}. ${name} learns from the difference between siblings, and a single child has ` +
    `none: set the width to 2 or more, or choose an algorithm that learns from single rollouts, such as reinforce or ppo`
  );
}

/** What an algorithm's advantages do by themselves, so that a credit must not have done it before. */
export interface AdvantageUse {
  /** They look ahead, by values. */
  usesValues: boolean;
  /** They compare siblings. */
  usesSiblings: boolean;
}

/** Why a credit cannot be learned from, as the end of a sentence, with what to do; null where it can. */
export function creditConflict(
  name: string,
  { usesValues, usesSiblings }: AdvantageUse,
  accountsFor: Credit["accountsFor"],
): string | null {
  if (accountsFor === "future" && usesValues) {
    return (
      `already adds what a turn led to, which ${name} does by itself through values (GAE): it would count twice; ` +
      `take the reward as credit (credit: {type: reward}), and gamma and gaeLambda for how far to look`
    );
  }
  if (accountsFor === "siblings" && (usesValues || usesSiblings)) {
    const own = usesValues ? "with values" : "siblings";
    return (
      `already compares siblings, and ${name} compares ${own} by itself: take the reward as credit ` +
      `(credit: {type: reward})${usesValues ? "" : ", or back-up"}`
    );
  }
  return null;
}

/** As `creditConflict`, of a configuration. */
export function creditMisfit(name: string, use: AdvantageUse, { credit }: Beside): Misfit | null {
  const reason = creditConflict(name, use, credit?.accountsFor);
  return reason === null ? null : { path: ["credit", "type"], message: reason };
}
