import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ruleOfIssue, UsageError, type Json, worded } from "@astra-rl/base";
import { z } from "zod";
import { brokenRule } from "../parse-record.js";

/** The version of `state/` that this release writes and reads. */
export const STATE_VERSION = 7;

const json = z.json() as unknown as z.ZodType<Json>;

const hyperparameters = z.record(
  z.string(),
  z.union([z.number(), z.boolean(), z.array(z.number()), z.null()]),
);

/** The position of a trainer in its run. All random draws are a function of these counters. */
const trainerStateSchema = z.object({
  /** Training steps completed. */
  step: z.int().nonnegative(),
  /** Consecutive skipped updates up to this step. */
  skippedInARow: z.int().nonnegative(),
  /** Factor on the learning rate that keeps steps within the limit of a stop rule. */
  rateFactor: z.number().positive().max(1),
  /** Total steps of the run, on which a schedule depends. */
  trainingSteps: z.int().nonnegative(),
  harness: z.object({
    seed: z.int(),
    nextEpisode: z.int().nonnegative(),
    nextExperience: z.int().nonnegative(),
    algorithm: json.optional(),
    system: json.optional(),
  }),
  sampler: z.record(z.string(), json),
  /** States of the callbacks, by name. */
  callbacks: z.record(z.string(), json),
});

export type TrainerState = z.infer<typeof trainerStateSchema>;

const journal = z.object({ bytes: z.int().nonnegative(), sha256: z.string() });

const savedStateSchema = z.object({
  version: z.literal(STATE_VERSION),
  ...trainerStateSchema.shape,
  /** The run's files, including the lines of that step: their sizes in bytes, and the SHA-256 of these bytes. */
  journals: z.object({ metrics: journal, graphs: journal, evaluations: journal }),
  optimizer: z.object({
    name: z.string(),
    hyperparameters,
    /** Of the parameter groups after the first; absent if there are none. */
    groups: z.array(hyperparameters).optional(),
    steps: z.record(z.string(), z.int().nonnegative()),
  }),
  /** See `RunSettings`. */
  settings: z.object({ values: z.record(z.string(), json), contents: z.record(z.string(), z.string()) }),
});

export type CompleteState = z.infer<typeof savedStateSchema>;

/** `state/trainer.json` of a checkpoint, without the optimizer's part. */
export type SavedState = Omit<CompleteState, "version" | "optimizer">;

/** @throws UsageError if the file is missing, not JSON, or not a state of this version */
export function readState(folder: string): CompleteState {
  const path = join(folder, "state", "trainer.json");
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    throw (cause as NodeJS.ErrnoException).code === "ENOENT"
      ? new UsageError(
          "file-not-found",
          `${path}: there is no such file, so this checkpoint cannot be resumed, only loaded`,
          { cause },
        )
      : new UsageError("not-json", `${path}: cannot be read as JSON`, { cause });
  }
  const version = (value as { version?: unknown } | null)?.version;
  if (typeof version === "number" && version !== STATE_VERSION) {
    throw new UsageError(
      "unsupported-version",
      `${path}: has version ${version} but this release resumes only version ${STATE_VERSION}; its weights can be ` +
        `loaded, as the tester of a new run`,
    );
  }
  const result = savedStateSchema.safeParse(value, { error: worded });
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  const broken = brokenRule(issue, value, "the state of a trainer");
  throw new UsageError(ruleOfIssue(issue, value), `${path}: ${broken}`, { cause: result.error });
}
