import { UsageError } from "@astra-rl/base";
import { Adagrad, type AdagradOptions } from "./adagrad.js";
import { Adam, type AdamOptions } from "./adam.js";
import { AdamW, type AdamWOptions } from "./adamw.js";
import type { Optimizer } from "./optimizer.js";
import type { ParameterList } from "./parameter-groups.js";
import { RMSprop, type RMSpropOptions } from "./rmsprop.js";
import { SGD, type SGDOptions } from "./sgd.js";

/** The options of each optimizer, by name. */
export interface OptimizerOptions {
  adam: AdamOptions;
  adamw: AdamWOptions;
  sgd: SGDOptions;
  rmsprop: RMSpropOptions;
  adagrad: AdagradOptions;
}

/** A name accepted by {@link createOptimizer}. */
export type OptimizerName = keyof OptimizerOptions;

type Makers = {
  [N in OptimizerName]: new (parameters: ParameterList, options?: OptimizerOptions[N]) => Optimizer;
};

const makers: Makers = { adam: Adam, adamw: AdamW, sgd: SGD, rmsprop: RMSprop, adagrad: Adagrad };

/** All names accepted by {@link createOptimizer}. */
export const optimizerNames: readonly OptimizerName[] = Object.keys(makers) as OptimizerName[];

/**
 * Creates an optimizer by name, for names and options that come from a configuration file.
 * @throws UsageError for an unknown name (the message lists the valid ones), an unknown option or a value out of range.
 */
export function createOptimizer<N extends OptimizerName>(
  name: N,
  parameters: ParameterList,
  options: OptimizerOptions[N] = {},
): Optimizer {
  if (!Object.hasOwn(makers, name)) {
    throw new UsageError(
      "unknown-choice",
      `optimizer: unknown name ${JSON.stringify(name)}; available: ${optimizerNames.join(", ")}`,
    );
  }
  return new makers[name](parameters, options);
}
