import { UsageError } from "./errors.js";

/** Learning-rate factor for the step that comes after `step` finished steps (0 for the first). */
export type Schedule = (step: number) => number;

/** Length of a schedule, in optimizer steps. */
export interface ScheduleOptions {
  /**
   * The factor grows from 0 to 1 over these steps: step / warmupSteps. As in transformers the very first step
   * then has factor 0 and changes nothing. Default 0: no warm-up.
   */
  warmupSteps?: number;
  /** Steps of the whole run, warm-up included. Ignored by the constant schedule, required by the others. */
  totalSteps?: number;
}

/** 1 after the warm-up. */
export function constantSchedule(options: ScheduleOptions = {}): Schedule {
  const { warmupSteps } = readLengths("constant schedule", options, false);
  return (step) => warmUp(step, warmupSteps) ?? 1;
}

/** After the warm-up, falls from 1 to 0 in a straight line, reaching 0 at totalSteps and staying there. */
export function linearSchedule(options: ScheduleOptions): Schedule {
  const { warmupSteps, totalSteps } = readLengths("linear schedule", options, true);
  return (step) => warmUp(step, warmupSteps) ?? 1 - progress(step, warmupSteps, totalSteps);
}

/** After the warm-up, falls from 1 to 0 along half a cosine, reaching 0 at totalSteps and staying there. */
export function cosineSchedule(options: ScheduleOptions): Schedule {
  const { warmupSteps, totalSteps } = readLengths("cosine schedule", options, true);
  return (step) =>
    warmUp(step, warmupSteps) ?? 0.5 * (1 + Math.cos(Math.PI * progress(step, warmupSteps, totalSteps)));
}

const makers = { constant: constantSchedule, linear: linearSchedule, cosine: cosineSchedule } as const;

/** A name that {@link createSchedule} knows. */
export type ScheduleName = keyof typeof makers;

/** Every name that {@link createSchedule} knows. */
export const scheduleNames: readonly ScheduleName[] = Object.keys(makers) as ScheduleName[];

/**
 * Makes a schedule by name, for names that come from a configuration file.
 * @throws UsageError for a name that does not exist or lengths that are not whole numbers.
 */
export function createSchedule(name: ScheduleName, options: ScheduleOptions): Schedule {
  if (!Object.hasOwn(makers, name)) {
    throw new UsageError(
      `schedule: there is none named ${JSON.stringify(name)}; choose one of ${scheduleNames.join(", ")}`,
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
    throw new UsageError(`${where} warmupSteps: must be a whole number ≥ 0, got ${String(warmupSteps)}`);
  }
  if (needsTotal && (totalSteps === undefined || !Number.isSafeInteger(totalSteps) || totalSteps < 1)) {
    throw new UsageError(`${where} totalSteps: must be a whole number ≥ 1, got ${String(totalSteps)}`);
  }
  return { warmupSteps, totalSteps: totalSteps ?? 0 };
}
