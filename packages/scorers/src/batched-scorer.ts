import { createHash } from "node:crypto";
import { z } from "zod";
import {
  checkScore,
  distinctItems,
  keyOf,
  scoreItems,
  type Judged,
  type Score,
  type Scorer,
  type ScoreOutcome,
} from "@astra-rl/method";
import { objectOption, parseOptions } from "@astra-rl/base";
import { ComposedScorer } from "./composed-scorer.js";
import type { ScoreFile } from "./score-file.js";

/** Default number of scores that a cache with a file holds in memory: about 20 MB. */
export const DEFAULT_CACHE_SIZE = 100_000;

const options = z.strictObject({
  batchSize: z.int().min(1).default(64),
  cacheSize: z.int().min(0).optional(),
  file: objectOption<ScoreFile>("must be what ScoreFile.open gives", "append", "close").optional(),
});

export type BatchedScorerOptions = z.input<typeof options>;

/**
 * Calls another scorer once per distinct text, in batches of limited size sorted by length, and optionally caches
 * scores in memory and in a file. Failures are not cached, since they may be transient.
 */
export class BatchedScorer extends ComposedScorer {
  readonly name: string;
  override readonly labelNames: readonly string[];
  readonly #scorer: Scorer;
  readonly #batchSize: number;
  readonly #cacheSize: number;
  readonly #file: ScoreFile | null;
  /** Keyed by a digest of the item, so that memory does not grow with text length. */
  readonly #cache = new Map<string, Score>();

  constructor(scorer: Scorer, given: BatchedScorerOptions = {}) {
    super([scorer]);
    const {
      batchSize,
      file,
      cacheSize = file === undefined ? 0 : DEFAULT_CACHE_SIZE,
    } = parseOptions("BatchedScorer", options, given);
    this.name = scorer.name;
    this.labelNames = scorer.labelNames;
    this.#scorer = scorer;
    this.#batchSize = batchSize;
    this.#cacheSize = cacheSize;
    this.#file = file ?? null;
    for (const [digest, score] of file?.scores ?? []) this.#remember(digest, score);
  }

  override dispose(): void {
    this.#cache.clear();
    this.#file?.close();
    super.dispose();
  }

  protected override async judge(items: readonly Judged[]): Promise<ScoreOutcome[]> {
    const { distinct, places } = distinctItems(this, items);
    const digests = distinct.map(digestOf);
    const found: (ScoreOutcome | undefined)[] = digests.map((digest) => this.#cache.get(digest));
    // Texts of similar length share a batch, to reduce padding.
    const asked = [...distinct.keys()]
      .filter((at) => found[at] === undefined)
      .sort((a, b) => lengthOf(distinct[a]!) - lengthOf(distinct[b]!));
    for (let start = 0; start < asked.length; start += this.#batchSize) {
      const batch = asked.slice(start, start + this.#batchSize);
      const outcomes = await scoreItems(
        this.#scorer,
        batch.map((at) => distinct[at]!),
      );
      const known: [string, Score][] = [];
      for (const [index, at] of batch.entries()) {
        const outcome = outcomes[index]!;
        found[at] = outcome;
        // Only finite numbers are cached; the caller checks the scale.
        if (!outcome.failure)
          known.push([digests[at]!, checkScore(this.name, outcome, distinct[at]!, "any")]);
      }
      this.#file?.append(known);
      for (const [digest, score] of known) this.#remember(digest, score);
    }
    return places.map((at) => found[at]!);
  }

  #remember(digest: string, score: Score): void {
    if (this.#cacheSize === 0) return;
    if (this.#cache.size >= this.#cacheSize) {
      const oldest = this.#cache.keys().next();
      if (!oldest.done) this.#cache.delete(oldest.value);
    }
    this.#cache.set(digest, score);
  }
}

const lengthOf = (item: Judged): number =>
  typeof item === "string" ? item.length : item.prompt.length + (item.response ?? "").length;

const digestOf = (item: Judged): string => createHash("sha256").update(keyOf(item)).digest("base64url");
