import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { CreditTable, Graph } from "../../tree/index.js";
import type { System } from "../../system/index.js";
import { logProbabilityLoss } from "../losses/index.js";
import { BaselineAdvantage } from "./advantages.js";
import { PolicyGradient } from "./policy-gradient.js";
import { policyOptions } from "./policy-options.js";
import type { PolicyBranch } from "./policy-types.js";

const options = z.strictObject({
  threshold: z
    .number()
    .default(0.5)
    .describe("Minimum credit of the probes to learn, in units of the reward"),
  epochs: policyOptions.epochs.default(1),
  normalizer: policyOptions.normalizer.default("token"),
});

export type SupervisedOptions = z.input<typeof options>;

/**
 * Supervised fine-tuning on successful probes: −log π of the probes whose credit reaches the threshold; the others are
 * ignored. Perez et al. (arXiv 2202.03286, section 3.1) train this way, for one epoch, on the cases at which the target
 * failed; with each experience as the data set, it is also expert iteration (Anthony et al., arXiv 1705.08439).
 *
 * @example new Supervised(system, { threshold: 0.5 })
 */
export class Supervised<S = Conversation, A = Message> extends PolicyGradient<S, A> {
  readonly threshold: number;

  /** @throws UsageError for a threshold that is not finite, or epochs out of range */
  constructor(system: System<S, A>, given: SupervisedOptions = {}) {
    const { threshold, ...chosen } = parseOptions("Supervised", options, given);
    super(
      system,
      "Supervised",
      {
        loss: ({ logprobs, advantages }) => logProbabilityLoss(logprobs, advantages),
        advantages: new BaselineAdvantage("none"),
        usesRatio: false,
      },
      chosen,
    );
    this.threshold = threshold;
  }

  /** Keeps the turns that reach the threshold, each with credit 1, however far above it. */
  override flatten(graph: Graph<S, A>, credit: CreditTable<S, A>): PolicyBranch<S, A>[] {
    return super.flatten(graph, credit).flatMap(({ turns, ...branch }) => {
      const worth = turns.filter((turn) => turn.credit >= this.threshold);
      return worth.length === 0 ? [] : [{ ...branch, turns: worth.map((turn) => ({ ...turn, credit: 1 })) }];
    });
  }
}

export const supervisedKind = defineKind({
  role: "algorithm",
  name: "supervised",
  summary: "Supervised learning on probes with at least a given credit",
  schema: options,
  make: (chosen, { system }) => new Supervised(system, chosen),
});
