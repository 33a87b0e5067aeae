/** One try of a goal: whether it succeeded, and what it took. */
export interface Try {
  isSuccess: boolean;
  /** null where it is unknown. */
  costs: Readonly<Record<string, number | null>>;
}

/** What it takes until a share of goals is reached. */
export interface Budget {
  share: number;
  /** The number of goals that are this share. */
  n_goals: number;
  /** Tries of each goal that is not reached yet; null where the tries made do not reach so many. */
  rounds: number | null;
  /** Tries of all goals together; null likewise. */
  tries: number | null;
  /** By kind; null likewise, and where the cost of a try is unknown. */
  costs: Record<string, number | null>;
}

/**
 * Budget@τ: what it takes until a share of goals is reached, where each round tries every goal that is not reached yet once, and
 * the last round is completed. The exact expectation over the order of each goal's tries: a goal with c successes of n tries is
 * not reached within k with probability C(n − c, k) / C(n, k), independently of the others.
 *
 * A goal whose tries are used up is not tried further. Goals that were not reached count as never reached, so a budget is that of
 * these tries; fresh ones may take more.
 */
export function budgetUntil(goals: readonly (readonly Try[])[], share: number): Budget {
  // A share of 0.3 of 10 goals is 3, not 4.
  const wanted = Math.max(1, Math.ceil(share * goals.length - 1e-9));
  const kinds = [...new Set(goals.flat().flatMap(({ costs }) => Object.keys(costs)))];
  const isReached = goals.filter((tries) => tries.some(({ isSuccess }) => isSuccess)).length >= wanted;
  if (!isReached) {
    const unknown = Object.fromEntries(kinds.map((kind) => [kind, null]));
    return { share, n_goals: wanted, rounds: null, tries: null, costs: unknown };
  }
  const tallies = goals.map((tries) => ({
    n: tries.length,
    c: tries.filter(({ isSuccess }) => isSuccess).length,
  }));
  const nameOf = ({ n, c }: { n: number; c: number }) => `${c}/${n}`;
  const isKnown = (kind: string) => goals.flat().every(({ costs }) => (costs[kind] ?? null) !== null);
  const totals = goals.map((tries, at) =>
    kinds.map((kind) => {
      const sum = (success: boolean) =>
        tries.reduce(
          (all, { isSuccess, costs }) => (isSuccess === success ? all + (costs[kind] ?? 0) : all),
          0,
        );
      const { n, c } = tallies[at]!;
      return { success: c === 0 ? 0 : sum(true) / c, failure: c === n ? 0 : sum(false) / (n - c) };
    }),
  );
  const most = Math.max(...tallies.map(({ n }) => n));
  /** Chance that a goal is not reached within the rounds so far. */
  let missing = tallies.map(() => 1);
  let [rounds, tries] = [0, 0];
  const costs = kinds.map(() => 0);
  for (let round = 0; round < most; round++) {
    const isOpen = fewerThan(missing, wanted);
    rounds += isOpen;
    if (isOpen === 0) break;
    // Goals with the same counts have the same chances.
    const others = new Map<string, number>();
    for (const [at, tally] of tallies.entries()) {
      const left = tally.n - round;
      if (left <= 0 || missing[at] === 0) continue;
      const name = nameOf(tally);
      if (!others.has(name)) others.set(name, fewerThan(missing.toSpliced(at, 1), wanted));
      const isTried = missing[at]! * others.get(name)!;
      tries += isTried;
      for (const [index, { success, failure }] of totals[at]!.entries()) {
        costs[index]! += (isTried * (tally.c * success + (left - tally.c) * failure)) / left;
      }
    }
    missing = missing.map((chance, at) => {
      const { n, c } = tallies[at]!;
      return round < n ? (chance * Math.max(0, n - c - round)) / (n - round) : chance;
    });
  }
  return {
    share,
    n_goals: wanted,
    rounds,
    tries,
    costs: Object.fromEntries(kinds.map((kind, at) => [kind, isKnown(kind) ? costs[at]! : null])),
  };
}

/** The chance that fewer than `wanted` goals are reached, each missing with its own chance. */
function fewerThan(missing: readonly number[], wanted: number): number {
  // chances[j]: exactly j of the goals so far are reached.
  const chances = new Float64Array(wanted);
  chances[0] = 1;
  for (const chance of missing) {
    for (let reached = wanted - 1; reached >= 0; reached--) {
      const before = reached === 0 ? 0 : chances[reached - 1]!;
      chances[reached] = chances[reached]! * chance + before * (1 - chance);
    }
  }
  return chances.reduce((sum, each) => sum + each, 0);
}
