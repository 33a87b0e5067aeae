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

/** The end of a clause of `changes`; undefined for what is not there. */
export function wasAndIs(then: string | undefined, now: string | undefined): string {
  return `was ${then ?? "not given"} and is now ${now ?? "not given"}`;
}
