import { UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { defineKind } from "../kinds/index.js";
import type { Failure, Graph, Json, RewardTerm, Turn } from "../core/index.js";
import { parseOptions } from "../options/index.js";
import { BLEUReferences, words } from "../text/index.js";

const options = z.strictObject({
  history: z
    .number()
    .int()
    .min(1)
    .optional()
    .describe("How many of the latest probes a new one is compared with. Default: all"),
});

export type SelfBLEUOptions = z.input<typeof options>;

/**
 * Novelty of wording: minus the mean of BLEU-2 to BLEU-5 of the probe against all probes of earlier experiences, from −1
 * (an exact repetition) to 0 (no word in common, or nothing tried yet). B_SelfBLEU of Hong et al., "Curiosity-driven
 * Red-teaming", arXiv 2402.19464; its weight is positive.
 *
 * Smoothing is NLTK's method 1, which stands behind the published code's fast-bleu; words are folded (case, full width) and
 * cut at punctuation, where the published code cuts with NLTK's word_tokenize and keeps the case. Probes of turns that
 * failed are not remembered. Evaluations are worth 0: what was tried in training is no part of what they measure, and they
 * stay comparable from step to step.
 */
export class SelfBLEUTerm implements RewardTerm {
  readonly name = "self_bleu";
  readonly needs = [];
  /** null: all. */
  readonly history: number | null;
  #references = new BLEUReferences();
  /** Probes in the order in which they came; without a limit each text once, since BLEU asks for no more. */
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
      throw new UsageError("self_bleu: this is no state that getState() returned");
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
  make: ({ history }) => selfBLEUTerm(history === undefined ? {} : { history }),
});
