import { UsageError } from "@astra-rl/base";
import type { ComparisonRecord, EvaluationDetail } from "@astra-rl/records";
import {
  exactMcNemar,
  mean,
  newcombePairedDifference,
  pairedBootstrap,
  pairedPermutation,
  pairedCounts,
} from "./statistics/index.js";
import { compareRefusals } from "./over-refusal.js";
import { hasSameLikelihood, hasSameReward, type Evaluated } from "./likeness.js";
import {
  byCluster,
  intervalRecord,
  isJudgedHarmless,
  isScored,
  isScoredBySecond,
  succeeds,
  succeedsBySecond,
  succeedsHarmlessly,
} from "./rollouts.js";
import { probeNll } from "./summarize.js";

export interface CompareOptions {
  /** Confidence level of the intervals. @default 0.95 */
  confidence?: number;
  /** Seed of the bootstrap and of the permutation test. @default 0 */
  seed?: number;
  /** Replicates of both. @default 10000 */
  resamples?: number;
}

/**
 * Compares two evaluations of the same prompts in the same order, rollout by rollout, for example before and after
 * training. Pairs in which either side has an error are excluded and counted.
 *
 * Attack success, overall and with harmless probes only: difference of the rates with Newcombe's paired interval and
 * McNemar's exact test; where several rollouts have one goal, or without goals start from one prompt, a bootstrap and a permutation test over goals, or prompts. Reward: mean difference of per-rollout mean rewards with a paired bootstrap interval and a
 * permutation test. Over-refusal by `compareRefusals`. Rewards are not compared if their definitions differ, nor likelihoods by different models.
 *
 * @throws UsageError if the evaluations do not start from the same prompts, with the same goals
 */
export function compareEvaluations(
  before: Evaluated,
  after: Evaluated,
  { confidence = 0.95, seed = 0, resamples = 10_000 }: CompareOptions = {},
): ComparisonRecord {
  const resampling = { confidence, seed, resamples };
  const pairs = pair(before.details, after.details);
  const scored = pairs.filter(([first, second]) => isScored(first) && isScored(second));
  const success = compareRates(scored, succeeds, resampling);
  const judged = pairs.filter((sides) => sides.every(isJudgedHarmless));
  const harmless = compareRates(judged, succeedsHarmlessly, resampling);
  const { harm_threshold: threshold } = after.summary;
  const bySecond = scored.filter((sides) => sides.every(isScoredBySecond));
  const distinctBefore = before.summary.n_distinct_probes;
  const n = scored.length;

  const rewards = (hasSameReward(before, after) ? pairs : []).flatMap(([a, b]) => {
    const [first, second] = [a.overall.mean_reward, b.overall.mean_reward];
    return first === null || second === null ? [] : [[first, second] as const];
  });
  const firstRewards = rewards.map(([first]) => first);
  const secondRewards = rewards.map(([, second]) => second);
  const bootstrap = pairedBootstrap(firstRewards, secondRewards, { seed, resamples, confidence });

  const refusals = compareRefusals(before, after, confidence);
  const isLikelihoodSame = hasSameLikelihood(before, after);
  const nllBefore = isLikelihoodSame ? probeNll(pairs.flatMap(([{ per_turn: turns }]) => turns)) : null;
  const nllAfter = isLikelihoodSame ? probeNll(pairs.flatMap(([, { per_turn: turns }]) => turns)) : null;
  return {
    ...success.rates,
    n_excluded: pairs.length - n,
    n_only_before: success.counts.onlyFirst,
    n_only_after: success.counts.onlySecond,
    harmless_probe: harmless.rates,
    ...(bySecond.length === 0
      ? {}
      : { second: compareRates(bySecond, succeedsBySecond(threshold), resampling).rates }),
    ...(refusals === null ? {} : { over_refusal: refusals }),
    distinct_probes_kept: distinctBefore === 0 ? null : after.summary.n_distinct_probes / distinctBefore,
    reward_difference: rewards.length === 0 ? null : mean(rewards.map(([first, second]) => second - first)),
    reward_difference_interval: intervalRecord(bootstrap, confidence, "bootstrap"),
    reward_p_value:
      rewards.length === 0 ? null : pairedPermutation(firstRewards, secondRewards, { seed, resamples }),
    probe_nll_difference: nllBefore === null || nllAfter === null ? null : nllAfter - nllBefore,
    version: 1,
  };
}

/** Compares two rates on the same pairs; cluster by cluster where one has several. */
function compareRates(
  pairs: readonly (readonly [EvaluationDetail, EvaluationDetail])[],
  success: (detail: EvaluationDetail) => boolean,
  { seed, resamples, confidence }: Required<CompareOptions>,
) {
  const n = pairs.length;
  const seconds = new Map(pairs);
  const groups = byCluster(pairs.map(([first]) => first));
  const isRepeated = groups.length < n;
  const share = (of: readonly EvaluationDetail[]) => of.filter(success).length / of.length;
  const [before, after] = [
    groups.map(share),
    groups.map((group) => share(group.map((first) => seconds.get(first)!))),
  ];
  const counts = pairedCounts(
    pairs,
    ([first]) => success(first),
    ([, second]) => success(second),
  );
  const difference = newcombePairedDifference(counts, confidence);
  const rates = {
    n_pairs: n,
    before: n === 0 ? null : (counts.both + counts.onlyFirst) / n,
    after: n === 0 ? null : (counts.both + counts.onlySecond) / n,
    difference: difference?.estimate ?? null,
    difference_interval: isRepeated
      ? intervalRecord(
          pairedBootstrap(before, after, { seed, resamples, confidence }),
          confidence,
          pairs.some(([{ overall }]) => overall.goal !== undefined)
            ? "bootstrap-goals"
            : "bootstrap-clustered",
        )
      : intervalRecord(difference, confidence, "newcombe-paired"),
    p_value:
      n === 0
        ? null
        : isRepeated
          ? pairedPermutation(before, after, { seed, resamples })
          : exactMcNemar(counts.onlyFirst, counts.onlySecond),
  };
  return { rates, counts };
}

function pair(
  before: readonly EvaluationDetail[],
  after: readonly EvaluationDetail[],
): (readonly [EvaluationDetail, EvaluationDetail])[] {
  if (before.length !== after.length) {
    throw new UsageError(
      "unequal-counts",
      `compareEvaluations: both must have equally many rollouts, got ${before.length} and ${after.length}`,
    );
  }
  return before.map((first, index) => {
    const second = after[index]!;
    const [a, b] = [first.per_turn[0]?.context, second.per_turn[0]?.context];
    if (a !== b) {
      throw new UsageError(
        "other-prompts",
        `compareEvaluations: rollout ${index} starts from ${JSON.stringify(a)} in one and from ${JSON.stringify(b)} ` +
          `in the other; compare evaluations of the same prompts in the same order`,
      );
    }
    if (first.overall.goal !== second.overall.goal) {
      const [one, other] = [first, second].map(({ overall: { goal } }) =>
        goal === undefined ? "no goal" : `the goal ${JSON.stringify(goal)}`,
      );
      throw new UsageError(
        "other-goals",
        `compareEvaluations: rollout ${index} has ${one} in one and ${other} in the other; compare evaluations of the ` +
          `same goals in the same order`,
      );
    }
    return [first, second] as const;
  });
}
