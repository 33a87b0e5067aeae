import { z } from "zod";
import { defineKind } from "../kinds/index.js";
import type { Failure, RewardTerm, Turn } from "../core/index.js";
import { parseOptions } from "../options/index.js";
import { unknownLikelihood } from "./unknown-likelihood.js";

export const nllOptions = z.strictObject({
  emptyProbeNLL: z.number().default(10).describe("Nats charged for an empty probe"),
});

export type NLLOptions = z.input<typeof nllOptions>;

/** Mean −log P of the probe's tokens under the target, in nats. Use a negative weight to favor likely probes. */
export class NLLTerm implements RewardTerm {
  readonly name = "nll";
  readonly needs = ["likelihood"] as const;
  readonly emptyProbeNLL: number;

  constructor(options: NLLOptions = {}) {
    this.emptyProbeNLL = parseOptions("nll", nllOptions, options).emptyProbeNLL;
  }

  score(turns: readonly Turn[]): Promise<(number | Failure)[]> {
    return Promise.resolve(
      turns.map(({ likelihood }) =>
        likelihood === null ? unknownLikelihood() : (likelihood.nll ?? this.emptyProbeNLL),
      ),
    );
  }
}

/** @example new Reward([{ term: harm(scorer), weight: 1 }, { term: nll(), weight: -0.1 }]) */
export function nll(options: NLLOptions = {}): NLLTerm {
  return new NLLTerm(options);
}

export const nllKind = defineKind({
  role: "term",
  name: "nll",
  summary:
    "Mean −log P of the probe's tokens under the target, in nats; a negative weight asks for likely probes",
  schema: nllOptions,
  make: (chosen) => nll(chosen),
});
