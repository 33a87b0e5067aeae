import type { Json } from "@astra-rl/base";
import type { LoggedValues } from "./metrics-logger.js";

/** The values that are numbers or can be converted to one. */
export function scalarsOf(values: LoggedValues): Record<string, number> {
  return Object.fromEntries(
    Object.entries(values).flatMap(([key, value]) =>
      typeof value === "number" || typeof value === "boolean" ? [[key, Number(value)]] : [],
    ),
  );
}

/** Flattens a configuration to dotted keys such as "training.learningRate"; a list is one value. */
export function parametersOf(
  configuration: Json,
  path: readonly string[] = [],
): [key: string, value: Json][] {
  if (typeof configuration === "object" && configuration !== null && !Array.isArray(configuration)) {
    return Object.entries(configuration).flatMap(([key, value]) =>
      parametersOf(value as Json, [...path, key]),
    );
  }
  return path.length === 0 ? [] : [[path.join("."), configuration]];
}
