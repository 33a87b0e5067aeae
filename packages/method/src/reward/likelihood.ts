import { z } from "zod";
import type { Failure } from "@astra-rl/records";
import { defineKind } from "../kinds/index.js";
import type { RewardTerm, Turn } from "./reward-term.js";
import { unknownLikelihood } from "./unknown-likelihood.js";

/**
 * P(probe | context) under the target: exp(Σ log P) over its tokens, as in the Python toolbox's reward. It is 1 for an
 * empty probe and close to 0 for longer ones.
 */
export class LikelihoodTerm implements RewardTerm {
  readonly name = "likelihood";
  readonly needs = ["likelihood"] as const;

  score(turns: readonly Turn[]): Promise<(number | Failure)[]> {
    return Promise.resolve(
      turns.map(({ likelihood }) => (likelihood === null ? unknownLikelihood() : Math.exp(likelihood.total))),
    );
  }
}

export function likelihood(): LikelihoodTerm {
  return new LikelihoodTerm();
}

export const likelihoodKind = defineKind({
  role: "term",
  name: "likelihood",
  summary: "P of the whole probe under the target, as in the Python toolbox",
  schema: z.strictObject({}),
  make: () => likelihood(),
});
