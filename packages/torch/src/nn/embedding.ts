import { UsageError } from "../errors.js";
import type { DType } from "../dtype.js";
import type { Generator } from "../generator.js";
import { embedding } from "../operators.js";
import type { Tensor } from "../tensor.js";
import { checkSize } from "./check-size.js";
import { normalInitialiser, type Initialiser } from "./initialisers.js";
import { Module } from "./module.js";

/** Options of {@link Embedding}: either `generator` or `weight` must be given. */
export interface EmbeddingOptions {
  /** Draws the table from N(0, 1), as PyTorch does. */
  generator?: Generator;
  /** First value of the table, instead of the draw. */
  weight?: Initialiser;
  /** Default float32. */
  dtype?: DType;
  /** Default "cpu". */
  device?: string;
}

/** A table of vectors, looked up by row number. */
export class Embedding extends Module {
  /** [entries, size] */
  readonly weight: Tensor;

  /** @throws UsageError when a size is not a positive integer, or there is nothing to draw initial values from. */
  constructor(entries: number, size: number, options: EmbeddingOptions = {}) {
    super();
    checkSize("Embedding entries", entries);
    checkSize("Embedding size", size);
    const { generator, weight, dtype = "float32", device = "cpu" } = options;
    const initial = weight ?? (generator === undefined ? null : normalInitialiser({ generator }));
    if (initial === null)
      throw new UsageError("Embedding: give a seeded generator or an initialiser for the weight");
    this.weight = this.registerParameter("weight", initial([entries, size], { dtype, device }));
  }

  /** int64 [...] → [..., size]; ids outside the table are a TorchError. */
  forward(ids: Tensor): Tensor {
    return embedding(this.weight, ids);
  }
}
