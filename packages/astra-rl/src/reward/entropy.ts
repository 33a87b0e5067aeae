import { z } from "zod";
import { defineKind } from "../kinds/index.js";
import type { Failure, RewardTerm, Turn } from "../core/index.js";

/**
 * The tester's surprise at its own probe: the mean of −log π(token) over the ids that it sampled, in nats. Its mean over
 * samples is the policy's entropy, so that with a positive weight it is the entropy bonus of Hong et al., "Curiosity-driven
 * Red-teaming", arXiv 2402.19464 (weight 0.01), for algorithms that take rewards by turns. There the sum is over tokens; here
 * the mean, so that it pays for no length. π is the whole distribution at temperature 1, whatever the sampling settings.
 *
 * A probe that the tester did not sample has no value: the turn fails, unless the term is `optional`.
 */
export class EntropyTerm implements RewardTerm {
  readonly name = "entropy";
  readonly needs = [];

  score(turns: readonly Turn[]): Promise<(number | Failure)[]> {
    return Promise.resolve(turns.map(({ testerLogprobs }) => value(testerLogprobs ?? null)));
  }
}

function value(logprobs: readonly number[] | null): number | Failure {
  if (logprobs === null) {
    const message =
      "the tester's log-probabilities of its probe are not known; make the term entropy optional";
    return { stage: "reward", message, attempts: 1 };
  }
  // No id, as of a probe that ended where it began without a token for it: nothing was chosen.
  return logprobs.length === 0
    ? 0
    : 0 - logprobs.reduce((sum, logprob) => sum + logprob, 0) / logprobs.length;
}

export function entropy(): EntropyTerm {
  return new EntropyTerm();
}

export const entropyKind = defineKind({
  role: "term",
  name: "entropy",
  summary:
    "Mean −log π of the probe's tokens under the tester, in nats; a positive weight is an entropy bonus",
  schema: z.strictObject({}),
  make: () => entropy(),
});
