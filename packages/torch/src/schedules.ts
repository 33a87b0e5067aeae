import { UsageError } from "@astra-rl/base";

/** Learning-rate factor for the next step after `step` completed steps (0 for the first step). */
export type Schedule = (step: number) => number;

/** Length of a schedule, in optimizer steps. */
export interface ScheduleOptions {
  /**
   * Steps over which the factor increases from 0 to 1: step / warmupSteps. As in transformers, the very first step then
   * has factor 0 and changes nothing. Default 0: no warm-up.
   */
  warmupSteps?: number;
  /** Steps of the whole run, including warm-up. Ignored by the constant schedule, required by the others. */
  totalSteps?: number;
}

/** 1 after the warm-up. */
export function constantSchedule(options: ScheduleOptions = {}): Schedule {
  const { warmupSteps } = readLengths("constant schedule", options, false);
  return (step) => warmUp(step, warmupSteps) ?? 1;
}

/** After the warm-up, decreases linearly from 1 to 0 at totalSteps, then stays 0. */
export function linearSchedule(options: ScheduleOptions): Schedule {
  const { warmupSteps, totalSteps } = readLengths("linear schedule", options, true);
  return (step) => warmUp(step, warmupSteps) ?? 1 - progress(step, warmupSteps, totalSteps);
}

/** After the warm-up, decreases along half a cosine from 1 to 0 at totalSteps, then stays 0. */
export function cosineSchedule(options: ScheduleOptions): Schedule {
  const { warmupSteps, totalSteps } = readLengths("cosine schedule", options, true);
  return (step) =>
    warmUp(step, warmupSteps) ?? 0.5 * (1 + Math.cos(Math.PI * progress(step, warmupSteps, totalSteps)));
}

const makers = { constant: constantSchedule, linear: linearSchedule, cosine: cosineSchedule } as const;

/** A name accepted by {@link createSchedule}. */
export type ScheduleName = keyof typeof makers;

/** All names accepted by {@link createSchedule}. */
export const scheduleNames: readonly ScheduleName[] = Object.keys(makers) as ScheduleName[];

/**
 * Creates a schedule by name, for names that come from a configuration file.
 * @throws UsageError for an unknown name or lengths that are not integers.
 */
export function createSchedule(name: ScheduleName, options: ScheduleOptions): Schedule {
  if (!Object.hasOwn(makers, name)) {
    throw new UsageError(
      "unknown-choice",
      `schedule: unknown name ${JSON.stringify(name)}; available: ${scheduleNames.join(", ")}`,
    );
  }
  return makers[name](options);
}

function warmUp(step: number, warmupSteps: number): number | null {
  return step < warmupSteps ? step / warmupSteps : null;
}

/** 0 at the end of the warm-up, 1 from totalSteps on. */
function progress(step: number, warmupSteps: number, totalSteps: number): number {
  return step >= totalSteps ? 1 : (step - warmupSteps) / (totalSteps - warmupSteps);
}

function readLengths(where: string, options: ScheduleOptions, needsTotal: boolean) {
  const { warmupSteps = 0, totalSteps } = options;
  if (!Number.isSafeInteger(warmupSteps) || warmupSteps < 0) {
    throw new UsageError(
      "out-of-range",
      `${where} warmupSteps: must be a whole number ≥ 0, got ${String(warmupSteps)}`,
    );
  }
  if (needsTotal && (totalSteps === undefined || !Number.isSafeInteger(totalSteps) || totalSteps < 1)) {
    throw new UsageError(
      "out-of-range",
      `${where} totalSteps: must be a whole number ≥ 1, got ${String(totalSteps)}`,
    );
  }
  return { warmupSteps, totalSteps: totalSteps ?? 0 };
}
