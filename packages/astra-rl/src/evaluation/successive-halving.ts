import { UsageError } from "@astra-rl/torch";

/** How likely a candidate is in one context. */
export interface CandidateLikelihood {
  /** Mean −log P per token of the candidate, in nats, and its number of tokens; null where it is unknown. */
  nll: number | null;
  tokens: number | null;
}

/** A candidate tried once. */
export interface Trial extends CandidateLikelihood {
  /** Whether the response is harmful and the candidate harmless; false for a trial that failed. */
  isSuccess: boolean;
  /** Whether no answer came, or none that could be scored. */
  isFailure: boolean;
  /** Whether the candidate itself was judged harmful. */
  isHarmful: boolean;
  /** Harm of the response, from 0 to 1; null where it is unknown. */
  score: number | null;
}

/** What all trials of one candidate came to. */
export interface Tally {
  tried: number;
  successes: number;
  /** Trials that failed; they are among those tried, and no successes. */
  failed: number;
  /** Successes per trial. */
  rate: number;
  /** Mean harm of the responses; that of a failed trial counts as 0. */
  score: number;
  /** Mean −log P per token over all contexts in which it was read, in nats; null where it is unknown. */
  nll: number | null;
  /** Whether no trial judged the candidate harmful. */
  isHarmless: boolean;
}

export interface Ranked<C> {
  candidate: C;
  tally: Tally;
}

/** A candidate, and how likely it is in contexts in which it was not tried. */
export interface Screened<C> {
  candidate: C;
  likelihoods: readonly CandidateLikelihood[];
}

/** Tries each candidate in each of these contexts, in order: one list of trials for each candidate. */
export type TryIn<C> = (candidates: readonly C[], contexts: readonly number[]) => Promise<Trial[][]>;

/** A round that took place: so many candidates, each in so many contexts. */
export interface Round {
  candidates: number;
  contexts: number;
}

/** Of the candidates of a round, one in so many enters the next. */
export const REDUCTION = 4;

/**
 * Rounds of a search, its sample included, where each round has an equal part of the queries and one candidate in `REDUCTION`
 * enters the next: the fewest with which at most `REDUCTION` × keep candidates are left in the last, but no more than there are
 * contexts for. Round r, counted from 0, takes `REDUCTION` ** r contexts.
 *
 * @throws UsageError for fewer queries than two rounds need: one a candidate in the first, one for each that is kept in the second
 */
export function roundsOf(queries: number, keep: number, contexts: number): number {
  const least = 2 * REDUCTION * keep;
  if (queries < least) {
    throw new UsageError(
      `search: ${queries} queries are too few to choose ${keep === 1 ? "a probe" : `among probes for the best ${keep}`}; allow at ` +
        `least ${least}${keep === 1 ? "" : ", or keep fewer"}`,
    );
  }
  const isWide = (rounds: number) => queries / rounds / REDUCTION ** (rounds - 1) > REDUCTION * keep;
  const contextsBehindSample = (rounds: number) => (REDUCTION ** rounds - REDUCTION) / (REDUCTION - 1);
  let rounds = 2;
  while (isWide(rounds) && contextsBehindSample(rounds + 1) <= contexts) rounds++;
  return rounds;
}

/** @param likelihoods in further contexts, in which the candidate was not tried */
export function tallyOf(trials: readonly Trial[], likelihoods: readonly CandidateLikelihood[] = []): Tally {
  const tried = trials.length;
  const count = (has: (trial: Trial) => boolean) => trials.filter(has).length;
  const successes = count(({ isSuccess }) => isSuccess);
  const known = [...trials, ...likelihoods].flatMap(({ nll, tokens }) =>
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
  /** Trials that all rounds may take together. */
  queries: number;
  /** Number of contexts; each candidate is tried in each of them at most once. */
  contexts: number;
  /** Most candidates of the first of these rounds; one in `REDUCTION` of it in each later one. */
  first: number;
  rounds: number;
  /** Candidates that are wanted in the end; no round has fewer, where there are as many. */
  keep: number;
  /** See `bestFirst`. */
  maxNll: number | null;
}

/**
 * Successive halving (Karnin et al., ICML 2013; Jamieson and Talwalkar, arXiv 1502.07943): each round tries the best candidates
 * in further contexts, the same ones for all of them, with an equal part of the queries that are left, and all trials so far
 * decide who enters the next one.
 *
 * The rates of what is found are biased upwards, since it was chosen by them.
 *
 * @param candidates best first
 * @returns those of the last round that are harmless and likely enough, best first, and all of that round
 */
export async function successiveHalving<C>(
  candidates: readonly Screened<C>[],
  tryIn: TryIn<C>,
  { queries, contexts, first, rounds, keep, maxNll }: HalvingOptions,
): Promise<{ found: Ranked<C>[]; last: Ranked<C>[]; rounds: Round[] }> {
  const screened = new Map(candidates.map(({ candidate, likelihoods }) => [candidate, likelihoods]));
  const trials = new Map<C, Trial[]>();
  const taken: Round[] = [];
  let left = queries;
  let used = 0;
  let standing = candidates.map(({ candidate }) => candidate);
  let last: Ranked<C>[] = [];
  for (let round = 0; round < rounds && standing.length > 0; round++) {
    const share = Math.floor(left / (rounds - round));
    const entering = Math.max(keep, Math.ceil(first / REDUCTION ** round));
    const own = standing.slice(0, Math.min(entering, share));
    const each = own.length === 0 ? 0 : Math.min(contexts - used, Math.floor(share / own.length));
    if (each === 0) break;
    const places = Array.from({ length: each }, (_, at) => used + at);
    const results = await tryIn(own, places);
    last = own.map((candidate, at) => {
      trials.set(candidate, [...(trials.get(candidate) ?? []), ...results[at]!]);
      return { candidate, tally: tallyOf(trials.get(candidate)!, screened.get(candidate)) };
    });
    standing = bestFirst(last, maxNll).map(({ candidate }) => candidate);
    taken.push({ candidates: own.length, contexts: each });
    used += each;
    left -= own.length * each;
  }
  return { found: bestFirst(last, maxNll), last, rounds: taken };
}
