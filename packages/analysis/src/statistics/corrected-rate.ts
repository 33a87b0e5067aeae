import { UsageError } from "@astra-rl/base";
import { normalQuantile } from "./distributions.js";
import { requireConfidence, type Interval } from "./interval.js";

/** Verdicts of a judge and of humans on the same items, a random sample of all that the judge saw. */
export interface JudgedSample {
  /** Both say yes. */
  truePositives: number;
  /** Only the judge does. */
  falsePositives: number;
  /** Only humans do. */
  falseNegatives: number;
  /** Neither does. */
  trueNegatives: number;
}

/** Number of positive verdicts of the judge, of all items. */
export interface JudgedTotal {
  positives: number;
  total: number;
}

/**
 * The share of items that humans would label positive, from a judge's verdicts on all of them and human labels of a
 * sample:
 * prediction-powered inference (Angelopoulos et al., Science 382, 669, 2023) with the power tuning of PPI++ (arXiv 2311.01453).
 *
 * For yes-or-no verdicts, the tuned estimate is the judge's share of yes, p, times the share a of it that is right in the
 * sample, plus its share of no times the share b of that which is wrong. The variance is p² var(a) + (1 − p)² var(b) +
 * (a − b)² var(p). The interval is computed with half an item more in each cell, so that it holds for small samples and shares
 * near 0.
 *
 * @returns null if the sample has no items with a positive, or with a negative, verdict of the judge
 */
export function predictionPoweredRate(
  total: JudgedTotal,
  sample: JudgedSample,
  confidence = 0.95,
): Interval | null {
  requireSample("predictionPoweredRate", total, sample, confidence);
  const { truePositives, falsePositives, falseNegatives, trueNegatives } = sample;
  const [yes, no] = [truePositives + falsePositives, falseNegatives + trueNegatives];
  const isCovered = (count: number, all: number) => count > 0 || all === 0;
  if (
    total.total === 0 ||
    !isCovered(yes, total.positives) ||
    !isCovered(no, total.total - total.positives)
  ) {
    return null;
  }
  const combine = (share: number, right: number, missed: number) => share * right + (1 - share) * missed;
  const z = normalQuantile(0.5 + confidence / 2);
  const [right, missed] = [(truePositives + 0.5) / (yes + 1), (falseNegatives + 0.5) / (no + 1)];
  const share = (total.positives + (z * z) / 2) / (total.total + z * z);
  const variance =
    (share ** 2 * right * (1 - right)) / (yes + 1) +
    ((1 - share) ** 2 * missed * (1 - missed)) / (no + 1) +
    ((right - missed) ** 2 * share * (1 - share)) / (total.total + z * z);
  const observed = total.positives / total.total;
  return around(
    combine(observed, yes === 0 ? 0 : truePositives / yes, no === 0 ? 0 : falseNegatives / no),
    combine(share, right, missed),
    z * Math.sqrt(variance),
  );
}

/**
 * The same share from the judge's sensitivity and specificity in the sample (W. J. Rogan and B. Gladen, Am. J. Epidemiol. 107,
 * 71, 1978).
 *
 * The interval is that of the delta method for a sample of n of the N items themselves: with D = sensitivity + specificity − 1,
 * V the variance of a verdict given the human label, and p the estimate, the variance is p (1 − p) / N + (1 / n − 1 /
 * N) V / D².
 * It is computed with half an item more in each cell of the sample, so that it holds at the borders. (The published intervals are for
 * independent samples, and too wide here.)
 *
 * @returns null if humans label no sampled item positive, or none negative, or if the judge is no better than chance
 */
export function roganGladenRate(
  total: JudgedTotal,
  sample: JudgedSample,
  confidence = 0.95,
): Interval | null {
  requireSample("roganGladenRate", total, sample, confidence);
  const { truePositives, falsePositives, falseNegatives, trueNegatives } = sample;
  const [yes, no] = [truePositives + falseNegatives, falsePositives + trueNegatives];
  if (yes === 0 || no === 0 || truePositives / yes + trueNegatives / no <= 1) return null;
  const correct = (share: number, sens: number, spec: number) => (share + spec - 1) / (sens + spec - 1);
  const z = normalQuantile(0.5 + confidence / 2);
  const [sens, spec] = [(truePositives + 0.5) / (yes + 1), (trueNegatives + 0.5) / (no + 1)];
  const share = (total.positives + (z * z) / 2) / (total.total + z * z);
  const center = within(correct(share, sens, spec));
  const spread = center * sens * (1 - sens) + (1 - center) * spec * (1 - spec);
  const variance =
    (center * (1 - center)) / (total.total + z * z) +
    ((1 / (yes + no) - 1 / total.total) * spread) / (sens + spec - 1) ** 2;
  return around(
    correct(total.positives / total.total, truePositives / yes, trueNegatives / no),
    center,
    z * Math.sqrt(variance),
  );
}

const within = (value: number) => Math.min(1, Math.max(0, value));

const around = (estimate: number, center: number, half: number): Interval => ({
  estimate: within(estimate),
  lower: Math.min(within(estimate), within(center - half)),
  upper: Math.max(within(estimate), within(center + half)),
});

function requireSample(
  where: string,
  { positives, total }: JudgedTotal,
  sample: JudgedSample,
  confidence: number,
): void {
  requireConfidence(where, confidence);
  const cells = [sample.truePositives, sample.falsePositives, sample.falseNegatives, sample.trueNegatives];
  const counts = [...cells, positives, total];
  const sum = cells.reduce((all, cell) => all + cell, 0);
  if (
    counts.every((count) => Number.isSafeInteger(count) && count >= 0) &&
    positives <= total &&
    sum <= total
  )
    return;
  throw new UsageError(
    "impossible-counts",
    `${where}: counts must be whole numbers, with at most as many positives and sampled items as there are items, got ` +
      `${cells.join(", ")} of ${total}, ${positives} of them positive`,
  );
}
