import type { DType, Tensor } from "@astra-rl/torch";
import type { CausalLM, ModelConfig } from "../causal-lm.js";
import type { JsonFields } from "../json-fields.js";

/** One family of models: how its configuration and its weights are read, and how a model of it is made. */
export interface CausalFamily {
  /** Class names in Hugging Face's `architectures` that this family reads. */
  readonly architectures: readonly string[];
  /** Hugging Face's `model_type`, which decides where config.json names no architecture. */
  readonly modelType: string;

  /** The key of config.json that gives the number of layers. */
  readonly layersKey: string;

  /** Whether projections are stored [in, out] (GPT-2 alone) rather than [out, in]. */
  readonly projectionsTransposed: boolean;

  /** Reads config.json. Throws UsageError, naming the field, for what is missing, malformed or unsupported. */
  parseConfig(fields: JsonFields): ModelConfig;

  /** Every parameter's Hugging Face name and shape, in Hugging Face's order; tied weights once. */
  parameterShapes(config: ModelConfig): Map<string, readonly number[]>;

  /**
   * The parameter that a checkpoint's key stands for; null for a key that carries nothing (stored buffers, the second
   * name of tied weights). A name that `parameterShapes` lacks is one that this model has no use for.
   */
  parameterName(key: string, config: ModelConfig): string | null;

  /** How a parameter begins in an untrained model: normal with this deviation around 0, or a constant. */
  initialValue(name: string, config: ModelConfig): { deviation: number } | { constant: number };

  /** A model over these parameters, which it then owns. */
  create(config: ModelConfig, parameters: Map<string, Tensor>, computeDtype: DType): CausalLM;
}
