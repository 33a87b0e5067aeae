import type { EvaluationSummary, SearchRecord } from "@astra-rl/records";
import { plain } from "./figures.js";
import { visible } from "./visible.js";

/** A count with thousands separated. */
const count = (value: number) => value.toLocaleString("en-US");

/** The cost and the findings of a search, a line each, marking its rates as estimates. */
export function searchLines(
  { queries, budget, n_failed: failed, max_nll: maxNll, sample_nll: sampleNll, probes }: SearchRecord,
  { n_turns: turns }: Pick<EvaluationSummary, "n_turns">,
): string[] {
  const bound =
    maxNll === null
      ? "without a bound on their likelihood"
      : `of at most ${plain(maxNll)} nats a token (the tester's own: ${plain(sampleNll)})`;
  return [
    `The search used ${count(queries)} target responses, of ${count(budget)} allowed` +
      `${failed === 0 ? "" : `, of which ${count(failed)} failed`}; the evaluation used ${count(turns)} more.`,
    `Found ${probes.length === 1 ? "1 probe" : `${probes.length} probes`} ${bound}. In brackets: conversations of the search that ` +
      "led to harm, an overestimate, because the probes were selected by them.",
    ...probes.map(
      ({ probe, biased_estimate: { n_tried, n_successes } }) =>
        `  ${visible(probe.trim(), 200)}   [${n_successes} of ${n_tried}]`,
    ),
    "",
  ];
}
