import type { LoggedValues } from "../../core/index.js";

/** The values that are numbers, or can be taken for one. */
export function scalarsOf(values: LoggedValues): Record<string, number> {
  return Object.fromEntries(
    Object.entries(values).flatMap(([key, value]) =>
      typeof value === "number" || typeof value === "boolean" ? [[key, Number(value)]] : [],
    ),
  );
}
