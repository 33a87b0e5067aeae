import { UsageError } from "@astra-rl/base";
import type { Tensor } from "@astra-rl/torch";

/** Adds to the outputs of a model's projections without changing their weights. */
export interface Adapter {
  /**
   * Term added to the output of the named projection; null if the adapter does not change it.
   *
   * @param projection name of a module in the checkpoint, for example "model.layers.0.self_attn.q_proj"
   * @param x input of the projection, computeDtype [..., input]
   * @returns computeDtype [..., output]
   */
  delta(projection: string, x: Tensor): Tensor | null;
  /** Its parameters for the projections whose names start with `prefix`. */
  parameters(prefix: string): Iterable<Tensor>;
  /** Whether the adapter may draw random numbers (dropout). */
  training: boolean;
  /** The adapter's trainable parameters, under the names they are saved with. */
  namedParameters(): Map<string, Tensor>;
}

/** One linear map of a model, as an adapter sees it. */
export interface Projection {
  input: number;
  output: number;
  /** True if the weight is stored [input, output] (GPT-2's "Conv1D") rather than [output, input]. */
  transposed: boolean;
}

/**
 * Refuses a view where only its parameters would be used, that is, the base without the adapter.
 *
 * @param what begins the message
 */
export function requireNoAdapter(model: { readonly adapter: Adapter | null }, what: string): void {
  if (model.adapter === null) return;
  throw new UsageError(
    "adapter-would-be-lost",
    `${what}: this model is the view of another with an adapter, whose part would be lost; save the adapter itself ` +
      `(LoRA.save), or merge it into the base first (LoRA.merged)`,
  );
}
