import type { Tensor } from "@astra-rl/torch";

/** What is added to the outputs of a model's projections without touching their weights. */
export interface Adapter {
  /**
   * Added to the output of the projection of this name, or null where the adapter leaves it alone.
   *
   * @param projection name of a module in the checkpoint, for example "model.layers.0.self_attn.q_proj"
   * @param x input of the projection, compute type [..., input]
   * @returns compute type [..., output]
   */
  delta(projection: string, x: Tensor): Tensor | null;
  /** Its parameters for the projections whose names begin so. */
  parameters(prefix: string): Iterable<Tensor>;
  /** Whether it may draw at random (dropout), as in training. */
  training: boolean;
  /** The adapter's parameters, trainable ones, under the names of its saved form. */
  namedParameters(): Map<string, Tensor>;
}

/** One linear map of a model, as an adapter sees it. */
export interface Projection {
  input: number;
  output: number;
  /** True where the weight is stored [input, output] (GPT-2's "Conv1D") rather than [output, input]. */
  transposed: boolean;
}
