import { UsageError } from "@astra-rl/base";
import type { OtherChoices, Inconsistency } from "../kinds/index.js";

/** For algorithms that compare siblings: refuses a sampler of width 1. */
export function requireSiblings(name: string, sampler: object): void {
  const reason = widthProblem(name, (sampler as { width?: unknown }).width);
  if (reason !== null) throw new UsageError("no-siblings", `${name}: the sampler's tree width ${reason}`);
}

/** As `requireSiblings`, for a configuration. */
export function siblingsMissing(name: string, { sampler }: OtherChoices): Inconsistency | null {
  const reason = widthProblem(name, sampler["width"]);
  return reason === null ? null : { rule: "no-siblings", path: ["sampler", "width"], message: reason };
}

function widthProblem(name: string, width: unknown): string | null {
  // The width of a custom sampler may be unknown.
  if (typeof width !== "number" || width >= 2) return null;
  return (
    `must be at least 2, got ${width}. ${name} learns from the difference between siblings, and a single child has ` +
    `none: set the width to 2 or more, or choose an algorithm that learns from single rollouts, such as reinforce or ppo`
  );
}

/**
 * Why an algorithm that uses values cannot learn from a credit and what to do, as the end of a sentence; null if it
 * can.
 */
export function creditConflict(name: string, looksAhead = false): string | null {
  if (!looksAhead) return null;
  return (
    `already includes returns from later turns, which ${name} adds itself through values (GAE), so they would ` +
    `count twice; ` +
    `use the reward as credit (credit: {type: reward}), and set the horizon by gamma and gaeLambda`
  );
}

/** As `creditConflict`, for a configuration. */
export function creditInconsistency(name: string, { credit }: OtherChoices): Inconsistency | null {
  const reason = creditConflict(name, credit?.looksAhead);
  return reason === null ? null : { rule: "credit-looks-ahead", path: ["credit", "type"], message: reason };
}
