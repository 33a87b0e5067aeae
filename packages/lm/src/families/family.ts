import type { DType, Tensor } from "@astra-rl/torch";
import type { CausalLM, ModelConfig } from "../causal-lm.js";
import type { JsonFields } from "../json-fields.js";

/** A model family: reads its configuration and weights, and creates the model. */
export interface CausalFamily {
  /** Class names in Hugging Face's `architectures` that this family reads. */
  readonly architectures: readonly string[];
  /** Hugging Face's `model_type`, which decides if config.json has no `architectures`. */
  readonly modelType: string;

  /** The key of config.json that gives the number of layers. */
  readonly layersKey: string;

  /** Whether projections are stored [in, out] (GPT-2 alone) rather than [out, in]. */
  readonly projectionsTransposed: boolean;

  /** Parses config.json. Throws UsageError, naming the field, for anything missing, malformed or unsupported. */
  parseConfig(fields: JsonFields): ModelConfig;

  /** Hugging Face name and shape of every parameter, in Hugging Face's order; tied weights only once. */
  parameterShapes(config: ModelConfig): Map<string, readonly number[]>;

  /**
   * The parameter that a checkpoint key maps to; null for keys to skip (stored buffers, the second name of
   * tied weights). A name that is not in `parameterShapes` is a tensor that this model does not use.
   */
  parameterName(key: string, config: ModelConfig): string | null;

  /** Initial value of a parameter: normal with mean 0 and this standard deviation, or constant. */
  initialValue(name: string, config: ModelConfig): { deviation: number } | { constant: number };

  /** Creates a model from the parameters, which it then owns. */
  create(config: ModelConfig, parameters: Map<string, Tensor>, computeDtype: DType): CausalLM;
}
