import { wasAndIs, type RunSettings } from "@astra-rl/records";
import { trainingSection, type HFASTConfiguration } from "./hf-ast-configuration.js";

/** Default settings of a trainer: its configuration. */
export function trainingSettings(configuration: HFASTConfiguration): RunSettings {
  const free = new Set(
    Object.entries(trainingSection.shape).flatMap(([name, schema]) =>
      schema.meta()?.["resume"] === "free" ? [name] : [],
    ),
  );
  // Round trip through JSON, like the saved settings, so that undefined settings are missing in both.
  const training = JSON.parse(JSON.stringify(configuration)) as Record<string, unknown>;
  return {
    record: { training },
    changes(record) {
      const before = (record["training"] ?? {}) as Record<string, unknown>;
      return [...new Set([...Object.keys(training), ...Object.keys(before)])].flatMap((name) => {
        const [then, now] = [JSON.stringify(before[name]), JSON.stringify(training[name])];
        return then === now || free.has(name) ? [] : [`training.${name} ${wasAndIs(then, now)}`];
      });
    },
  };
}
