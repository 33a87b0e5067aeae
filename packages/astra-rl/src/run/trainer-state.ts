import { readFileSync } from "node:fs";
import { join } from "node:path";
import { UsageError } from "@astra-rl/torch";
import { z } from "zod";
import type { Json } from "../core/index.js";

/** The version of `state/` that this release writes and reads. */
export const STATE_VERSION = 3;

const json = z.json() as unknown as z.ZodType<Json>;

const hyperparameters = z.record(
  z.string(),
  z.union([z.number(), z.boolean(), z.array(z.number()), z.null()]),
);

const stateSchema = z.object({
  version: z.literal(STATE_VERSION),
  /** Training steps done. */
  step: z.int().nonnegative(),
  /** Lengths of the run's files with the lines of that step. */
  bytes: z.object({
    metrics: z.int().nonnegative(),
    graphs: z.int().nonnegative(),
    evaluations: z.int().nonnegative(),
  }),
  skippedInARow: z.int().nonnegative(),
  /** How many the run was to have in all; a schedule reads it. */
  trainingSteps: z.int().nonnegative(),
  /** Best mean final reward on the dev prompts so far; null before the first evaluation. */
  bestScore: z.number().nullable(),
  harness: z.object({
    seed: z.int(),
    nextEpisode: z.int().nonnegative(),
    nextExperience: z.int().nonnegative(),
    algorithm: json.optional(),
    system: json.optional(),
  }),
  /** Gradients that wait for further batches, in gradients.safetensors; null where there are none. */
  pending: z
    .object({ batches: z.int().positive(), weight: z.number().nonnegative(), scale: z.number().positive() })
    .nullable(),
  watches: json,
  /** What callbacks remember, by their names; absent in checkpoints of before there were any. */
  callbacks: z.record(z.string(), json).optional(),
  sampler: z.record(z.string(), json),
  optimizer: z.object({
    name: z.string(),
    hyperparameters,
    /** Of the groups of parameters behind the first; absent where there are none. */
    groups: z.array(hyperparameters).optional(),
    steps: z.record(z.string(), z.int().nonnegative()),
  }),
  /** What the run was started with; what changes its results must be the same when it is resumed. */
  run: z.record(z.string(), z.unknown()),
  /** Types that the system computes in, by what it computes; absent for a system that does not tell. */
  computeTypes: z.record(z.string(), z.string()).optional(),
});

/** Everything but tensors that a trainer needs to go on exactly. Every random draw follows from these counters. */
export type TrainerState = z.infer<typeof stateSchema>;

/** @throws UsageError when the file is missing, not JSON or not a state of this version */
export function readState(folder: string): TrainerState {
  const path = join(folder, "state", "trainer.json");
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    const rule =
      (cause as NodeJS.ErrnoException).code === "ENOENT"
        ? "there is no such file, so this checkpoint cannot be resumed, only loaded"
        : "cannot be read as JSON";
    throw new UsageError(`${path}: ${rule}`, { cause });
  }
  const version = (value as { version?: unknown } | null)?.version;
  if (typeof version === "number" && version !== STATE_VERSION) {
    throw new UsageError(
      `${path}: has version ${version} and this release goes on from version ${STATE_VERSION}; its weights can be ` +
        `loaded, as the tester of a new run`,
    );
  }
  const result = stateSchema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  throw new UsageError(`${path}: ${issue.path.map(String).join(".")}: ${issue.message}`, {
    cause: result.error,
  });
}
