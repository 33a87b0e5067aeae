import {
  createOptimizer,
  UsageError,
  type Optimizer,
  type OptimizerOptions,
  type Tensor,
} from "@astra-rl/torch";
import type { LearningRateGroup } from "../core/index.js";
import type { TrainingConfiguration } from "./training-configuration.js";

/**
 * One group of all parameters that learn at the training's rate, then those that the algorithm names.
 *
 * @throws UsageError for a group that names a parameter that the system does not have, or that another group has
 */
export function configuredOptimizer(
  configuration: TrainingConfiguration,
  parameters: readonly Tensor[],
  rates: readonly LearningRateGroup[],
): Optimizer {
  const { optimizer, learningRate, weightDecay, betas } = configuration;
  const options: Record<string, unknown> = { learningRate };
  if (weightDecay !== undefined) options["weightDecay"] = weightDecay;
  if (betas !== undefined) options["betas"] = betas;
  const groupOf = new Map<Tensor, number>();
  for (const [index, { name, parameters: own }] of rates.entries()) {
    for (const parameter of own) {
      if (!parameters.includes(parameter)) {
        throw new UsageError(
          `training: the group "${name}" of learning rates names a tensor that is none of the system's parameters`,
        );
      }
      if (groupOf.has(parameter)) {
        throw new UsageError(
          `training: two groups of learning rates name the same parameter; the second is "${name}"`,
        );
      }
      groupOf.set(parameter, index + 1);
    }
  }
  // Numbered as the system gives them, so that a saved state knows them by the same names with groups and without.
  const groups = [{ learningRate }, ...rates].map((rate, group) => ({
    learningRate: rate.learningRate,
    parameters: new Map(
      parameters.flatMap((parameter, index) =>
        (groupOf.get(parameter) ?? 0) === group ? [[String(index), parameter] as const] : [],
      ),
    ),
  }));
  return createOptimizer(optimizer, groups, options as OptimizerOptions[typeof optimizer]);
}

/** @throws UsageError for an optimizer without groups, or an algorithm that would have others */
export function checkOptimizer({ name, groups }: Optimizer, wanted: readonly LearningRateGroup[]): void {
  const isGroup = (group: unknown) =>
    Number.isFinite((group as { learningRate?: unknown } | null)?.learningRate);
  if (!Array.isArray(groups) || groups.length === 0 || !groups.every(isGroup)) {
    throw new UsageError(
      `training: optimizer must have groups, each with its learningRate, which the schedule scales; ${name} has ` +
        "none (OptimizerBase has them)",
    );
  }
  if (wanted.length === 0) return;
  throw new UsageError(
    `training: the algorithm has a learning rate of its own for ${wanted.map((group) => group.name).join(", ")}, and an ` +
      "optimizer of your own has its own groups; leave one of them out, or override makeOptimizer, which is told of both",
  );
}
