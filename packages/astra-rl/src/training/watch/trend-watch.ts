import { moved, numberAt, percent, Watch, WINDOW, type Change, type WatchedValues } from "./watch.js";

/** A metric that should not change too much. */
export interface Trend {
  /** Key of its state in checkpoints. */
  name: string;
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
export class TrendWatch extends Watch {
  readonly name: string;

  constructor(readonly trend: Trend) {
    super();
    this.name = trend.name;
  }

  protected override figures(values: WatchedValues): readonly number[] | null {
    const figure = this.trend.of(values);
    return figure === null ? null : [figure];
  }

  protected override judge([change]: readonly Change[]): string | null {
    const { isTooFar, subject, show, advice } = this.trend;
    if (!isTooFar(change!)) return null;
    return `${subject} went from ${show(change!.before)} in the first ${WINDOW} steps to ${show(change!.after)} in the last ${WINDOW}: ${advice}`;
  }
}

const decimals = (value: number): string => value.toFixed(2);

/** At most half, or at least twice, the earlier value. */
const halved = (change: Change) => moved(change, -change.before / 2);
const doubled = (change: Change) => moved(change, change.before);

const MORE_NOVELTY =
  "Pay for novelty (reward terms selfBleu and cosine), keep closer to the baseline (a larger beta or KL coefficient), " +
  "lower learningRate, or take an earlier checkpoint";

const CLOSER =
  "it has left the language that it started with. Raise beta or the KL coefficient, lower learningRate, or train for fewer " +
  "steps";

/** The metrics watched in every run; a metric that a run does not log is skipped. */
export const TRENDS: readonly Trend[] = [
  {
    name: "distinct",
    of: (values) => {
      const [distinct, turns] = [numberAt(values, "probes/distinct"), numberAt(values, "turns/done")];
      return distinct === null || turns === null || turns === 0 ? null : distinct / turns;
    },
    isTooFar: halved,
    subject: "the share of a step's probes that are different texts",
    show: percent,
    advice: `the tester is narrowing to a few lines. ${MORE_NOVELTY}`,
  },
  {
    name: "selfBLEU",
    of: (values) => numberAt(values, "probes/self_bleu"),
    isTooFar: (change) => moved(change, 0.2),
    subject: "self-BLEU of a step's probes",
    show: decimals,
    advice: `the tester is narrowing to a few phrases, even where its lines differ. ${MORE_NOVELTY}`,
  },
  {
    name: "entropy",
    of: (values) =>
      numberAt(values, "policy/entropy") ??
      numberAt(values, "policy/nll") ??
      numberAt(values, "reward/term/entropy"),
    isTooFar: (change) => moved(change, (-3 * change.before) / 4),
    subject: "the tester's entropy, in nats a token,",
    show: decimals,
    advice:
      "it hardly explores any more. Raise the entropy bonus (a term of type entropy, or the algorithm's entropy " +
      "coefficient), lower learningRate, or take an earlier checkpoint",
  },
  {
    name: "length",
    of: (values) => numberAt(values, "probes/length"),
    isTooFar: (change) => halved(change) || doubled(change),
    subject: "the mean length of a probe, in words,",
    show: (value) => value.toFixed(1),
    advice:
      "the reward may pay for length, or for silence. Look at the probes in graphs.jsonl or the report; choose terms that " +
      "are means over tokens, and set generation.tester.minNewTokens or maxNewTokens",
  },
  {
    name: "ties",
    of: (values) => numberAt(values, "groups/tied"),
    isTooFar: (change) => change.after >= 0.5 && moved(change, 0.2),
    subject: "the share of siblings that are all worth the same",
    show: percent,
    advice:
      "such siblings teach nothing. Grow wider trees (sampler.width), sample with a higher temperature, or add a term that " +
      "tells them apart",
  },
  {
    name: "drift",
    of: (values) => numberAt(values, "drift/per_token"),
    isTooFar: (change) =>
      moved({ ...change, before: Math.abs(change.before), after: Math.abs(change.after) }, 1),
    subject: "the tester's distance from the baseline, in nats a token,",
    show: decimals,
    advice: CLOSER,
  },
  {
    name: "kl",
    of: (values) => numberAt(values, "kl/baseline"),
    isTooFar: (change) => moved(change, 10),
    subject: "the tester's KL to the baseline, in nats a probe,",
    show: decimals,
    advice: CLOSER,
  },
];
