import { UsageError, parseOptions, BLEUReferences, words, type Json } from "@astra-rl/base";
import { z } from "zod";
import type { Failure } from "@astra-rl/records";
import { defineKind } from "../kinds/index.js";
import type { Graph } from "../tree/index.js";
import type { RewardTerm, Turn } from "./reward-term.js";

const options = z.strictObject({
  history: z
    .number()
    .int()
    .min(1)
    .optional()
    .describe("Number of latest probes to compare with. Default: all"),
});

export type SelfBLEUOptions = z.input<typeof options>;

/**
 * Lexical novelty: minus the mean of BLEU-2 to BLEU-5 of the probe against all probes of earlier experiences, from −1
 * (an exact repetition) to 0 (no word in common, or no history). B_SelfBLEU of Hong et al., "Curiosity-driven
 * Red-teaming", arXiv 2402.19464; use a positive weight.
 *
 * Smoothing is NLTK's method 1, as in the published code (fast-bleu). Words are case- and width-folded and split at
 * punctuation; the published code uses NLTK's word_tokenize and keeps case. Probes of failed turns are not added.
 * Evaluation turns get 0, so that evaluations do not depend on training history and stay comparable across steps.
 */
export class SelfBLEUTerm implements RewardTerm {
  readonly name = "self_bleu";
  readonly needs = [];
  /** Maximum number of probes compared with; null for all. */
  readonly history: number | null;
  #references = new BLEUReferences();
  /** Probes in insertion order, for an unlimited history; distinct texts suffice for BLEU. */
  #probes = new Set<string>();
  #window: string[] = [];

  constructor(given: SelfBLEUOptions = {}) {
    this.history = parseOptions("selfBLEU", options, given).history ?? null;
  }

  score(turns: readonly Turn[]): Promise<(number | Failure)[]> {
    return Promise.resolve(
      turns.map(({ probe, key }) =>
        key.purpose === "evaluate" ? 0 : 0 - this.#references.overlap(words(probe)),
      ),
    );
  }

  observe(graphs: readonly Graph[]): Promise<void> {
    for (const graph of graphs)
      for (const node of graph.nodes()) if (!node.failed) this.#remember(String(node.probe));
    return Promise.resolve();
  }

  #remember(probe: string): void {
    if (this.history === null) {
      if (this.#probes.has(probe)) return;
      this.#probes.add(probe);
    } else {
      if (this.#window.length === this.history) this.#references.remove(words(this.#window.shift()!));
      this.#window.push(probe);
    }
    this.#references.add(words(probe));
  }

  getState(): Json {
    return this.history === null ? [...this.#probes] : [...this.#window];
  }

  setState(state: Json): void {
    if (!Array.isArray(state) || !state.every((probe) => typeof probe === "string")) {
      throw new UsageError("invalid-state", "self_bleu: the state was not returned by getState()");
    }
    this.#references = new BLEUReferences();
    this.#probes = new Set();
    this.#window = [];
    for (const probe of state as readonly string[]) this.#remember(probe);
  }
}

export function selfBLEUTerm(options: SelfBLEUOptions = {}): SelfBLEUTerm {
  return new SelfBLEUTerm(options);
}

export const selfBLEUKind = defineKind({
  role: "term",
  name: "selfBleu",
  summary: "Novelty of wording: minus self-BLEU against all earlier probes, −1 to 0",
  schema: options,
  make: (chosen) => selfBLEUTerm(chosen),
});
