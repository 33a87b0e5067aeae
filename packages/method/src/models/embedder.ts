import { describeValue } from "@astra-rl/base";
import { checkCount, ContractError } from "../tree/index.js";

/** Texts in, vectors out; cosine similarity of vectors measures similarity of texts. */
export abstract class Embedder {
  /** Identifies the embedder in records; similarities of different embedders are not comparable. */
  abstract readonly name: string;
  /** Cosine at or above which two texts count as variants of each other. */
  abstract readonly similarity: number;

  /** One vector for each text, in order, all of one length; zeros for a text without features. */
  abstract embed(texts: readonly string[]): Promise<readonly Float32Array[]>;

  /** Frees what the embedder holds (weights); it is unusable afterwards. */
  dispose(): void {}

  /**
   * Calls `embed` once per distinct text, checks every vector and normalizes it to length 1; zeros stay zeros.
   *
   * @returns one vector for each text, in order; equal texts share one object
   * @throws ContractError when the embedder breaks its contract
   */
  async embedAndValidate(texts: readonly string[]): Promise<readonly Float32Array[]> {
    const distinct = [...new Set(texts)];
    if (distinct.length === 0) return [];
    const vectors = await this.embed(distinct);
    checkCount(`${this.name}.embed`, vectors, distinct.length);
    const size = vectors[0]!.length;
    const units = new Map(
      vectors.map((vector, row) => {
        let squares = 0;
        for (const value of vector) squares += value * value;
        if (vector.length !== size || !Number.isFinite(squares)) {
          throw new ContractError(
            `${this.name}.embed: every vector must hold ${size} finite numbers, as the first one does; that of ` +
              `${describeValue(distinct[row]!)} does not`,
          );
        }
        const norm = Math.sqrt(squares);
        return [distinct[row]!, norm === 0 ? vector : vector.map((value) => value / norm)];
      }),
    );
    return texts.map((text) => units.get(text)!);
  }
}
