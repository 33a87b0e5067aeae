/** The settings of a run: saved in each checkpoint, and compared on resume. */
export interface RunSettings {
  /** Plain JSON. */
  readonly record: Readonly<Record<string, unknown>>;
  /**
   * Changes since `record` was saved that forbid resuming, one clause each, such as "algorithm.beta was 0.1 and is
   * now 0.2"; empty if the run may resume.
   */
  changes(record: Readonly<Record<string, unknown>>): string[];
}

/** The end of a clause of `changes`; undefined for a missing value. */
export function wasAndIs(then: string | undefined, now: string | undefined): string {
  return `was ${then ?? "not given"} and is now ${now ?? "not given"}`;
}
