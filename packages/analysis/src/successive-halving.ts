import { UsageError } from "@astra-rl/base";

/** A candidate tried once: in one conversation, repeated at each turn. */
export interface Trial {
  /** Whether a response is harmful and the candidate harmless; false for a trial that failed. */
  isSuccess: boolean;
  /** Whether a response is missing or could not be scored. */
  isFailure: boolean;
  /** Whether the candidate itself was judged harmful. */
  isHarmful: boolean;
  /** Mean harm of the responses, from 0 to 1; null where it is unknown. */
  score: number | null;
  /** Mean −log P per token of the candidate, in nats, and its number of tokens in all turns; null where it is unknown. */
  nll: number | null;
  tokens: number | null;
}

/** The totals of one candidate's trials. */
export interface Tally {
  tried: number;
  successes: number;
  /** Trials that failed; they are among those tried, and no successes. */
  failed: number;
  /** Successes per trial. */
  rate: number;
  /** Mean harm of the responses; that of a failed trial counts as 0. */
  score: number;
  /** Mean −log P per token over all trials, in nats; null where it is unknown. */
  nll: number | null;
  /** Whether no trial judged the candidate harmful. */
  isHarmless: boolean;
}

export interface Ranked<C> {
  candidate: C;
  tally: Tally;
}

/** Tries each candidate on each of these openers, in order: one list of trials for each candidate. */
export type TryOn<C> = (candidates: readonly C[], openers: readonly number[]) => Promise<Trial[][]>;

/** A completed round: the number of candidates, and of openers for each. */
export type Round = { candidates: number; openers: number };

/** One in this many candidates of a round enters the next. */
export const REDUCTION = 4;

/** Candidates of the last round, unless more are requested: a bound on their likelihood may drop most of them. */
const MOST_IN_LAST = 64;

/**
 * Rounds of a search, its sample included, where each round has an equal part of the queries and one candidate in `REDUCTION`
 * enters the next: the fewest that leave few enough candidates for the last, but no more than there are openers for. Round r,
 * counted from 0, takes `REDUCTION` ** r queries a candidate.
 *
 * @param options keep: requested number of candidates; openers: their number; depth: queries of one trial
 * @throws UsageError for fewer queries than two rounds need
 */
export function roundsOf(
  queries: number,
  { keep, openers, depth }: { keep: number; openers: number; depth: number },
): number {
  const least = 2 * keep * Math.max(REDUCTION, depth);
  if (queries < least) {
    throw new UsageError(
      "too-few-queries",
      `search: ${queries} queries are too few to choose ${keep === 1 ? "a probe" : `${keep} probes`}; allow at least ${least}` +
        (keep === 1 ? "" : ", or keep fewer"),
    );
  }
  const most = Math.max(MOST_IN_LAST, REDUCTION * keep);
  const isWide = (rounds: number) => queries / rounds / REDUCTION ** (rounds - 1) > most;
  const queriesBehindSample = (rounds: number) => (REDUCTION ** rounds - REDUCTION) / (REDUCTION - 1);
  let rounds = 2;
  while (isWide(rounds) && queriesBehindSample(rounds + 1) <= openers * depth) rounds++;
  return rounds;
}

export function tallyOf(trials: readonly Trial[]): Tally {
  const tried = trials.length;
  const count = (has: (trial: Trial) => boolean) => trials.filter(has).length;
  const successes = count(({ isSuccess }) => isSuccess);
  const known = trials.flatMap(({ nll, tokens }) =>
    nll === null || tokens === null ? [] : [[nll, tokens] as const],
  );
  const tokens = known.reduce((sum, [, own]) => sum + own, 0);
  return {
    tried,
    successes,
    failed: count(({ isFailure }) => isFailure),
    rate: tried === 0 ? 0 : successes / tried,
    score: trials.reduce((sum, { score }) => sum + (score ?? 0), 0) / Math.max(1, tried),
    nll: tokens === 0 ? null : known.reduce((sum, [nll, own]) => sum + nll * own, 0) / tokens,
    isHarmless: !trials.some(({ isHarmful }) => isHarmful),
  };
}

/**
 * The candidates that are harmless and likely enough, best first: by success, then by the harm of the responses, then by
 * likelihood, then in the given order.
 *
 * @param maxNll most nats a token; one whose likelihood is unknown is not known to be within it. null: no bound
 */
export function bestFirst<C>(ranked: readonly Ranked<C>[], maxNll: number | null): Ranked<C>[] {
  const isLikely = ({ nll }: Tally) => maxNll === null || (nll !== null && nll <= maxNll);
  return ranked
    .filter(({ tally }) => tally.isHarmless && isLikely(tally))
    .sort(
      ({ tally: a }, { tally: b }) =>
        b.rate - a.rate || b.score - a.score || (a.nll ?? Infinity) - (b.nll ?? Infinity) || 0,
    );
}

export interface HalvingOptions {
  /** Maximum number of trials of all rounds together. */
  trials: number;
  /** Number of openers; each candidate is tried on each of them at most once. */
  openers: number;
  /** Most candidates of the first of these rounds; one in `REDUCTION` of it in each later one. */
  first: number;
  rounds: number;
  /** Requested number of candidates; no round has fewer, if there are as many. */
  keep: number;
  /** See `bestFirst`. */
  maxNll: number | null;
}

/**
 * Successive halving (Karnin et al., ICML 2013; Jamieson and Talwalkar, arXiv 1502.07943): each round tries the best candidates
 * on further openers, the same ones for all of them, with an equal part of the remaining trials, and all trials so far
 * decide which enter the next one.
 *
 * The rates of the candidates found are biased upwards, since they were selected by them.
 *
 * @param candidates best first
 * @returns `found`: the candidates that came furthest of those that are harmless and likely enough, best first; `tried`: all
 */
export async function successiveHalving<C>(
  candidates: readonly C[],
  tryOn: TryOn<C>,
  { trials, openers, first, rounds, keep, maxNll }: HalvingOptions,
): Promise<{ found: Ranked<C>[]; tried: Ranked<C>[]; rounds: Round[] }> {
  const seen = new Map<C, { trials: Trial[]; round: number }>();
  const ranked = (own: readonly C[]): Ranked<C>[] =>
    own.map((candidate) => ({ candidate, tally: tallyOf(seen.get(candidate)!.trials) }));
  const taken: Round[] = [];
  let left = trials;
  let used = 0;
  let standing = [...candidates];
  for (let round = 0; round < rounds && standing.length > 0; round++) {
    const share = Math.floor(left / (rounds - round));
    const entering = Math.max(keep, Math.ceil(first / REDUCTION ** round));
    const own = standing.slice(0, Math.min(entering, share));
    const each = own.length === 0 ? 0 : Math.min(openers - used, Math.floor(share / own.length));
    if (each === 0) break;
    const places = Array.from({ length: each }, (_, at) => used + at);
    const results = await tryOn(own, places);
    own.forEach((candidate, at) => {
      seen.set(candidate, { trials: [...(seen.get(candidate)?.trials ?? []), ...results[at]!], round });
    });
    standing = bestFirst(ranked(own), maxNll).map(({ candidate }) => candidate);
    taken.push({ candidates: own.length, openers: each });
    used += each;
    left -= own.length * each;
  }
  const all = ranked([...seen.keys()]);
  const byRound = taken.map((_, round) =>
    bestFirst(
      all.filter(({ candidate }) => seen.get(candidate)!.round === round),
      maxNll,
    ),
  );
  const found = byRound.findLast((each) => each.length > 0) ?? [];
  return { found, tried: all, rounds: taken };
}
