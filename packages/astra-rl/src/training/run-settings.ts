import { trainingSection, type HFASTConfiguration } from "./hf-ast-configuration.js";

/**
 * What a run was started with: kept in each of its checkpoints, and asked, when the run is to go on, whether that is
 * still the same run.
 */
export interface RunSettings {
  /** Plain JSON. */
  readonly record: Readonly<Record<string, unknown>>;
  /**
   * What has changed since `record` was kept that must not, one clause each, such as "algorithm.beta was 0.1 and is now
   * 0.2"; empty when the run may go on.
   */
  changes(record: Readonly<Record<string, unknown>>): string[];
}

/** For a trainer that is told no more: its own configuration. */
export function trainingSettings(configuration: HFASTConfiguration): RunSettings {
  const free = new Set(
    Object.entries(trainingSection.shape).flatMap(([name, schema]) =>
      schema.meta()?.["resume"] === "free" ? [name] : [],
    ),
  );
  // Through JSON, as the kept ones went: settings that are not given are missing in both.
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

/** The end of a clause of `changes`; undefined for what is not there. */
export function wasAndIs(then: string | undefined, now: string | undefined): string {
  return `was ${then ?? "not given"} and is now ${now ?? "not given"}`;
}
