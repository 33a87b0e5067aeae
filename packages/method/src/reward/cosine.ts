import { UsageError, type Json } from "@astra-rl/base";
import { z } from "zod";
import { dot } from "@astra-rl/analysis";
import type { Failure } from "@astra-rl/records";
import { defineKind } from "../kinds/index.js";
import { disposeOnce, type Embedder } from "../models/index.js";
import type { Graph } from "../tree/index.js";
import type { RewardTerm, Turn } from "./reward-term.js";

/**
 * Semantic novelty: minus the mean cosine similarity of the probe's embedding to those of all probes of earlier
 * experiences, 0 if there are none. B_cos of Hong et al., "Curiosity-driven Red-teaming", arXiv 2402.19464; use a
 * positive weight.
 *
 * The mean cosine to N unit vectors is the dot product with their sum, divided by N, so the history is a single vector
 * and the cost per probe is constant. Probes of failed turns are not added; evaluation turns get 0.
 */
export class CosineTerm implements RewardTerm {
  readonly name = "cosine";
  readonly needs = [];
  /** Sum of the unit vectors of all probes; empty before the first. */
  #sum = new Float64Array();
  #count = 0;

  constructor(readonly embedder: Embedder) {}

  async score(turns: readonly Turn[]): Promise<(number | Failure)[]> {
    const compared = this.#count === 0 ? [] : turns.filter(({ key }) => key.purpose !== "evaluate");
    const vectors = await this.embedder.embedAndValidate(compared.map(({ probe }) => probe));
    this.#checkSize(vectors[0]);
    const worth = new Map(
      vectors.map((vector, at) => [compared[at], 0 - dot(vector, this.#sum) / this.#count]),
    );
    return turns.map((turn) => worth.get(turn) ?? 0);
  }

  async observe(graphs: readonly Graph[]): Promise<void> {
    const probes = graphs.flatMap((graph) =>
      [...graph.nodes()].flatMap(({ failed, probe }) => (failed ? [] : [String(probe)])),
    );
    if (probes.length === 0) return;
    const vectors = await this.embedder.embedAndValidate(probes);
    this.#checkSize(vectors[0]);
    if (this.#count === 0) this.#sum = new Float64Array(vectors[0]!.length);
    for (const vector of vectors) for (const [at, value] of vector.entries()) this.#sum[at]! += value;
    this.#count += vectors.length;
  }

  #checkSize(vector: Float32Array | undefined): void {
    if (this.#count === 0 || vector === undefined || vector.length === this.#sum.length) return;
    throw new UsageError(
      "other-embedder",
      `cosine: the saved history was computed with an embedder of ${this.#sum.length} dimensions, but this one ` +
        `(${this.embedder.name}) has ${vector.length}; resume with the run's original embedder`,
    );
  }

  dispose(): void {
    disposeOnce(this.embedder);
  }

  /** The sum is in base64: exact, and half the size of decimals. */
  getState(): Json {
    const bytes = Buffer.from(this.#sum.buffer, this.#sum.byteOffset, this.#sum.byteLength);
    return { embedder: this.embedder.name, count: this.#count, sum: bytes.toString("base64") };
  }

  setState(state: Json): void {
    const { embedder, count, sum } = (state ?? {}) as { embedder?: unknown; count?: unknown; sum?: unknown };
    if (typeof sum !== "string" || typeof count !== "number") {
      throw new UsageError("invalid-state", "cosine: the state was not returned by getState()");
    }
    if (embedder !== this.embedder.name) {
      throw new UsageError(
        "other-embedder",
        `cosine: the saved history was computed with the embedder ${String(embedder)}, but this one is ` +
          `${this.embedder.name}; ` +
          `resume with the run's original embedder`,
      );
    }
    // Copied, since a pooled Buffer's offset may not be aligned for Float64Array.
    this.#sum = new Float64Array(Uint8Array.from(Buffer.from(sum, "base64")).buffer);
    this.#count = count;
  }
}

/** @example new Reward([{ term: harm(scorer), weight: 1 }, { term: cosine(new HashedNgramEmbedder()), weight: 1 }]) */
export function cosine(embedder: Embedder): CosineTerm {
  return new CosineTerm(embedder);
}

export const cosineKind = defineKind({
  role: "term",
  name: "cosine",
  summary: "Novelty by the run's embedder: minus the mean cosine to all earlier probes, −1 to 1",
  schema: z.strictObject({}),
  make: (_, { embedder }) => cosine(embedder),
});
