import { createOptimizer, type Optimizer, type OptimizerOptions, type Tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import type { LearningRateGroup } from "../algorithm/index.js";
import type { TrainingConfiguration } from "./training-configuration.js";

/**
 * Creates the optimizer. Its first group holds all parameters with the configured learning rate, followed by the
 * algorithm's groups.
 *
 * @throws UsageError if a group names a parameter that the system lacks or that another group contains
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
          "unknown-parameter",
          `training: the group "${name}" of learning rates names a tensor that is not one of the system's parameters`,
        );
      }
      if (groupOf.has(parameter)) {
        throw new UsageError(
          "duplicate-parameter",
          `training: two groups of learning rates name the same parameter; the second is "${name}"`,
        );
      }
      groupOf.set(parameter, index + 1);
    }
  }
  // Named by index in the system's order, so that saved optimizer state has the same names with and without groups.
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

/** @throws UsageError for an optimizer without groups, or if the algorithm requires groups of its own */
export function checkOptimizer({ name, groups }: Optimizer, wanted: readonly LearningRateGroup[]): void {
  const isGroup = (group: unknown) =>
    Number.isFinite((group as { learningRate?: unknown } | null)?.learningRate);
  if (!Array.isArray(groups) || groups.length === 0 || !groups.every(isGroup)) {
    throw new UsageError(
      "optimizer-without-groups",
      `training: optimizer must have groups, each with its learningRate, which the schedule scales; ${name} has ` +
        "none (OptimizerBase has them)",
    );
  }
  if (wanted.length === 0) return;
  throw new UsageError(
    "conflicting-groups",
    `training: the algorithm sets a separate learning rate for ` +
      `${wanted.map((group) => group.name).join(", ")}, but a custom ` +
      "optimizer has its own groups; leave one of them out, or override makeOptimizer, which receives both",
  );
}
