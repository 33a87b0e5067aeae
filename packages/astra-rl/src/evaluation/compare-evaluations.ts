import { UsageError } from "@astra-rl/torch";
import type {
  ComparisonRecord,
  EvaluationDetail,
  EvaluationRecord,
  IntervalRecord,
} from "../records/index.js";
import {
  exactMcNemar,
  mean,
  newcombePairedDifference,
  pairedBootstrap,
  pairedPermutation,
  type Interval,
} from "./statistics/index.js";
import { isScored, probeNll } from "./summarize.js";

export interface CompareOptions {
  /** Share covered by the intervals. @default 0.95 */
  confidence?: number;
  /** Seed of the bootstrap and of the permutation test. @default 0 */
  seed?: number;
  /** Replicates of both. @default 10000 */
  resamples?: number;
}

/**
 * Two evaluations of the same starts, in the same order, compared rollout by rollout: for example before and after
 * training. Pairs in which either side has an error are left out and counted.
 *
 * Attack success: difference of the rates with Newcombe's paired interval, and McNemar's exact test. Reward: mean
 * difference of the rollouts' average rewards with a paired bootstrap interval and a permutation test.
 *
 * @throws UsageError when the evaluations do not start from the same prompts
 */
export function compareEvaluations(
  before: EvaluationRecord,
  after: EvaluationRecord,
  { confidence = 0.95, seed = 0, resamples = 10_000 }: CompareOptions = {},
): ComparisonRecord {
  const pairs = pair(before.details, after.details);
  const scored = pairs.filter(([first, second]) => isScored(first) && isScored(second));
  const success = (detail: EvaluationDetail) => detail.overall.first_target_toxicity_turn !== null;
  const count = (first: boolean, second: boolean) =>
    scored.filter(([a, b]) => success(a) === first && success(b) === second).length;
  const counts = {
    both: count(true, true),
    onlyFirst: count(true, false),
    onlySecond: count(false, true),
    neither: count(false, false),
  };
  const n = scored.length;
  const difference = newcombePairedDifference(counts, confidence);

  const rewards = pairs.flatMap(([a, b]) => {
    const [first, second] = [a.overall.avg_reward, b.overall.avg_reward];
    return first === null || second === null ? [] : [[first, second] as const];
  });
  const firstRewards = rewards.map(([first]) => first);
  const secondRewards = rewards.map(([, second]) => second);
  const bootstrap = pairedBootstrap(firstRewards, secondRewards, { seed, resamples, confidence });

  const nllBefore = probeNll(pairs.map(([first]) => first));
  const nllAfter = probeNll(pairs.map(([, second]) => second));
  return {
    n_pairs: n,
    n_excluded: pairs.length - n,
    before: n === 0 ? null : (counts.both + counts.onlyFirst) / n,
    after: n === 0 ? null : (counts.both + counts.onlySecond) / n,
    difference: difference?.estimate ?? null,
    difference_interval: record(difference, confidence, "newcombe-paired"),
    p_value: n === 0 ? null : exactMcNemar(counts.onlyFirst, counts.onlySecond),
    n_only_before: counts.onlyFirst,
    n_only_after: counts.onlySecond,
    reward_difference: rewards.length === 0 ? null : mean(rewards.map(([first, second]) => second - first)),
    reward_difference_interval: record(bootstrap, confidence, "bootstrap"),
    reward_p_value:
      rewards.length === 0 ? null : pairedPermutation(firstRewards, secondRewards, { seed, resamples }),
    probe_nll_difference: nllBefore === null || nllAfter === null ? null : nllAfter - nllBefore,
    version: 1,
  };
}

function record(interval: Interval | null, confidence: number, method: string): IntervalRecord | null {
  return interval === null ? null : { lower: interval.lower, upper: interval.upper, confidence, method };
}

function pair(
  before: readonly EvaluationDetail[],
  after: readonly EvaluationDetail[],
): (readonly [EvaluationDetail, EvaluationDetail])[] {
  if (before.length !== after.length) {
    throw new UsageError(
      `compareEvaluations: both must have equally many rollouts, got ${before.length} and ${after.length}`,
    );
  }
  return before.map((first, index) => {
    const second = after[index]!;
    const [a, b] = [first.per_turn[0]?.context, second.per_turn[0]?.context];
    if (a !== b) {
      throw new UsageError(
        `compareEvaluations: rollout ${index} starts from ${JSON.stringify(a)} in one and from ${JSON.stringify(b)} ` +
          `in the other; compare evaluations of the same prompts in the same order`,
      );
    }
    return [first, second] as const;
  });
}
