import { z } from "zod";
import { parseOptions, hashedNgrams } from "@astra-rl/base";
import { defineKind } from "../kinds/index.js";
import { Embedder } from "./embedder.js";

const SIMILARITY_RULE = "must be a similarity above 0 and at most 1";

const options = z.strictObject({
  buckets: z
    .union(
      [256, 512, 1024, 2048, 4096, 8192, 16_384].map((size) => z.literal(size)),
      {
        error: "must be a power of two from 256 to 16384",
      },
    )
    .default(4096)
    .describe("Dimension of the vectors, a power of two"),
  similarity: z
    .number()
    .gt(0, SIMILARITY_RULE)
    .max(1, SIMILARITY_RULE)
    .default(0.5)
    .describe("Minimum cosine at which two texts count as variants of each other"),
});

export type HashedNgramEmbedderOptions = z.input<typeof options>;

/**
 * A binary vector of hashed features: a text's words and their character 3- and 4-grams. The cosine of two texts is the
 * number of shared features over the geometric mean of their counts. It captures wording and spelling, not meaning; no
 * download needed.
 */
export class HashedNgramEmbedder extends Embedder {
  readonly name: string;
  readonly similarity: number;
  readonly #buckets: number;

  constructor(given: HashedNgramEmbedderOptions = {}) {
    super();
    const { buckets, similarity } = parseOptions("HashedNgramEmbedder", options, given);
    this.#buckets = buckets;
    this.similarity = similarity;
    this.name = `hashed-ngrams-${buckets}`;
  }

  override embed(texts: readonly string[]): Promise<Float32Array[]> {
    return Promise.resolve(
      texts.map((text) => {
        const vector = new Float32Array(this.#buckets);
        const features = hashedNgrams(text, {
          buckets: this.#buckets,
          wordNgrams: [1],
          characterNgrams: [3, 4],
        });
        for (const feature of features) vector[feature] = 1;
        return vector;
      }),
    );
  }
}

export const hashedNgramEmbedderKind = defineKind({
  role: "embedder",
  name: "hashed-ngrams",
  summary: "Hashed words and character sequences: wording, not meaning; needs no model",
  schema: options,
  make: (chosen) => new HashedNgramEmbedder(chosen),
});
