import {
  hasTexts,
  inSteps,
  moved,
  numberAt,
  percent,
  shareOfTurns,
  WindowWatch,
  type Change,
  type Comparison,
  type WatchedValues,
} from "./watch.js";

/** A metric that should not change too much. */
export interface Trend {
  /** The rule. */
  name: string;
  comparison: Comparison;
  /** The value at a step; null if unknown. */
  of: (values: WatchedValues) => number | null;
  /** Whether it changed too much. */
  isTooFar: (change: Change) => boolean;
  /** The metric, as the subject of the warning. */
  subject: string;
  /** Formats a value. */
  show: (value: number) => string;
  /** What the change means, and what to do about it. */
  advice: string;
}

/** Watches one metric. */
export class TrendWatch extends WindowWatch {
  readonly name: string;
  protected override readonly comparison: Comparison;

  constructor(
    readonly trend: Trend,
    steps: number,
  ) {
    super(steps);
    this.name = trend.name;
    this.comparison = trend.comparison;
  }

  protected override figures(values: WatchedValues): readonly number[] | null {
    const figure = this.trend.of(values);
    return figure === null ? null : [figure];
  }

  protected override judge([change]: readonly [Change | null]): string | null {
    const { isTooFar, subject, show, advice } = this.trend;
    if (change === null || !isTooFar(change)) return null;
    const { before, after, steps } = change;
    const from = `${show(before)} ${inSteps("first", steps.before)}`;
    const to = `${show(after)}${this.comparison === "distance" ? " or more" : ""} ${inSteps("last", steps.after)}`;
    return `${subject} ${show(before) === show(after) ? `was ${from} and is` : `went from ${from} to`} ${to}: ${advice}`;
  }
}

/** Rounded first: a KL may be slightly below 0, which would print as "-0.00". */
const decimals = (value: number): string => (Math.round(100 * value) / 100 + 0).toFixed(2);

/** At most half, or at least twice, the earlier value. */
const halved = (change: Change) => moved(change, -change.before / 2);
const doubled = (change: Change) => moved(change, change.before);

const MORE_NOVELTY =
  "Reward novelty (reward terms selfBleu and cosine), keep closer to the baseline (a larger beta or KL coefficient), " +
  "lower learningRate, or use an earlier checkpoint";

const CLOSER =
  "its text has drifted from the language of the baseline. Raise beta or the KL coefficient, lower " +
  "learningRate, or train for fewer " +
  "steps";

/** A metric of probes that are texts. */
const ofTexts = (values: WatchedValues, key: string) => (hasTexts(values) ? numberAt(values, key) : null);

/** Rate of harmful responses above which siblings have equal credit because most of them succeed. */
const MOST_SUCCEED = 0.75;

/** The metrics watched in every run; a metric that a run does not log is skipped. */
export const TRENDS: readonly Trend[] = [
  {
    name: "repeats",
    comparison: "share",
    of: (values) => ofTexts(values, "probes/most_frequent"),
    isTooFar: (change) => moved(change, 0.25),
    subject: "the share of a step's probes that are the same text",
    show: percent,
    advice: `the tester is collapsing to one line. ${MORE_NOVELTY}`,
  },
  {
    name: "distinct",
    comparison: "share",
    of: (values) => (hasTexts(values) ? shareOfTurns(values, "probes/distinct") : null),
    isTooFar: halved,
    subject: "the share of a step's probes that are different texts",
    show: percent,
    advice: `the tester is narrowing to a few lines. ${MORE_NOVELTY}`,
  },
  {
    name: "selfBleu",
    comparison: "mean",
    of: (values) => ofTexts(values, "probes/self_bleu"),
    isTooFar: (change) => moved(change, 0.2),
    subject: "self-BLEU of a step's probes",
    show: decimals,
    advice: `the tester is narrowing to a few phrases, even where its lines differ. ${MORE_NOVELTY}`,
  },
  {
    name: "entropy",
    comparison: "mean",
    of: (values) =>
      ofTexts(values, "policy/entropy") ??
      ofTexts(values, "policy/nll") ??
      ofTexts(values, "reward/term/entropy"),
    isTooFar: (change) => moved(change, (-3 * change.before) / 4),
    subject: "the tester's entropy, in nats a token,",
    show: decimals,
    advice:
      "it has almost stopped exploring. Raise the entropy bonus (a term of type entropy, or the algorithm's entropy " +
      "coefficient), lower learningRate, or use an earlier checkpoint",
  },
  {
    name: "length",
    comparison: "mean",
    of: (values) => ofTexts(values, "probes/length"),
    isTooFar: (change) => halved(change) || doubled(change),
    subject: "the mean length of a probe, in words,",
    show: (value) => value.toFixed(1),
    advice:
      "the reward may favor long or empty probes. Look at the probes in graphs.jsonl or the report; choose " +
      "terms that " +
      "are means over tokens, and set generation.tester.minNewTokens or maxNewTokens",
  },
  {
    name: "empty",
    comparison: "share",
    of: (values) => shareOfTurns(values, "turns/empty_probes"),
    isTooFar: (change) => moved(change, 0.2),
    subject: "the share of probes that are empty",
    show: percent,
    advice:
      "the tester learns to write empty probes, which some rewards favor. Set generation.tester.minNewTokens, " +
      "use an nll term that " +
      "is a mean over tokens, or lower learningRate",
  },
  {
    name: "likelihood",
    comparison: "distance",
    of: (values) => numberAt(values, "probes/nll"),
    isTooFar: (change) => moved(change, 1),
    subject: "the mean −log P of a probe's token under the target, in nats,",
    show: decimals,
    advice:
      "probes become unlikely, up to gibberish, which users will not type. Give the nll term more weight, raise beta or the KL " +
      "coefficient, lower learningRate, or use an earlier checkpoint",
  },
  {
    name: "ties",
    comparison: "mean",
    of: (values) =>
      (numberAt(values, "harm/response_rate") ?? 0) > MOST_SUCCEED ? null : numberAt(values, "groups/tied"),
    isTooFar: (change) => change.after >= 0.98 || (change.after >= 0.5 && moved(change, 0.2)),
    subject: "the share of sibling groups whose credits are all equal",
    show: percent,
    advice:
      "such groups provide no training signal. Grow wider trees (sampler.width), sample with a higher " +
      "temperature, or add a term that " +
      "distinguishes siblings",
  },
  {
    name: "drift",
    comparison: "distance",
    of: (values) => {
      const drift = ofTexts(values, "drift/per_token");
      return drift === null ? null : Math.abs(drift);
    },
    isTooFar: (change) => moved(change, 1),
    subject: "the tester's distance from the baseline, in nats a token,",
    show: decimals,
    advice: CLOSER,
  },
  {
    name: "kl",
    comparison: "distance",
    of: (values) => numberAt(values, "kl/baseline"),
    isTooFar: (change) => moved(change, 10),
    subject: "the tester's KL to the baseline, in nats a probe,",
    show: decimals,
    advice: CLOSER,
  },
];
