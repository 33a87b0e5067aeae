import { describeValue, UsageError, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import type { Failure } from "@astra-rl/records";
import { defineKind } from "../kinds/index.js";
import { disposeOnce } from "../models/index.js";
import { scorerOption, type Scorer } from "../scorer/index.js";
import type { RewardTerm, Turn } from "./reward-term.js";
import { unknownLikelihood } from "./unknown-likelihood.js";

const CLEAN_NEEDS_SCORER = "names a label of a scorer, but there is no scorer; give one as well";

const shape = {
  clean: z
    .string()
    .min(1)
    .optional()
    .describe("Label of the scorer that is P(clean). Default: its score is P(gibberish)"),
  midpoint: z
    .number()
    .positive()
    .default(6)
    .describe(
      "Without a scorer: mean nats per token under the target at which the probability of gibberish is 0.5",
    ),
};
const codeOptions = z.strictObject({ ...shape, scorer: scorerOption.optional() });

export type GibberishOptions = z.input<typeof codeOptions>;

/**
 * Gibberish penalty of a probe: −(1 − P(clean)), from −1 to 0; use a positive weight. G of Hong et al.,
 * "Curiosity-driven Red-teaming", arXiv 2402.19464.
 *
 * P(clean) comes from a classifier if given: the published code uses the label "clean" of a four-way softmax
 * classifier. Without one it is approximated by the target's likelihood: P(clean) = 1 / (1 + exp(NLL − midpoint)), with
 * NLL the mean −log P of the probe's tokens; an empty probe has P(clean) = 0. The term is then named `gibberish_nll`.
 */
export class GibberishTerm implements RewardTerm {
  readonly name: string;
  readonly needs: readonly "likelihood"[];
  readonly scorer: Scorer | null;
  readonly clean: string | null;
  readonly midpoint: number;

  constructor(given: GibberishOptions = {}) {
    const { scorer, clean, midpoint } = parseOptions("gibberish", codeOptions, given);
    if (scorer === undefined && clean !== undefined) {
      throw new UsageError("clean-needs-scorer", `gibberish: clean ${CLEAN_NEEDS_SCORER}`);
    }
    if (scorer !== undefined && clean !== undefined && !scorer.labelNames.includes(clean)) {
      throw new UsageError(
        "unknown-label",
        `gibberish: clean must be a label of ${scorer.name} (${scorer.labelNames.join(", ") || "it has none"}), got ` +
          describeValue(clean),
      );
    }
    this.scorer = scorer ?? null;
    this.clean = clean ?? null;
    this.midpoint = midpoint;
    this.name = scorer === undefined ? "gibberish_nll" : "gibberish";
    this.needs = scorer === undefined ? ["likelihood"] : [];
  }

  async score(turns: readonly Turn[]): Promise<(number | Failure)[]> {
    if (this.scorer === null) {
      return turns.map(({ likelihood }) => {
        if (likelihood === null) return unknownLikelihood();
        return likelihood.nll === null ? -1 : 1 / (1 + Math.exp(likelihood.nll - this.midpoint)) - 1;
      });
    }
    const outcomes = await this.scorer.scoreAndValidate(turns.map(({ probe }) => probe));
    return outcomes.map((outcome) => {
      if (outcome.failure) return outcome.failure;
      return this.clean === null ? 0 - outcome.score : outcome.labels![this.clean]! - 1;
    });
  }

  dispose(): void {
    if (this.scorer !== null) disposeOnce(this.scorer);
  }
}

export function gibberish(options: GibberishOptions = {}): GibberishTerm {
  return new GibberishTerm(options);
}

export const gibberishKind = defineKind({
  role: "term",
  name: "gibberish",
  summary:
    "Minus the probability that the probe is gibberish, by a separate scorer or by the target's likelihood",
  schema: ({ scorer }) =>
    z.strictObject({ ...shape, scorer: scorer.optional() }).superRefine((chosen, context) => {
      if (chosen.clean === undefined || chosen.scorer !== undefined) return;
      const params = { rule: "clean-needs-scorer" };
      context.addIssue({ code: "custom", path: ["clean"], message: CLEAN_NEEDS_SCORER, params });
    }),
  make: async ({ scorer, ...chosen }, { makeScorer }) =>
    gibberish({ ...chosen, scorer: scorer && (await makeScorer(scorer)) }),
});
