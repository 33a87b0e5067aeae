import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { UsageError, writeFileAtomic } from "@astra-rl/base";
import { parse } from "yaml";
import { computeTypesOf, type System } from "@astra-rl/method";
import { RESOLVED_CONFIGURATION } from "@astra-rl/records";
import { findKind, stringifyConfiguration, type Configuration } from "../configuration/index.js";
import { automaticLearningRate } from "./learning-rate.js";

/** Writes `config.resolved.yaml` atomically. */
export function writeResolvedConfiguration(folder: string, configuration: Configuration): void {
  writeFileAtomic(join(folder, RESOLVED_CONFIGURATION), [stringifyConfiguration(configuration)]);
}

/** The configuration with each "auto" resolved, so that it reproduces the run on any machine. */
export function withSettled(configuration: Configuration, system: System): Configuration {
  const { training, algorithm } = configuration;
  const factor = findKind("algorithm", algorithm.type)?.learningRateFactor ?? 1;
  const learningRate =
    training.learningRate === "auto" ? automaticLearningRate(system, factor) : training.learningRate;
  const settled = { ...configuration, training: { ...training, learningRate } };
  const computed = computeTypesOf(system);
  if (computed?.rollouts === undefined) return settled;
  const { rollouts, updates } = computed;
  const types = { dtype: rollouts, updateDtype: updates } as Partial<Configuration["models"]>;
  return { ...settled, models: { ...configuration.models, ...types } };
}

/**
 * The configuration with each "auto" replaced by the value in the run folder, and with its date: on another machine, on
 * another day or in another version they would differ, which a resumed run must not use.
 */
export function withRecorded(configuration: Configuration, folder: string): Configuration {
  const file = join(folder, RESOLVED_CONFIGURATION);
  if (!existsSync(file)) return configuration;
  const recorded = recordedConfiguration(file);
  const [models, training] = [recorded["models"] ?? {}, recorded["training"] ?? {}];
  const { learningRate } = training;
  if (configuration.training.learningRate === "auto" && typeof learningRate === "number") {
    configuration = { ...configuration, training: { ...configuration.training, learningRate } };
  }
  const { date } = models;
  if (typeof date === "string" && configuration.models.date === undefined) {
    configuration = { ...configuration, models: { ...configuration.models, date } };
  }
  // A custom system that does not report dtypes: none were recorded.
  if (configuration.system !== undefined && models["updateDtype"] === undefined) return configuration;
  const { dtype, updateDtype = dtype } = configuration.models;
  const settled = (given: typeof dtype, before: unknown) =>
    given === "auto" && (before === "float32" || before === "bfloat16") ? before : given;
  const types = {
    dtype: settled(dtype, models["dtype"]),
    updateDtype: settled(updateDtype, models["updateDtype"]),
  };
  return { ...configuration, models: { ...configuration.models, ...types } };
}

/** The sections of a resolved configuration. @throws UsageError for a damaged file */
function recordedConfiguration(file: string): Record<string, Record<string, unknown> | null> {
  try {
    return (parse(readFileSync(file, "utf8")) ?? {}) as Record<string, Record<string, unknown> | null>;
  } catch (cause) {
    throw new UsageError(
      "file-unreadable",
      `${file}: cannot be read; restore it, or delete it to continue without it`,
      {
        cause,
      },
    );
  }
}
