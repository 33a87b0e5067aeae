import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { UsageError, writeFileAtomic } from "@astra-rl/torch";
import { parse } from "yaml";
import { stringifyConfiguration, type Configuration } from "../configuration/index.js";
import type { ComputeTypes } from "../models/index.js";
import { RESOLVED_CONFIGURATION } from "../run/index.js";

/** Writes `config.resolved.yaml` atomically. */
export function writeResolvedConfiguration(folder: string, configuration: Configuration): void {
  writeFileAtomic(join(folder, RESOLVED_CONFIGURATION), [stringifyConfiguration(configuration)]);
}

/** The configuration with "auto" replaced by the resolved dtypes, so that it reproduces the run on any machine. */
export function withComputeTypes(
  configuration: Configuration,
  computed: Partial<ComputeTypes> | null,
): Configuration {
  if (computed?.rollouts === undefined) return configuration;
  const { rollouts, updates } = computed;
  const types = { dtype: rollouts, updateDtype: updates } as Partial<Configuration["models"]>;
  return { ...configuration, models: { ...configuration.models, ...types } };
}

/**
 * The configuration with "auto" replaced by the dtypes recorded in the run folder, and with its date: on another machine or
 * day they would be others, which a resumed run must not use.
 */
export function withRecordedTypes(configuration: Configuration, folder: string): Configuration {
  const file = join(folder, RESOLVED_CONFIGURATION);
  if (!existsSync(file)) return configuration;
  const models = recordedModels(file);
  const { date } = models;
  if (typeof date === "string" && configuration.models.date === undefined) {
    configuration = { ...configuration, models: { ...configuration.models, date } };
  }
  // A custom system that does not report dtypes: none were recorded.
  if (configuration.system !== undefined && models["updateDtype"] === undefined) return configuration;
  const { dtype, updateDtype = dtype } = configuration.models;
  const settled = (given: typeof dtype, recorded: unknown) =>
    given === "auto" && (recorded === "float32" || recorded === "bfloat16") ? recorded : given;
  const types = {
    dtype: settled(dtype, models["dtype"]),
    updateDtype: settled(updateDtype, models["updateDtype"]),
  };
  return { ...configuration, models: { ...configuration.models, ...types } };
}

/** The `models` section of a resolved configuration. @throws UsageError for a damaged file */
function recordedModels(file: string): Record<string, unknown> {
  try {
    const { models = {} } = (parse(readFileSync(file, "utf8")) ?? {}) as { models?: Record<string, unknown> };
    return models ?? {};
  } catch (cause) {
    throw new UsageError(`${file}: cannot be read; restore it, or delete it to go on without it`, { cause });
  }
}
