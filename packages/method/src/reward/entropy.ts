import { z } from "zod";
import type { Failure } from "@astra-rl/records";
import { defineKind } from "../kinds/index.js";
import type { RewardTerm, Turn } from "./reward-term.js";

/**
 * Mean −log π(token) over the probe's sampled ids, in nats. Its expectation is the policy's entropy, so with a positive
 * weight it is the entropy bonus of Hong et al., "Curiosity-driven Red-teaming", arXiv 2402.19464 (weight 0.01), for
 * algorithms with rewards per turn. The paper sums over tokens; here it is the mean, so as not to reward length. π is
 * the full distribution at temperature 1, regardless of the sampling settings.
 *
 * A probe that was not sampled by the tester has no value: the turn fails unless the term is `optional`.
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
  // No ids: an empty probe whose end has no token.
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
