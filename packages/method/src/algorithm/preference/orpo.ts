import { scope, tensor } from "@astra-rl/torch";
import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { elicitationDefaults } from "../elicitation-defaults.js";
import { siblingsMissing } from "../requirements.js";
import { orpoLoss } from "../losses/index.js";
import { orpoLossOptions, orpoParts } from "../losses/orpo-loss.js";
import { HARM_MARGIN, pairOptions } from "./preference-options.js";
import { Preference } from "./preference.js";

const orpoOptions = z.strictObject({ ...orpoLossOptions.shape, ...pairOptions.shape });

export type ORPOOptions = z.input<typeof orpoOptions>;

/**
 * Odds ratio preference optimization on sibling pairs (see `Preference` for the pairs and `orpoLoss` for the loss).
 * Uses no baseline.
 *
 * @example new ORPO(system, { lambda: 0.1 })
 */
export class ORPO<S = Conversation, A = Message> extends Preference<S, A> {
  readonly lambda: number;

  /** @throws UsageError when λ, the epochs or a pair option is out of range */
  constructor(system: System<S, A>, given: ORPOOptions = {}) {
    const { lambda, ...options } = parseOptions("ORPO", orpoOptions, given);
    super(system, "ORPO", (logprobs) => orpoLoss(logprobs, { lambda }), {
      ...options,
      usesBaseline: false,
    });
    this.lambda = lambda;
  }

  protected override metrics(
    tester: readonly number[],
    baseline: readonly number[] | null,
    lengths: readonly number[],
  ): Record<string, number> {
    const pairs = tester.length / 2;
    const sums = (values: readonly number[]) => tensor(values, { dtype: "float64" });
    const [logOdds, nll] = scope(() => {
      const parts = orpoParts({
        chosen: sums(tester.slice(0, pairs)),
        rejected: sums(tester.slice(pairs)),
        chosenLengths: lengths.slice(0, pairs),
        rejectedLengths: lengths.slice(pairs),
      });
      return [parts.logOdds.toArray() as number[], parts.nll.mean().item()];
    });
    return {
      ...super.metrics(tester, baseline, lengths),
      "preference/accuracy": logOdds.filter((value) => value > 0).length / pairs,
      "preference/log_odds_ratio": logOdds.reduce((sum, value) => sum + value, 0) / pairs,
      "preference/nll": nll,
    };
  }
}

export const orpoKind = defineKind({
  role: "algorithm",
  name: "orpo",
  summary: "Odds ratio preference optimization, without a baseline",
  ...elicitationDefaults(orpoOptions, { pairMargin: HARM_MARGIN, lambda: 1 }),
  check: (_, beside) => siblingsMissing("ORPO", beside),
  // No baseline bounds its steps: at the usual rate it loses the likelihood or the variety (docs/log.md).
  learningRateFactor: 0.4,
  make: (options, { system }) => new ORPO(system, options),
});
