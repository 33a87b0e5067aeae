import type { EvaluationSummary } from "@astra-rl/records";
import { FIGURES, figureOf, SEED_FIGURES, type Figure } from "@astra-rl/records/figures";
import { percent, plain, whole } from "./figures.js";

/** The main figure of a tester: shown first. */
export const HEADLINE: Figure = figureOf("harmless_probe_success_rate");

const headlineFirst = <F extends Figure>(figures: readonly F[]): F[] =>
  figures.toSorted((a, b) => Number(b.key === HEADLINE.key) - Number(a.key === HEADLINE.key));

const ORDERED = headlineFirst(FIGURES);

/** Those over seeds, in the order of the page. */
export const SEED_ORDERED = headlineFirst(SEED_FIGURES);

/** Those that at least one of the evaluations knows. */
const known = (figures: readonly Figure[], summaries: readonly EvaluationSummary[]): Figure[] =>
  figures.filter(({ value }) => summaries.some((summary) => value(summary) !== null));

const isRate = ({ format }: Figure) => format === "percent";

export const knownRates = (summaries: readonly EvaluationSummary[]): Figure[] =>
  known(ORDERED.filter(isRate), summaries);

/** Means and counts. */
export const knownNumbers = (summaries: readonly EvaluationSummary[]): Figure[] =>
  known(
    ORDERED.filter((figure) => !isRate(figure)),
    summaries,
  );

/** A value of a figure. */
export const written = ({ format }: Figure, value: number | null): string =>
  ({ percent, number: plain, whole })[format](value);
