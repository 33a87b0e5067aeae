/**
 * Optimizers with PyTorch's formulas and defaults.
 *
 * This folder must not know modules, models or files: it takes tensors that require gradients, and exposes its state as
 * plain numbers and tensors for callers to store.
 */
export {
  OptimizerBase,
  slot,
  type Optimizer,
  type OptimizerState,
  type Slots,
  type Update,
} from "./optimizer.js";
export type { OptimizerFields, OptimizerGroup, ParameterGroup, ParameterList } from "./parameter-groups.js";
export {
  decayRate,
  decayRatePair,
  flag,
  nonNegative,
  type Field,
  type Fields,
  type Hyperparameter,
  type Values,
} from "./hyperparameters.js";
export { Adam, type AdamOptions } from "./adam.js";
export { AdamW, type AdamWOptions } from "./adamw.js";
export { SGD, type SGDOptions } from "./sgd.js";
export { RMSprop, type RMSpropOptions } from "./rmsprop.js";
export { Adagrad, type AdagradOptions } from "./adagrad.js";
export {
  createOptimizer,
  optimizerNames,
  type OptimizerName,
  type OptimizerOptions,
} from "./create-optimizer.js";
