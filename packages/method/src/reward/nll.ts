import { UsageError, parseOptions, type Json } from "@astra-rl/base";
import { z } from "zod";
import type { Failure } from "@astra-rl/records";
import { defineKind } from "../kinds/index.js";
import type { Graph, NodeKey } from "../tree/index.js";
import type { RewardTerm, Turn } from "./reward-term.js";
import { unknownLikelihood } from "./unknown-likelihood.js";

const freeNats = z.number().min(0);

const fixedOptions = z.strictObject({
  emptyProbeNLL: z.number().default(10).describe("Nats charged for an empty probe"),
  free: freeNats.default(0),
});

export const nllOptions = fixedOptions.extend({
  free: z
    .union([freeNats, z.literal("start")])
    .default(0)
    .describe(
      "Nats per token that are not counted: the value is the excess above them, at least 0. start: the mean over the " +
        "probes of the first experience, so that probes as likely as the untrained tester's are not " +
        "penalized; 0 in evaluations",
    ),
});

export type NLLOptions = z.input<typeof nllOptions>;

/**
 * Mean −log P of the probe's tokens under the target, in nats, beyond what is free. Use a negative weight to favor likely
 * probes.
 *
 * A probe that is more likely than what users write is not a better attack. If every nat counts, a
 * tester for which harm is rare learns to write the most likely text instead.
 */
export class NLLTerm implements RewardTerm {
  readonly name = "nll";
  readonly needs = ["likelihood"] as const;

  readonly emptyProbeNLL: number;
  /** Nats a token that are not counted. */
  protected free: number;

  constructor(options: z.input<typeof fixedOptions> = {}) {
    ({ emptyProbeNLL: this.emptyProbeNLL, free: this.free } = parseOptions("nll", fixedOptions, options));
  }

  score(turns: readonly Turn[]): Promise<(number | Failure)[]> {
    return Promise.resolve(
      turns.map(({ likelihood, key }) =>
        likelihood === null
          ? unknownLikelihood()
          : Math.max(0, (likelihood.nll ?? this.emptyProbeNLL) - this.freeFor(key)),
      ),
    );
  }

  protected freeFor(_key: NodeKey): number {
    return this.free;
  }
}

/**
 * An NLL term whose free nats are the mean of the first experience with likelihoods; 0 before it, and 0 in evaluations,
 * so that evaluations of different runs are comparable.
 */
class NLLFromStartTerm extends NLLTerm {
  #isKnown = false;

  protected override freeFor({ purpose }: NodeKey): number {
    return purpose === "evaluate" ? 0 : this.free;
  }

  observe(graphs: readonly Graph[]): Promise<void> {
    const known = this.#isKnown
      ? []
      : graphs.flatMap((graph) => [...graph.nodes()].flatMap(({ likelihood }) => likelihood?.nll ?? []));
    if (known.length > 0) this.#set(known.reduce((sum, nats) => sum + nats, 0) / known.length);
    return Promise.resolve();
  }

  getState(): Json {
    return { free: this.#isKnown ? this.free : null };
  }

  /** @throws UsageError for the state of another term */
  setState(state: Json): void {
    const { free } = (state ?? {}) as { free?: Json };
    if (free !== null && typeof free !== "number") {
      throw new UsageError(
        "invalid-state",
        "nll: the state must be one that getState() of an nll term with free: start returned",
      );
    }
    if (free !== null) this.#set(free);
  }

  #set(free: number): void {
    this.free = free;
    this.#isKnown = true;
  }
}

/** @example new Reward([{ term: harm(scorer), weight: 1 }, { term: nll(), weight: -0.1 }]) */
export function nll(options: NLLOptions = {}): RewardTerm {
  const { emptyProbeNLL, free } = parseOptions("nll", nllOptions, options);
  return free === "start" ? new NLLFromStartTerm({ emptyProbeNLL }) : new NLLTerm({ emptyProbeNLL, free });
}

export const nllKind = defineKind({
  role: "term",
  name: "nll",
  summary:
    "Mean −log P of the probe's tokens under the target, in nats; a negative weight favors likely probes",
  schema: nllOptions,
  make: (chosen) => nll(chosen),
});
